import { expect, test } from 'vitest'
import type { Database } from '../postgres/database.ts'
import { reading, readingKey, readings } from '../../test/ingest/readings.ts'
import { createOutbox } from '../outbox/outbox.ts'
import { transaction } from '../postgres/transaction.ts'
import { fromPg } from '../postgres/from-pg.ts'
import { migrate } from '../postgres/migrate.ts'
import { testDatabase } from '../../test/setup/test-database.ts'
import { eventually } from '../testing/eventually.ts'
import { createIngest } from './ingest.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
await migrate(db, { schema: 'waybill', service: 'ingest-test' })
const outbox = createOutbox()

test('a fact that is accepted is in the outbox, under the id of its business key and at version 1', async () => {
  const ingest = createIngest({ event: readings.ReadingTaken, key: readingKey, to: { db, outbox } })
  const outcome = await ingest.accept(reading(1))
  expect(outcome).toMatchObject({ status: 'accepted' })
  const { rows } = await db.query('select id::text, event_type, aggregate_id, version::int from waybill.outbox where id = $1', [
    (outcome as { eventId: string }).eventId,
  ])
  expect(rows).toEqual([
    { id: (outcome as { eventId: string }).eventId, event_type: 'ReadingTaken', aggregate_id: 'meter-1/1', version: 1 },
  ])
})

test('the same fact sent twice through the outbox is recorded once', async () => {
  const ingest = createIngest({ event: readings.ReadingTaken, key: readingKey, to: { db, outbox } })
  const first = await ingest.accept(reading(2))
  const again = await ingest.accept(reading(2))
  expect(again).toEqual(first)
  const { rows } = await db.query('select count(*)::int as n from waybill.outbox where aggregate_id = $1', ['meter-2/2'])
  expect(rows).toEqual([{ n: 1 }])
})

test('facts sent together through the outbox are recorded together, each with its own outcome', async () => {
  const ingest = createIngest({ event: readings.ReadingTaken, key: readingKey, to: { db, outbox } })
  const outcomes = await ingest.acceptMany([reading(10), reading(11), reading(11)])
  expect(outcomes.every(({ status }) => status === 'accepted')).toBe(true)
  expect(outcomes[1]).toEqual(outcomes[2])
  const { rows } = await db.query(
    `select count(*)::int as n from waybill.outbox where aggregate_id in ('meter-3/10', 'meter-4/11')`,
  )
  expect(rows).toEqual([{ n: 2 }])
})

test('a key that another event of the stream has taken is rejected, and its neighbours are recorded', async () => {
  await transaction(db, async (tx) => await outbox.add(tx, readings.ReadingTaken, 'meter-6/20', reading(20)))
  const ingest = createIngest({ event: readings.ReadingTaken, key: readingKey, to: { db, outbox } })
  const outcomes = await ingest.acceptMany([reading(21), reading(20), reading(22)])
  expect(outcomes).toMatchObject([{ status: 'accepted' }, { status: 'refused', code: 'REJECTED' }, { status: 'accepted' }])
  const { rows } = await db.query(
    `select aggregate_id from waybill.outbox where aggregate_id in ('meter-0/21', 'meter-6/20', 'meter-1/22') order by 1`,
  )
  expect(rows).toEqual([{ aggregate_id: 'meter-0/21' }, { aggregate_id: 'meter-1/22' }, { aggregate_id: 'meter-6/20' }])
})

test('a database that is away confirms nothing, and the same fact is accepted once it is back', async () => {
  let isAway = true
  const flaky: Database = {
    query: db.query,
    attempt: async (options, work) => {
      if (isAway) throw Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' })
      return await db.attempt(options, work)
    },
  }
  const breakerBackoff = { firstMs: 1, maxMs: 1, jitter: 'none' } as const
  const ingest = createIngest({ event: readings.ReadingTaken, key: readingKey, to: { db: flaky, outbox }, breakerBackoff })
  expect(await ingest.accept(reading(30))).toMatchObject({ status: 'refused', code: 'UNAVAILABLE', retryable: true })
  isAway = false
  await eventually(async () => expect(await ingest.accept(reading(30))).toMatchObject({ status: 'accepted' }))
})
