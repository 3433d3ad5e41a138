import { describe, expect, test } from 'vitest'
import { useOneLane } from '../../../test/outbox/relay-by-hand.ts'
import { outboxFixture, type OutboxFixture } from '../../../test/setup/outbox-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { one, rows, type Tx } from '../../postgres/query/database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { countDue, countFailed } from '../tables/backfill.sql.ts'
import { readBacklog } from '../tables/backlog.sql.ts'
import {
  confirmDispatch,
  readDispatch,
  settleDispatch,
  wakeTopics,
  type RowIdentity,
  type Settlement,
} from '../tables/dispatch.sql.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
const token = '00000000-0000-4000-8000-000000000001'
const mine = [{ lane: 0, token }]
const keep = { receipts: true, events: true }

/** One lane that is ours, in which a hundred events are due. Statistics stay as they are made here: of empty tables. */
async function emptyLane(): Promise<OutboxFixture> {
  const fixture = await outboxFixture(db)
  const { dispatch, lane } = fixture.outbox.tables
  await useOneLane(fixture)
  await db.query(`alter table ${dispatch.quoted} set (autovacuum_enabled = off)`)
  // Pages without rows: of a table that never had any the planner would assume some.
  await db.query(
    `insert into ${dispatch.quoted} (lane, state, key, event_id) select 0, 0, n, gen_random_uuid() from generate_series(1, 500) n`,
  )
  await db.query(`delete from ${dispatch.quoted}`)
  await db.query(`analyze ${dispatch.quoted}`)
  await db.query(`update ${lane.quoted} set lock_token = '${token}', lock_expires_at = clock_timestamp() + interval '1 hour'`)
  return fixture
}

interface Cost {
  /** Of the table. */
  readonly rows: number
  /** Of its indexes: who walks one and throws away what it meets reads no row. */
  readonly blocks: number
}

/** Due, and further back than this pass looks. */
const backlog = 20_000

/** Key 1: parked, with 30,000 held behind it. 20,000 other keys whose heads wait. Key 2: three held. A hundred are due, and a backlog behind them. */
async function burden({ outbox, fill }: OutboxFixture): Promise<void> {
  const insert = `insert into ${outbox.tables.dispatch.quoted} (lane, state, key, event_id, next_retry_at)`
  await db.query(`${insert} values (0, 3, 1, gen_random_uuid(), null)`)
  await db.query(`${insert} select 0, 2, 1, gen_random_uuid(), null from generate_series(1, 30000)`)
  await db.query(
    `${insert} select 0, 1, 1000 + n, gen_random_uuid(), clock_timestamp() + interval '1 hour' from generate_series(1, 20000) n`,
  )
  await db.query(`${insert} values (0, 1, 2, gen_random_uuid(), clock_timestamp())`)
  await db.query(`${insert} select 0, 2, 2, gen_random_uuid(), null from generate_series(1, 3)`)
  await fill(
    Array.from({ length: 100 }, (_, nth) => `v${nth}`),
    1,
  )
  await db.query(`${insert} select 0, 0, 100000 + n, gen_random_uuid(), null from generate_series(1, ${backlog}) n`)
}

/** What the statements of `work` read of the dispatch table, and what it returned. */
async function looked<Result>(tx: Tx, { outbox }: OutboxFixture, work: () => Promise<Result>): Promise<[Cost, Result]> {
  const count = async (): Promise<Cost> => {
    const { rows: found } = await tx.query(
      `select (seq_tup_read + coalesce(idx_tup_fetch, 0))::int as rows,
              (select sum(pg_stat_get_xact_blocks_fetched(i.indexrelid))::int from pg_index i where i.indrelid = t.relid) as blocks
         from pg_stat_xact_user_tables t where relid = $1::text::regclass`,
      [outbox.tables.dispatch.quoted],
    )
    return found[0] as Cost
  }
  const before = await count()
  const result = await work()
  const after = await count()
  return [{ rows: after.rows - before.rows, blocks: after.blocks - before.blocks }, result]
}

async function find(tx: Tx, { outbox }: OutboxFixture, where: string): Promise<RowIdentity[]> {
  const { rows: found } = await tx.query(
    `select lane, seq::text, event_id::text as "eventId" from ${outbox.tables.dispatch.quoted} where ${where} order by seq`,
  )
  return found as RowIdentity[]
}

