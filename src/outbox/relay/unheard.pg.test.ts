import { expect, test } from 'vitest'
import { gate } from '../../../test/outbox/world.ts'
import { log, outboxFixture, videos, type OutboxFixture } from '../../../test/setup/outbox-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { defaults } from '../../core/defaults.ts'
import type { Database } from '../../postgres/query/database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { createFakeClock, type FakeClock } from '../../testing/kit/fake-clock.ts'
import { memory, type MemoryTransport } from '../../transport/memory/memory.ts'
import { pauseOutbox } from '../operate/pause.ts'
import type { Relay } from './relay.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

/** A batch, a lease, and the time that an answer may take. */
const longestMs = 40_000
const read = 'outbox_read"('

interface World {
  readonly fixture: OutboxFixture
  readonly broker: MemoryTransport
  readonly clock: FakeClock
  readonly relay: Relay
  /** The statement that is held up has gone out. */
  readonly asked: Promise<void>
  /** How many such statements went out. */
  count(): number
  /** Lets time go by, whenever nothing else is under way, until this is so. */
  inTime(check: () => Promise<void> | void): Promise<void>
  /** Runs the relay until `stop`, which resolves when it has ended. */
  start(): { stop(): Promise<void> }
}

/** A relay whose nth statement with this in its text is answered after `until` only: never, as on a connection that is dead. */
async function worldOf(part: string, { nth = 1, until = new Promise<void>(() => undefined) } = {}): Promise<World> {
  const fixture = await outboxFixture(db)
  const [broker, clock, asked] = [memory(), createFakeClock(), gate()]
  let count = 0
  let underWay = 0
  const query: Database['query'] = async (text, values) => {
    if (text.includes(part) && (count += 1) === nth) {
      asked.open()
      await until
    }
    underWay += 1
    return await db.query(text, values).finally(() => (underWay -= 1))
  }
  const relay = fixture.relay(broker, { db: { ...db, query }, clock })
  return {
    fixture,
    broker,
    clock,
    relay,
    asked: asked.passed,
    count: () => count,
    inTime: (check) =>
      eventually(async () => {
        if (underWay === 0) await clock.advance(100)
        await check()
      }),
    start: () => {
      const stopping = new AbortController()
      const running = relay.run({ stopping: stopping.signal, aborting: new AbortController().signal })
      const stop = async (): Promise<void> => {
        stopping.abort()
        await running
      }
      return { stop }
    },
  }
}

test.each([
  ['what is due', read],
  ['its share', '"outbox_relay" ('],
  ['lanes', 'batch_from = null'],
  ['the removal of what went out', 'delete from'],
])('a relay that asks for %s on a dead connection asks again and publishes', async (_, part) => {
  const { fixture, broker, clock, asked, inTime, start } = await worldOf(part)
  await fixture.publish('a', 'one')
  const { stop } = start()
  await asked
  await clock.advance(longestMs)
  await inTime(async () => expect(await fixture.dispatch()).toEqual([]))
  expect(new Set(log(broker))).toEqual(new Set(['a 1']))
  await stop()
})

test('a pause is heard although the connection that pauses were asked for on is dead', async () => {
  // The first two looks are those of the first pass and of the loop beside it; from then on it is the loop's business.
  const { fixture, broker, clock, count, inTime, start } = await worldOf('select aggregate_type, aggregate_id from', { nth: 3 })
  const { stop } = start()
  await inTime(() => expect(count()).toBe(3))
  await pauseOutbox({ db, outbox: fixture.outbox, aggregateType: videos.aggregateType, actor: 'ada' })
  await clock.advance(longestMs)
  // The fourth has been answered when the fifth is asked.
  await inTime(() => expect(count()).toBeGreaterThan(4))
  await fixture.publish('a', 'one')
  await inTime(async () => expect(await fixture.dispatch()).toMatchObject([{ last_error: expect.stringContaining('paused') }]))
  expect(log(broker)).toEqual([])
  await stop()
})

test('a relay whose read is never answered stops', async () => {
  const { fixture, clock, asked, start } = await worldOf(read)
  await fixture.publish('a', 'one')
  const { stop } = start()
  await asked
  const stopped = stop()
  await clock.advance(longestMs)
  await stopped
})

test.each([read, '."migration"'])('a relay that drains says why it could not, without an answer to %s', async (part) => {
  const { fixture, clock, asked, relay } = await worldOf(part)
  await fixture.publish('a', 'one')
  const drained = relay.once().catch((error: unknown) => error)
  await asked
  await clock.advance(longestMs)
  expect(await drained).toMatchObject({ code: 'UNAVAILABLE' })
})

test('a statement that takes as long as a batch may is waited for', async () => {
  const late = gate()
  const { fixture, broker, clock, asked, inTime, relay } = await worldOf(read, { until: late.passed })
  await fixture.publish('a', 'one')
  const drained = relay.once()
  await asked
  await clock.advance(defaults.relay.batchTimeoutMs)
  late.open()
  await inTime(() => expect(log(broker)).toEqual(['a 1']))
  expect(await drained).toBe(1)
})
