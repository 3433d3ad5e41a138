import pg from 'pg'
import { expect, onTestFinished, test } from 'vitest'
import { gate, opened, untilBlocked } from '../../../test/outbox/world.ts'
import { outboxFixture, type OutboxFixture } from '../../../test/setup/outbox-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { systemClock, type Clock } from '../../core/service/clock.ts'
import { createFakeClock } from '../../testing/kit/fake-clock.ts'
import { one, type Database } from '../query/database.ts'
import { fromPg } from '../adapters/from-pg.ts'
import { createLaneLeases, type LaneLeases } from './lane-leases.ts'
import { heartbeat } from './lanes.sql.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

function worker(
  { outbox: { tables }, signals }: OutboxFixture,
  name: string,
  { leaseMs = 60_000, clock = systemClock }: { readonly leaseMs?: number; readonly clock?: Clock } = {},
): LaneLeases {
  return createLaneLeases({ db, tables, worker: name, leaseMs, renewMs: leaseMs / 4, clock, signals })
}

async function useLanes({ outbox: { tables } }: OutboxFixture, lanes: number): Promise<void> {
  await db.query(`select ${tables.changeLanes.quoted}($1)`, [lanes])
}

async function count(fixture: OutboxFixture, where: string): Promise<number> {
  const { rows } = await db.query(`select count(*)::int as lanes from ${fixture.outbox.tables.lane.quoted} where ${where}`)
  return (rows[0] as { lanes: number }).lanes
}

test('workers that come and go share the lanes evenly, newcomers included', async () => {
  const fixture = await outboxFixture(db)
  await useLanes(fixture, 16)
  const team = ['a', 'b', 'c', 'd'].map((name) => worker(fixture, name))
  const settle = async (): Promise<number[]> => {
    for (let round = 0; round < 3; round += 1) for (const each of team) await each.rebalance()
    return team.map((each) => each.held().length)
  }
  expect(await settle()).toEqual([4, 4, 4, 4])
  team.push(worker(fixture, 'e'))
  expect(await settle()).toEqual([4, 3, 3, 3, 3])
  await team.shift()?.release({ leave: true })
  expect(await settle()).toEqual([4, 4, 4, 4])
  expect(await count(fixture, 'lock_token is null')).toBe(0)
  const lanes = team.flatMap((each) => each.held().map(({ lane }) => lane))
  expect(new Set(lanes).size).toBe(16)
})

test('the lanes of a worker that fell silent are taken when its leases end, with other tokens', async () => {
  const fixture = await outboxFixture(db)
  const silent = worker(fixture, 'silent')
  await silent.rebalance()
  const before = new Map(silent.held().map(({ lane, token }) => [lane, token]))
  const heir = worker(fixture, 'heir')
  await db.query(`update ${fixture.outbox.tables.worker.quoted} set seen_at = seen_at - interval '2 minutes'`)
  await heir.rebalance()
  expect(heir.held()).toEqual([])
  await db.query(`update ${fixture.outbox.tables.lane.quoted} set lock_expires_at = clock_timestamp()`)
  await heir.rebalance()
  expect(heir.held()).toHaveLength(64)
  expect(heir.held().some(({ lane, token }) => before.get(lane) === token)).toBe(false)
  await silent.renew(undefined)
  expect(silent.held()).toEqual([])
  // What it has in hand belongs to others now, however fresh the answer is.
  expect(silent.mayWork()).toBe(false)
  await heir.release({ leave: true })
  await silent.rebalance()
  expect([silent.held().length, silent.mayWork()]).toEqual([64, true])
})