/** One of each statement, as a relay sends them, and what each read. */
async function costs(
  tx: Tx,
  fixture: OutboxFixture,
): Promise<Record<'read' | 'settle' | 'confirm' | 'wake' | 'count' | 'due' | 'failed', Cost>> {
  const { tables } = fixture.outbox
  const due = await find(tx, fixture, 'state = 0')
  const [head] = await find(tx, fixture, 'state = 1 and key = 2')
  const [read, found] = await looked(tx, fixture, () =>
    rows(tx, readDispatch(tables, [{ lane: 0, token, window: 50 }], { heads: 4, chain: 16, bytes: 1_000_000 })),
  )
  // Fifty of the window, and the head of key 2 with its chain.
  expect(found.map(({ state }) => state).toSorted((a, b) => a - b)).toEqual([...Array.from({ length: 50 }, () => 0), 1, 2, 2, 2])
  const settlement: Settlement = {
    confirmed: [{ ...(head as RowIdentity), messageId: 'm' }],
    stopped: [{ ...(due[0] as RowIdentity), park: false, void: false, charge: 1, delayMs: 1_000, error: 'refused' }],
    hold: [{ lane: 0, depth: 50 }],
  }
  const [settle] = await looked(tx, fixture, () => one(tx, settleDispatch(tables, 'r', mine, settlement, keep)))
  expect(await find(tx, fixture, 'state = 1 and key = 2')).toHaveLength(1)
  const confirmed = due.slice(1, 51).map((row) => ({ ...row, messageId: 'm' }))
  const [confirm] = await looked(tx, fixture, () => one(tx, confirmDispatch(tables, 'r', mine, confirmed, keep)))
  expect(await find(tx, fixture, 'state = 0')).toHaveLength(backlog + 49)
  const topics = Array.from({ length: 50 }, (_, nth) => `topic ${nth}`)
  const [wake] = await looked(tx, fixture, () => one(tx, wakeTopics(tables, topics, 600_000)))
  const [count, backlogged] = await looked(tx, fixture, () => one(tx, readBacklog(tables, 20)))
  expect(backlogged).toMatchObject({ due: 20, retrying: 20, held: 20, parked: 1 })
  const [dueCost, counted] = await looked(tx, fixture, () => one(tx, countDue(tables, 20)))
  const [failed, refused] = await looked(tx, fixture, () => one(tx, countFailed(tables, 'video', 20)))
  // Of the heads the one that was stopped here has an event, and is the newest.
  expect({ ...counted, ...refused }).toEqual({ due: 20, failed: 1 })
  return { read, settle, confirm, wake, count, due: dueCost, failed }
}

describe('a key with 30,000 held rows, 20,000 keys that wait and a backlog cost a pass nothing', () => {
  // Fifty rows are read, settled and confirmed, each with a look or two around it.
  const expectCheap = (found: Readonly<Record<string, Cost>>): void => {
    expect(Object.entries(found).filter(([, { rows: read, blocks }]) => Math.max(read, blocks) > 400)).toEqual([])
  }
  const settings: Readonly<Record<string, readonly string[]>> = {
    'as the planner likes': [],
    'without hash and merge joins': ['hashjoin', 'mergejoin'],
    'without nested loops': ['nestloop'],
    'without bitmap scans': ['bitmapscan'],
    'without sorts': ['sort', 'incremental_sort'],
  }
  test.each(Object.entries(settings))('with statistics from an empty table, %s', async (_, features) => {
    const fixture = await emptyLane()
    await burden(fixture)
    const found = await transaction(db, async (tx) => {
      for (const feature of features) await tx.query(`set local enable_${feature} = off`)
      return await costs(tx, fixture)
    })
    expectCheap(found)
  })

  test('with fresh statistics', async () => {
    const fixture = await emptyLane()
    await burden(fixture)
    await db.query(`analyze ${fixture.outbox.tables.dispatch.quoted}`)
    expectCheap(await transaction(db, (tx) => costs(tx, fixture)))
  })

  test('with plans that the session made when there was nothing', async () => {
    const fixture = await emptyLane()
    const identity = { lane: 0, seq: '1', eventId: token }
    const some: Settlement = {
      confirmed: [{ ...identity, messageId: 'm' }],
      stopped: [{ ...identity, park: false, void: false, charge: 1, delayMs: 1, error: '' }],
      hold: [{ lane: 0, depth: 50 }],
    }
    const found = await transaction(db, async (tx) => {
      for (let time = 0; time < 10; time += 1) await one(tx, settleDispatch(fixture.outbox.tables, 'r', mine, some, keep))
      await burden(fixture)
      return await costs(tx, fixture)
    })
    expectCheap(found)
  })
})

test('a backfill looks through a few of the heads that failed, however many others fill all lanes', async () => {
  const fixture = await outboxFixture(db)
  const { tables } = fixture.outbox
  await db.query(
    `insert into ${tables.dispatch.quoted} (lane, state, key, event_id, next_retry_at, publish_attempts, last_error)
     select lane, 1, lane * 1000 + n, gen_random_uuid(), clock_timestamp() + interval '1 hour', 1, 'refused'
       from ${tables.lane.quoted}, generate_series(1, 500) n`,
  )
  await transaction(db, async (tx) => {
    const [{ rows: read }, { failed }] = await looked(tx, fixture, () => one(tx, countFailed(tables, 'video', 1_001)))
    expect(failed).toBe(0)
    // Four times the limit, and a hundred for each of the 64 lanes.
    expect(read).toBeLessThan(4 * 1_001 + 64 * 110)
  })
})
