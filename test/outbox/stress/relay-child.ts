/** A relay in a process of its own, for the stress test: works until it is told to stop, or killed, or frozen for too long. */
import { createSignals } from '../../../src/core/signals.ts'
import { run } from '../../../src/core/service/lifetime.ts'
import { createOutbox } from '../../../src/outbox/outbox.ts'
import { createRelay } from '../../../src/outbox/relay/relay.ts'
import { connect } from '../../../src/postgres/connect.ts'
import { eventually } from '../../../src/testing/kit/eventually.ts'
import { kafka } from '../../../src/transport/kafka/kafka.ts'
import { pubsub } from '../../../src/transport/pubsub/pubsub.ts'
import { judgedTransport } from '../../kafka/judge.ts'
import { tcpPublisher } from './tcp-publisher.ts'
import type { RelayChildSettings } from './relay-processes.ts'

const { url, schema, protocol, port, name, relay: options } = JSON.parse(process.argv[2] ?? '') as RelayChildSettings
const db = connect({ url, max: 4 })
const signals = createSignals()
const counts: Record<string, number> = {}
signals.onAny((_, signal) => void (counts[signal] = (counts[signal] ?? 0) + 1))
signals.on('service.failed', ({ error }) => process.stderr.write(`${String(error)}\n`))

const stop = new AbortController()
process.once('message', () => stop.abort())
// A relay whose lease ends while it loads a client would have to start again.
if (protocol === 'pubsub') await import('@google-cloud/pubsub')
if (protocol === 'kafka') await import('@platformatic/kafka')
const { publishTimeoutMs = 10_000 } = options
const openers = {
  tcp: () => tcpPublisher(port),
  pubsub: () => pubsub({ projectId: 'stress', emulatorHost: `127.0.0.1:${port}`, publishTimeoutMs }),
  kafka: () => judgedTransport(port, ({ brokers, minInsyncReplicas }) => kafka({ brokers, minInsyncReplicas, publishTimeoutMs })),
}
const transport = await openers[protocol]()
const relay = createRelay({ db, outbox: createOutbox({ schema }), transport, name, signals, ...options })
// A first connection may take long on a busy machine, and a service that begins without one ends.
await eventually(() => db.query('select 1'))
process.send?.({ started: true })
await run([relay], { signal: stop.signal, signals })
process.send?.({ stopped: counts })
process.exit()
