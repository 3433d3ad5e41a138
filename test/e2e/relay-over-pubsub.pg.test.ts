import { expect, test } from 'vitest'
import { run } from '../../src/core/lifetime.ts'
import { seededRandom } from '../../src/core/random.ts'
import { fromPg } from '../../src/postgres/from-pg.ts'
import type { FaultName } from '../../src/pubsub-server/faults.ts'
import { eventually } from '../../src/testing/eventually.ts'
import { pubsub } from '../../src/transport/pubsub.ts'
import { factOf, violations, type Fact } from '../outbox/history.ts'
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
  const arrived: Fact[] = []
  const receiver = await broker.transport.receive({
    topic: 'video.events',
    consumer: 'catalog',
    maxMessages: 200,
    maxBytes: 10_000_000,
    onError: () => {},
    onDelivery: (delivery) => {
      arrived.push(factOf(delivery.message.attributes))
      void delivery.ack()
    },
  })
  const stop = new AbortController()
  const relays = ['one', 'two', 'three'].map((name) => fixture.relay(publisher, { name, busyMs: 2, idleMs: 20 }))
  const relaying = run(relays, { signal: stop.signal })
  try {
    const seen = (): number => new Set(arrived.map(({ id }) => id)).size
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
    await eventually(async () => expect(await fixture.dispatch()).toEqual([]), { timeoutMs: 40_000 })
    const { rows } = await db.query(
      `select id::text, aggregate_id as aggregate, version::int from ${fixture.outbox.tables.outbox.quoted} order by 2, 3`,
    )
    await eventually(() => expect(seen()).toBe(rows.length), { timeoutMs: 40_000 })
    expect(violations({ committed: rows as Fact[], arrived, left: 0 })).toEqual([])
    expect(rows.length).toBeGreaterThanOrEqual(150 * badDays.length)
  } finally {
    stop.abort()
    await relaying
    await receiver.close(AbortSignal.timeout(5_000))
    await publisher.close()
    await broker.close()
  }
}, 180_000)
