/** A consumer in a process of its own, for the rebalance storm: works until it is told to stop, or killed, or frozen for too long. */
import { z } from 'zod'
import { createConsumer } from '../../src/consumer/consumer.ts'
import { run } from '../../src/core/service/lifetime.ts'
import { delta } from '../../src/core/event/event.ts'
import { createSignals } from '../../src/core/signals.ts'
import { stream } from '../../src/core/event/stream.ts'
import { connect } from '../../src/postgres/connect.ts'
import { eventually } from '../../src/testing/kit/eventually.ts'
import { kafka } from '../../src/transport/kafka/kafka.ts'
import type { StormConsumerSettings } from './rebalance-storm.ts'

const {
  url,
  schema,
  brokers,
  topic,
  kafka: times,
  consumer: options,
} = JSON.parse(process.argv[2] ?? '') as StormConsumerSettings
const accounts = stream('account', { topic, events: { Deposited: delta(z.object({ amount: z.number() })) } })
const db = connect({ url, max: 4 })
const signals = createSignals()
signals.on('service.failed', ({ error }) => process.stderr.write(`${String(error)}\n`))
signals.on('consumer.disturbed', ({ error }) => process.stderr.write(`${String(error)}\n`))
const consumer = createConsumer({
  db,
  signals,
  transport: kafka({ brokers, ...times }),
  name: 'ledger',
  streams: [accounts],
  schema,
  batchSize: 20,
  maxInFlight: 60,
  lingerMs: 1,
  pollMs: 50,
  // Processes die all the time here, and no event is to blame.
  maxCrashes: 1_000,
  backoff: { firstMs: 5, maxMs: 50 },
  ...options,
})
consumer.on(accounts.Deposited, async (event, { tx }) => {
  await tx.query(`insert into ${schema}.effect (event_id, aggregate_id, version) values ($1, $2, $3)`, [
    event.id,
    event.aggregateId,
    String(event.version),
  ])
})
const stop = new AbortController()
process.once('message', () => stop.abort())
// A first connection may take long on a busy machine, and a service that begins without one ends.
await eventually(() => db.query('select 1'))
process.send?.({ started: true })
await run([consumer], { signal: stop.signal, signals })
process.exit()
