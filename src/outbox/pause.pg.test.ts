import { expect, test } from 'vitest'
import { firstOccurrences, log, outboxFixture } from '../../test/setup/outbox-fixture.ts'
import { testDatabase } from '../../test/setup/test-database.ts'
import { fromPg } from '../postgres/from-pg.ts'
import { one } from '../postgres/database.ts'
import { memory } from '../transport/memory.ts'
import { settleDispatch } from './dispatch.sql.ts'
import { listPauses, pauseOutbox, resumeOutbox } from './pause.ts'
import { pausedError } from './relay-plan.ts'

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
  expect(await resumeOutbox({ db, outbox, actor, aggregateType: 'video' })).toBe(30)
  expect(await relay(broker).once()).toBe(90)
  for (const id of ids) expect(firstOccurrences(broker, id)).toEqual([1, 2, 3])
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
