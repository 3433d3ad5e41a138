import { expect, onTestFinished, test } from 'vitest'
import { outboxFixture, type OutboxFixture } from '../../../test/setup/outbox-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { systemClock } from '../../core/service/clock.ts'
import { WaybillError } from '../../core/errors.ts'
import type { Database } from '../../postgres/query/database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { createLaneLeases } from '../../postgres/lanes/lane-leases.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { createFakeClock, type FakeClock } from '../../testing/kit/fake-clock.ts'
import { memory } from '../../transport/memory/memory.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

/** The pass, and the three loops beside it. */
const loops = 4

interface World {
  readonly fixture: OutboxFixture
  readonly clock: FakeClock
  /** Lets so much time go by, in small steps, each until everybody rests again. */
  pass(ms: number): Promise<void>
}

/** A relay that runs while its broker is out of reach. The first statement with `broken` in its text fails. */
async function outageOf(broken?: string): Promise<World> {
  const fixture = await outboxFixture(db)
  const [broker, clock] = [memory(), createFakeClock()]
  let underWay = 0
  const query: Database['query'] = async (text, values) => {
    if (broken !== undefined && text.includes(broken)) {
      broken = undefined
      throw new WaybillError('UNAVAILABLE', 'The connection broke.')
    }
    underWay += 1
    return await db.query(text, values).finally(() => (underWay -= 1))
  }
  const random = { next: () => 0.5, fill: (bytes: Uint8Array) => bytes }
  const relay = fixture.relay(broker, { db: { ...db, query }, clock, random })
  broker.setOutage('refuse')
  await fixture.publish('a', 'one')
  const stopping = new AbortController()
  const running = relay.run({ stopping: stopping.signal, aborting: new AbortController().signal })
  onTestFinished(async () => {
    stopping.abort()
    await running
  })
  const rest = (): Promise<true> => eventually(() => underWay === 0 && clock.sleepers() === loops, { intervalMs: 1 })
  const pass = async (ms: number): Promise<void> => {
    await rest()
    for (let passed = 0; passed < ms; passed += 500) {
      await clock.advance(500)
      await rest()
      relay.nudge()
      await rest()
    }
  }
  return { fixture, clock, pass }
}

test('in an outage what waits is counted at every probe, however often commits wake the relay', async () => {
  const { fixture, clock, pass } = await outageOf()
  const agesMs: number[] = []
  let countedAt = 0
  fixture.signals.on('relay.backlog', () => void (countedAt = clock.monotonicMs()))
  fixture.signals.on('lanes.released', () => agesMs.push(clock.monotonicMs() - countedAt))
  await pass(120_000)
  expect(agesMs.length).toBeGreaterThan(3)
  expect(Math.max(...agesMs)).toBeLessThan(5_000)
})

/** It waits for the next probe then, and has not given up yet. */
const waitingMs = 13_000
/** Until it has given up, and not as far as that probe. */
const yieldedMs = 18_000

test('a relay that could not give its lanes back leaves them to the others when their leases end', async () => {
  const { fixture, pass } = await outageOf('set lock_token = null')
  const released: number[] = []
  fixture.signals.on('lanes.released', ({ lanes }) => released.push(...lanes))
  const { tables } = fixture.outbox
  const leases = { db, tables, clock: systemClock, signals: fixture.signals, leaseMs: 60_000, renewMs: 15_000 }
  const healthy = createLaneLeases({ ...leases, worker: 'healthy' })
  await pass(yieldedMs)
  expect(released).toEqual([])
  await db.query(`update ${tables.lane.quoted} set lock_expires_at = clock_timestamp()`)
  await healthy.rebalance()
  expect(healthy.held()).toHaveLength(64)
})

test('a relay that has lost all of its lanes leaves as well, so that its share is not kept for it', async () => {
  const { fixture, pass } = await outageOf()
  const { lane, worker } = fixture.outbox.tables
  const workers = async (): Promise<unknown> => (await db.query(`select count(*)::int as n from ${worker.quoted}`)).rows
  await pass(waitingMs)
  await db.query(
    `update ${lane.quoted} set lock_token = gen_random_uuid(), locked_by = 'other', lock_expires_at = clock_timestamp() + interval '1 hour'`,
  )
  expect(await workers()).toEqual([{ n: 1 }])
  await pass(yieldedMs - waitingMs)
  expect(await workers()).toEqual([{ n: 0 }])
})