test('after the clock stepped back, leases and heartbeats from the future hold nobody up', async () => {
  const fixture = await outboxFixture(db)
  const { tables } = fixture.outbox
  const dead = worker(fixture, 'dead')
  await dead.rebalance()
  // However long ago a lane was taken, its lease is as long as the last renewal made it.
  await db.query(`update ${tables.lane.quoted} set locked_at = locked_at - interval '1 day'`)
  await dead.renew(undefined)
  // What a clock that steps back by an hour makes of them.
  await db.query(
    `update ${tables.lane.quoted} set locked_at = locked_at + interval '1 hour', lock_expires_at = lock_expires_at + interval '1 hour'`,
  )
  await db.query(`update ${tables.worker.quoted} set seen_at = seen_at + interval '1 hour'`)
  const heir = worker(fixture, 'heir')
  await heir.rebalance()
  expect(heir.held()).toHaveLength(64)
})

test('a worker whose own lease is short takes nothing from one that lives by a longer one', async () => {
  const fixture = await outboxFixture(db)
  const { tables } = fixture.outbox
  const long = worker(fixture, 'long', { leaseMs: 30_000 })
  await long.rebalance()
  await long.renew(undefined)
  await db.query(`update ${tables.worker.quoted} set seen_at = seen_at - interval '5 seconds'`)
  const short = worker(fixture, 'short', { leaseMs: 1_000 })
  await short.rebalance()
  expect(short.held()).toEqual([])
  const workers = async (): Promise<number> => (await one(db, heartbeat(tables, 'short', 1_000))).workers
  expect(await workers()).toBe(2)
  await db.query(`update ${tables.lane.quoted} set lock_expires_at = clock_timestamp()`)
  expect(await workers()).toBe(1)
  await short.rebalance()
  expect(short.held()).toHaveLength(64)
})

test.each([0, 7])('lane %i, whose row an idle transaction holds, is given up alone; the others go on', async (held) => {
  const fixture = await outboxFixture(db)
  const { lane } = fixture.outbox.tables
  const lost: number[] = []
  fixture.signals.on('lanes.lost', ({ lanes }) => lost.push(...lanes))
  const clock = createFakeClock()
  const busy = worker(fixture, 'busy', { leaseMs: 2_000, clock })
  await busy.rebalance()
  await clock.advance(1_500)
  const idle = await opened(db, (tx) => tx.query(`select from ${lane.quoted} where lane = $1 for update`, [held]))
  onTestFinished(idle.commit)
  await busy.renew(undefined)
  expect(lost).toEqual([held])
  expect(busy.held()).toHaveLength(63)
  await clock.advance(1_500)
  expect(busy.mayWork()).toBe(true)
  await busy.rebalance()
  expect(busy.held()).toHaveLength(63)
  await busy.release({ leave: false })
  await idle.commit()
  await db.query(`update ${lane.quoted} set lock_expires_at = clock_timestamp() where lane = $1`, [held])
  await busy.rebalance()
  expect(busy.held()).toHaveLength(64)
})

test('a renewal that failed, and is rolled back only after we were told, costs no lane that nobody else holds', async () => {
  const { outbox, signals } = await outboxFixture(db)
  const { tables } = outbox
  const lost: number[] = []
  signals.on('lanes.lost', ({ lanes }) => lost.push(...lanes))
  const locking = async (where: string): Promise<{ commit(): Promise<void> }> => {
    const locked = await opened(db, (tx) => tx.query(`select from ${tables.lane.quoted} where ${where} for update`))
    onTestFinished(locked.commit)
    return locked
  }
  let failed: { commit(): Promise<void> } | undefined
  // As of a server that takes its time between the error and the rollback: the rows before the one that was waited for stay locked.
  const late: Database = {
    ...db,
    query: async (text, values) => {
      const answer = db.query(text, values)
      if (failed !== undefined) {
        await untilBlocked(db, answer)
        await failed.commit()
      }
      return await answer.catch(async (error: unknown) => {
        failed ??= await locking('lane < 7')
        throw error
      })
    },
  }
  const options = { tables, worker: 'w', leaseMs: 400, renewMs: 100, clock: createFakeClock(), signals }
  const busy = createLaneLeases({ db: late, ...options })
  await busy.rebalance()
  await locking('lane = 7')
  await busy.renew(undefined)
  expect(lost).toEqual([7])
})

