import { describe, expect, test } from 'vitest'
import { useOneLane } from '../../../test/outbox/relay-by-hand.ts'
import { opened, untilBlocked } from '../../../test/outbox/world.ts'
import { accounts, firstOccurrences, log, outboxFixture } from '../../../test/setup/outbox-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { run } from '../../core/service/lifetime.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { one, rows, type Database } from '../../postgres/query/database.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { memory } from '../../transport/memory/memory.ts'
import { readBacklog } from '../tables/backlog.sql.ts'
import { settleDispatch } from '../tables/dispatch.sql.ts'
import { lockLanes } from '../tables/parked.sql.ts'
import { listPauses, pauseOutbox, resumeOutbox } from './pause.ts'
import { pausedError } from '../tables/pause.sql.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
const actor = 'ada'

test('a paused aggregate waits, the others go on, and resuming lets it go in order', async () => {
  const { outbox, publish, relay, states } = await outboxFixture(db)
  const broker = memory()
  await publish('a', '1', '2', '3')
  await publish('b', '1')
  expect(await pauseOutbox({ db, outbox, actor, aggregateType: 'video', aggregateId: 'a', reason: 'wrong price' })).toBe(true)
  expect(await pauseOutbox({ db, outbox, actor, aggregateType: 'video', aggregateId: 'a', reason: 'again' })).toBe(false)
  expect(await listPauses(db, outbox)).toMatchObject([
    { aggregateType: 'video', aggregateId: 'a', reason: 'wrong price', pausedBy: actor },
  ])
  await relay(broker).once()
  await publish('a', '4')
  await relay(broker).once()
  expect(log(broker)).toEqual(['b 1'])
  expect(await states()).toMatchObject({ 'a 1': 'RELEASED', 'a 4': 'HELD' })

  expect(await resumeOutbox({ db, outbox, actor, aggregateType: 'video', aggregateId: 'a' })).toBe(1)
  expect(await relay(broker).once()).toBe(4)
  expect(firstOccurrences(broker, 'a')).toEqual([1, 2, 3, 4])
  const { rows } = await db.query(`select action from ${outbox.tables.schema}.audit_log order by id`)
  expect(rows).toEqual([{ action: 'outbox.pause' }, { action: 'outbox.resume' }])
})

test('a paused stream holds back all of its aggregates', async () => {
  const { outbox, fill, relay } = await outboxFixture(db)
  const broker = memory()
  const ids = Array.from({ length: 30 }, (_, i) => `v${i}`)
  await pauseOutbox({ db, outbox, actor, aggregateType: 'video' })
  await fill(ids, 3)
  expect(await relay(broker).once()).toBe(0)
  expect(await resumeOutbox({ db, outbox, actor, aggregateType: 'account' })).toBeUndefined()
  expect(await resumeOutbox({ db, outbox, actor, aggregateType: 'video', aggregateId: 'v1' })).toBeUndefined()
  expect(await resumeOutbox({ db, outbox, actor, aggregateType: 'video' })).toBe(30)
  expect(await relay(broker).once()).toBe(90)
  for (const id of ids) expect(firstOccurrences(broker, id)).toEqual([1, 2, 3])
})

test('while everything is paused nothing goes out, also of a stream that is new; what was paused by itself stays so', async () => {
  const { outbox, publish, relay, states, dispatch } = await outboxFixture(db)
  const { tables } = outbox
  const broker = memory()
  const lag = async (): Promise<number> => (await one(db, readBacklog(tables))).oldestDueAgeMs
  const accounted = () => transaction(db, (tx) => outbox.add(tx, accounts.Deposited, 'x', { amount: 1 }))
  await publish('a', '1', '2')
  expect(await lag()).toBeGreaterThan(0)
  expect(await pauseOutbox({ db, outbox, actor, all: true, reason: 'incident' })).toBe(true)
  expect(await pauseOutbox({ db, outbox, actor, all: true })).toBe(false)
  await pauseOutbox({ db, outbox, actor, aggregateType: 'video', aggregateId: 'b' })
  expect(await listPauses(db, outbox)).toMatchObject([
    { aggregateType: undefined, aggregateId: undefined, reason: 'incident', pausedBy: actor },
    { aggregateType: 'video', aggregateId: 'b' },
  ])
  await accounted()
  await publish('b', '1')
  expect(await relay(broker).once()).toBe(0)
  expect(log(broker)).toEqual([])
  // Nothing is written either: a backlog of millions costs no more than an empty one.
  expect((await dispatch()).map((row) => row['state'])).toEqual([0, 0, 0, 0])
  expect(await lag()).toBe(0)

  expect(await resumeOutbox({ db, outbox, actor, all: true })).toBe(0)
  expect(await resumeOutbox({ db, outbox, actor, all: true })).toBeUndefined()
  expect(await relay(broker).once()).toBe(3)
  expect(firstOccurrences(broker, 'a')).toEqual([1, 2])
  expect(firstOccurrences(broker, 'x')).toEqual([1])
  expect(await states()).toMatchObject({ 'b 1': 'RELEASED' })
})

test('a relay that runs keeps its lanes while everything is paused, and goes on when it hears that it may', async () => {
  const { outbox, publish, relay, dispatch } = await outboxFixture(db)
  const broker = memory()
  await pauseOutbox({ db, outbox, actor, all: true })
  await publish('a', '1')
  const stop = new AbortController()
  const standing = relay(broker)
  const running = run([standing], { signal: stop.signal })
  const leased = `select from ${outbox.tables.lane.quoted} where lock_expires_at > clock_timestamp()`
  await eventually(async () => (await db.query(leased)).rows.length === 64)
  // A whole pass with all lanes in hand.
  const leasedAt = performance.now()
  await eventually(() => (standing.lastPassAgeMs() ?? Infinity) < performance.now() - leasedAt)
  expect(await dispatch()).toHaveLength(1)
  await resumeOutbox({ db, outbox, actor, all: true })
  await eventually(async () => (await dispatch()).length === 0)
  expect(log(broker)).toEqual(['a 1'])
  stop.abort()
  await running
})

