import { describe, expect, test } from 'vitest'
import type { Database } from '../postgres/query/database.ts'
import { reading, readingKey, readings } from '../../test/ingest/readings.ts'
import { createOutbox } from '../outbox/outbox.ts'
import { transaction } from '../postgres/transaction/transaction.ts'
import { fromPg } from '../postgres/adapters/from-pg.ts'
import { migrate } from '../postgres/schema/migrate.ts'
import { testDatabase } from '../../test/setup/test-database.ts'
import { fetchIngest } from '../integrations/fetch.ts'
import { eventually } from '../testing/kit/eventually.ts'
import { createIngestClient } from './ingest-client.ts'
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

describe('one key with other content through the outbox', () => {
  const open = () => createIngest({ event: readings.ReadingTaken, key: readingKey, to: { db, outbox } })
  const recorded = async (aggregateId: string): Promise<unknown> => {
    const { rows } = await db.query('select payload from waybill.outbox where aggregate_id = $1', [aggregateId])
    return rows.map((row) => JSON.parse(String((row as { payload: Buffer }).payload)) as unknown)
  }

  test('is refused, alone or among others, and the first one stays', async () => {
    expect(await open().accept(reading(40))).toMatchObject({ status: 'accepted' })
    const other = { ...reading(40), value: -1 }
    const conflict = {
      status: 'refused',
      code: 'FACT_CONFLICT',
      retryable: false,
      message: expect.stringContaining('meter-5/40'),
    }
    expect(await open().accept(other)).toMatchObject(conflict)
    const among = await open().acceptMany([reading(41), other, reading(40), reading(42)])
    expect(among).toMatchObject([{ status: 'accepted' }, conflict, expect.anything(), { status: 'accepted' }])
    expect(await recorded('meter-5/40')).toEqual([reading(40)])
  })

  test('within one batch the first is recorded; a repeat of what was recorded before is never called a conflict', async () => {
    const other = { ...reading(44), value: -1 }
    const together = await open().acceptMany([reading(44), other, reading(44)])
    expect(together).toMatchObject([{ status: 'accepted' }, { code: 'FACT_CONFLICT' }, { status: 'accepted' }])
    const behind = await open().acceptMany([other, reading(44)])
    expect(behind).toMatchObject([{ code: 'FACT_CONFLICT' }, { code: 'UNAVAILABLE', retryable: true }])
    expect(await recorded('meter-2/44')).toEqual([reading(44)])
  })

  test('of two senders at once one is accepted, and the other is told', async () => {
    const outcomes = await Promise.all([1, 2, 3, 4].map((value) => open().accept({ ...reading(45), value })))
    expect(outcomes.map((outcome) => (outcome.status === 'accepted' ? 'ok' : outcome.code)).toSorted()).toEqual([
      ...Array<string>(3).fill('FACT_CONFLICT'),
      'ok',
    ])
  })

  test('is taken for a repeat where nothing is known of the first one, as of rows that are older than the hash', async () => {
    await open().accept(reading(46))
    await db.query(
      `update waybill.outbox_source set content_hash = null where event_id = (select id from waybill.outbox where aggregate_id = 'meter-4/46')`,
    )
    expect(await open().accept({ ...reading(46), value: -1 })).toMatchObject({ status: 'accepted' })
  })

  test('is 409 over HTTP, and final for a client', async () => {
    const handler = fetchIngest(open(), { path: '/' })
    const client = createIngestClient({
      url: 'http://service',
      fetch: async (url, init) => await handler(new Request(url, init)),
    })
    await client.send(reading(47))
    await expect(client.send({ ...reading(47), value: -1 })).rejects.toMatchObject({ code: 'FACT_CONFLICT', retryable: false })
    const headers = { 'content-type': 'application/json' }
    const answer = await handler(
      new Request('http://service/', { method: 'POST', headers, body: JSON.stringify({ ...reading(47), value: -1 }) }),
    )
    expect([answer.status, await answer.json()]).toMatchObject([
      409,
      { type: 'urn:waybill:problem:fact-conflict', code: 'FACT_CONFLICT' },
    ])
  })
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