test('renewing waits for a confirmation that has the lane locked, and loses nothing', async () => {
  const fixture = await outboxFixture(db)
  const busy = worker(fixture, 'busy')
  await busy.rebalance()
  const confirming = await opened(db, (tx) => tx.query(`select from ${fixture.outbox.tables.lane.quoted} for share`))
  const renewal = busy.renew({ from: '1', to: '2' })
  await untilBlocked(db, renewal)
  await confirming.commit()
  await renewal
  expect(busy.held()).toHaveLength(64)
  expect(await count(fixture, 'batch_from = 1 and batch_to = 2')).toBe(64)
})

test('the late answer of a renewal loses no lane that was taken again meanwhile', async () => {
  const { outbox, signals } = await outboxFixture(db)
  const lost: number[] = []
  signals.on('lanes.lost', ({ lanes }) => lost.push(...lanes))
  const late = gate()
  let isLate = false
  const slow: Database = {
    ...db,
    query: async (text, values) => {
      const isHeldUp = isLate
      isLate = false
      if (isHeldUp) await late.passed
      return await db.query(text, values)
    },
  }
  const options = { db: slow, tables: outbox.tables, worker: 'w', leaseMs: 60_000, renewMs: 15_000, clock: systemClock, signals }
  const busy = createLaneLeases(options)
  await busy.rebalance()
  const before = busy.held()
  isLate = true
  const renewal = busy.renew(undefined)
  await busy.release({ leave: false })
  await busy.rebalance()
  const after = busy.held()
  late.open()
  await renewal
  expect(lost).toEqual([])
  expect(busy.held()).toEqual(after)
  expect(after.some(({ token }) => token === before[0]?.token)).toBe(false)
  busy.lose(before)
  expect(busy.held()).toEqual(after)
  busy.lose(after)
  expect(busy.held()).toEqual([])
})

test('renewals keep the heartbeat of a worker fresh, with and without lanes, until it leaves', async () => {
  const fixture = await outboxFixture(db)
  const { tables } = fixture.outbox
  await useLanes(fixture, 1)
  const clock = createFakeClock()
  const times = { leaseMs: 60_000, renewMs: 15_000, clock, signals: fixture.signals }
  const team = ['a', 'b'].map((name) => createLaneLeases({ db, tables, worker: name, ...times }))
  for (const each of team) await each.rebalance()
  expect(team.map((each) => each.held().length)).toEqual([1, 0])
  const fresh = async (): Promise<string[]> => {
    const { rows } = await db.query(
      `select worker from ${tables.worker.quoted} where seen_at > clock_timestamp() - interval '1 minute' order by 1`,
    )
    return (rows as { worker: string }[]).map(({ worker: name }) => name)
  }
  await db.query(`update ${tables.worker.quoted} set seen_at = seen_at - interval '5 minutes'`)
  for (const each of team) await each.renew(undefined)
  expect(await fresh()).toEqual([])
  await clock.advance(15_000)
  for (const each of team) await each.renew(undefined)
  expect(await fresh()).toEqual(['a', 'b'])
  await team[1]?.release({ leave: true })
  await clock.advance(15_000)
  for (const each of team) await each.renew(undefined)
  expect(await fresh()).toEqual(['a'])
})

test('waiting for a lane sets nothing that outlives the statement', async () => {
  const { outbox, signals } = await outboxFixture(db)
  const pool = new pg.Pool({ connectionString: database.url, max: 1 })
  const only = fromPg(pool)
  const shown = (): Promise<unknown> => only.query('show lock_timeout').then(({ rows }) => rows)
  const before = await shown()
  const options = { db: only, tables: outbox.tables, worker: 'w', leaseMs: 60_000, renewMs: 15_000, clock: systemClock, signals }
  const busy = createLaneLeases(options)
  await busy.rebalance()
  await busy.renew(undefined)
  await busy.release({ leave: true })
  expect(await shown()).toEqual(before)
  await pool.end()
})