test('a pause that names nothing, or a stream and everything, is a mistake', async () => {
  const { outbox } = await outboxFixture(db)
  const mistakes = [
    {},
    { all: false },
    { all: true, aggregateType: 'video' },
    { all: true, aggregateId: 'a' },
    { aggregateType: '' },
    { aggregateId: 'a' },
  ]
  for (const target of mistakes) {
    await expect(pauseOutbox({ db, outbox, actor, ...target })).rejects.toMatchObject({ code: 'INVALID_OPTION' })
    await expect(resumeOutbox({ db, outbox, actor, ...target })).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  }
  expect(await listPauses(db, outbox)).toEqual([])
})

test('a relay that stops a key after it was resumed, because it has not heard of it, delays it for a moment only', async () => {
  const { outbox, publish, dispatch } = await outboxFixture(db)
  await publish('a', '1')
  await pauseOutbox({ db, outbox, actor, aggregateType: 'video' })
  await resumeOutbox({ db, outbox, actor, aggregateType: 'video' })
  const [row] = await dispatch()
  const identity = { lane: Number(row?.['lane']), seq: String(row?.['seq']), eventId: String(row?.['event_id']) }
  const stopped = [{ ...identity, park: false, void: false, charge: 0, delayMs: 3_600_000, error: pausedError }]
  const settle = async (): Promise<number> => {
    const lanes = [{ lane: identity.lane, token: null }]
    await one(
      db,
      settleDispatch(outbox.tables, 'late', lanes, { confirmed: [], stopped, hold: [] }, { receipts: true, events: true }),
    )
    const { rows } = await db.query(
      `select extract(epoch from next_retry_at - clock_timestamp())::float8 as seconds from ${outbox.tables.schema}.outbox_dispatch`,
    )
    return (rows as { seconds: number }[])[0]?.seconds ?? NaN
  }
  expect(await settle()).toBeLessThan(1)
  await pauseOutbox({ db, outbox, actor, aggregateType: 'video' })
  expect(await settle()).toBeGreaterThan(3_000)
})

describe('resuming', () => {
  test('holds one lane at a time, so that relays keep the others, and what it has done stays done', async () => {
    const { outbox, fill, relay, dispatch } = await outboxFixture(db)
    const ids = Array.from({ length: 30 }, (_, i) => `v${i}`)
    await pauseOutbox({ db, outbox, actor, aggregateType: 'video' })
    await fill(ids, 1)
    await relay(memory()).once()
    const lanes = [...new Set((await dispatch()).map((row) => Number(row['lane'])))]
    const last = Math.max(...lanes)
    const holder = await opened(db, (tx) => rows(tx, lockLanes(outbox.tables, [last])))
    const resuming = resumeOutbox({ db, outbox, actor, aggregateType: 'video' })
    await untilBlocked(db, resuming)
    const free = await db.query(`select lane from ${outbox.tables.lane.quoted} order by lane for update skip locked`)
    const [pauses, heads] = [await listPauses(db, outbox), await dispatch()]
    await holder.commit()
    expect(await resuming).toBe(30)
    expect(free.rows).toHaveLength(63)
    expect(pauses).toEqual([])
    expect(heads.every((row) => row['last_error'] === (row['lane'] === last ? pausedError : null))).toBe(true)
  })

  test('goes in batches, and once more where it was interrupted', async () => {
    const fixture = await outboxFixture(db)
    const { outbox, fill, relay } = fixture
    const broker = memory()
    await useOneLane(fixture)
    const all = { outbox, actor, aggregateType: 'video' }
    await pauseOutbox({ ...all, db })
    await pauseOutbox({ ...all, db, aggregateType: 'account' })
    await fill(
      Array.from({ length: 1_201 }, (_, i) => `v${i}`),
      1,
    )
    await relay(broker).once()
    // The first transaction ends the pause, the second wakes a batch, and then the connection is gone.
    await expect(resumeOutbox({ ...all, db: brokenAfter(2) })).rejects.toThrow('gone')
    expect(await relay(broker).once()).toBe(500)
    expect(await resumeOutbox({ ...all, db, aggregateType: 'account' })).toBe(0)
    expect(await resumeOutbox({ ...all, db })).toBe(701)
    expect(await relay(broker).once()).toBe(701)
    expect(await resumeOutbox({ ...all, db })).toBeUndefined()
  })
})

/** A database that begins so many transactions and no more. */
function brokenAfter(transactions: number): Database {
  let left = transactions
  return {
    query: (text, values) => db.query(text, values),
    attempt: (options, work) => (left-- > 0 ? db.attempt(options, work) : Promise.reject(new Error('gone'))),
  }
}

test('a pause is refused while a connector publishes, which would not heed it, though the switch commits only now', async () => {
  const { outbox } = await outboxFixture(db)
  const { schema } = outbox.tables
  const switching = await opened(db, (tx) => tx.query(`select ${schema}.outbox_set_dispatching(false)`))
  const pausing = pauseOutbox({ db, outbox, actor, aggregateType: 'video' })
  pausing.catch(() => {})
  await untilBlocked(db, pausing)
  await switching.commit()
  await expect(pausing).rejects.toMatchObject({ code: 'REFUSED', message: expect.stringContaining('stop the connector') })
  expect(await listPauses(db, outbox)).toEqual([])
})
