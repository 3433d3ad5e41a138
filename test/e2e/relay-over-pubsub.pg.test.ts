import { expect, test } from 'vitest'
import { run } from '../../src/core/service/lifetime.ts'
import { seededRandom } from '../../src/core/service/random.ts'
import { fromPg } from '../../src/postgres/adapters/from-pg.ts'
import type { FaultName } from 'waybill-pubsub-server'
import { eventually } from '../../src/testing/kit/eventually.ts'
import { checkHistory } from '../../src/testing/history/checker.ts'
import type { Log } from '../../src/testing/history/entry.ts'
import { logEntry } from '../../src/testing/history/message-entries.ts'
import { readHistory } from '../../src/testing/history/read-history.ts'
import { pubsub } from '../../src/transport/pubsub/pubsub.ts'
import { write } from '../outbox/stress/writers.ts'
import { outboxFixture } from '../setup/outbox-fixture.ts'
import { testDatabase } from '../setup/test-database.ts'
import { openBroker } from './pubsub-broker.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

/** One after the other, each for a while, with nothing wrong in between. */
const badDays: readonly (readonly [FaultName, number])[] = [
  ['duplicate', 0.3],
  ['delay', 0.3],
  ['dropAcks', 0.2],
  ['reorder', 0.5],
  ['publishError', 0.2],
  ['refuse', 0.2],
  ['cutStreams', 0.5],
]

test('relays over Pub/Sub, through every fault of the broker, lose nothing, make nothing up and keep the order', async () => {
  const broker = await openBroker()
  const fixture = await outboxFixture(db)
  const publisher = pubsub({ projectId: 'faults', emulatorHost: broker.server.emulatorHost, publishTimeoutMs: 2_000 })
  const arrived: Log[] = []
  const receiver = await broker.transport.receive({
    topic: 'video.events',
    consumer: 'catalog',
    maxMessages: 200,
    maxBytes: 10_000_000,
    onError: () => {},
    onDelivery: (delivery) => {
      arrived.push(logEntry(delivery.message))
      void delivery.ack()
    },
  })
  const stop = new AbortController()
  const relays = ['one', 'two', 'three'].map((name) => fixture.relay(publisher, { name, busyMs: 2, idleMs: 20 }))
  const relaying = run(relays, { signal: stop.signal })
  try {
    const seen = (): number => new Set(arrived.map(({ event }) => event)).size
    for (const [fault, probability] of badDays) {
      broker.server.faults.set({ [fault]: probability })
      // Until it has struck, and some events of that day have arrived.
      for (let round = 0; round < 3 || broker.server.faults.fired[fault] === 0; round += 1) {
        const before = seen()
        await write({
          db,
          outbox: fixture.outbox,
          random: seededRandom(`${fault} ${round}`),
          aggregates: Array.from({ length: 12 }, (_, i) => `a${i}`),
          events: 50,
          onCommitted: () => Promise.resolve(),
        })
        await eventually(() => seen() > before)
      }
      broker.server.faults.clear()
    }
    await eventually(async () => expect(await fixture.dispatch()).toEqual([]))
    const owner = { db, schema: fixture.outbox.tables.schema, log: 'recorded' } as const
    const committed = await readHistory({ owner })
    const events = committed.filter(({ op }) => op === 'commit').length
    await eventually(() => expect(seen()).toBe(events))
    expect(checkHistory([...arrived, ...committed]).violations).toEqual([])
    expect(events).toBeGreaterThanOrEqual(150 * badDays.length)
  } finally {
    stop.abort()
    await relaying
    await receiver.close(AbortSignal.timeout(5_000))
    await publisher.close()
    await broker.close()
  }
}, 180_000)
