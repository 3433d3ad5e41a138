/**
 * Tables whose rows are an aggregate's, guarded by a trigger that finds writers without the aggregate's lock.
 */
import pg from 'pg'
import { expect, test } from 'vitest'
import { outboxFixture, videos } from '../../../test/setup/outbox-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { lockAggregate } from '../../command/model/aggregate.ts'
import type { Tx } from '../../postgres/query/database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { doctorOutbox } from './outbox.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

/** A table with rows 'v1' and 'v2', which was filled before it was guarded. */
async function guarded(mode: 'report' | 'refuse') {
  const { outbox } = await outboxFixture(db)
  const { schema } = outbox.tables
  await db.query(`create table ${schema}.video_row (id text primary key, title text)`)
  await db.query(`insert into ${schema}.video_row values ('v1', 'old'), ('v2', 'old')`)
  await db.query(
    `create constraint trigger waybill_guard after insert or update or delete on ${schema}.video_row
       deferrable initially deferred for each row execute function ${schema}.guard_aggregate('video', 'id', '${mode}')`,
  )
  const write = (tx: Pick<Tx, 'query'>, id = 'v1') =>
    tx.query(`insert into ${schema}.video_row values ('${id}', 'new') on conflict (id) do update set title = 'new'`)
  return {
    schema,
    outbox,
    write,
    lock: (tx: Tx, id = 'v1') => lockAggregate(tx, { type: 'video', id }, { schema }),
    add: (tx: Tx, id = 'v1') => outbox.add(tx, videos.VideoPublished, id, { title: 'new' }),
    savepoint: async (tx: Tx, work: () => Promise<unknown>, end: 'release' | 'rollback to') => {
      await tx.query('savepoint inner_one')
      await work()
      await tx.query(`${end} inner_one`)
    },
    reports: async () =>
      (await db.query(`select aggregate_id, writes::int, role, application from ${schema}.unlocked_write order by 1`)).rows,
    titles: async () =>
      (await db.query(`select id, title from ${schema}.video_row order by 1`)).rows.map((row) =>
        Object.values(row as object).join(' '),
      ),
  }
}

test('a writer with the lock of the aggregate, or with an event of it, passes a guarded table, in whichever order', async () => {
  for (const mode of ['report', 'refuse'] as const) {
    const { lock, add, write, savepoint, reports } = await guarded(mode)
    for (const isolation of ['read committed', 'repeatable read'] as const) {
      const run = (work: (tx: Tx) => Promise<unknown>) => transaction(db, work, { isolation })
      await run(async (tx) => [await lock(tx), await write(tx)])
      await run(async (tx) => [await write(tx), await add(tx)])
      await run(async (tx) => [await lock(tx), await add(tx), await write(tx)])
      // Of an aggregate that nobody has locked before.
      await run(async (tx) => [await lock(tx, `new ${isolation}`), await write(tx, `new ${isolation}`)])
      await run(async (tx) => {
        await savepoint(tx, () => lock(tx), 'release')
        await write(tx)
      })
      await run(async (tx) => {
        await savepoint(tx, () => add(tx), 'release')
        await savepoint(tx, () => write(tx), 'release')
      })
    }
    expect(await reports()).toEqual([])
  }
})

test('a writer without the lock is refused by name at its COMMIT, and nothing of it is written', async () => {
  const { lock, add, write, savepoint, titles, schema } = await guarded('refuse')
  const said = async (work: (tx: Tx) => Promise<unknown>): Promise<string> =>
    await transaction(db, work, { retries: 0 }).then(
      () => 'committed',
      (error: unknown) => `${String(error)} ${String((error as Error).cause)}`,
    )
  for (const work of [
    (tx: Tx) => write(tx),
    (tx: Tx) => tx.query(`delete from ${schema}.video_row where id = 'v1'`),
    (tx: Tx) => tx.query(`update ${schema}.video_row set id = 'v3' where id = 'v1'`),
    // The lock of another one, and one that was given back.
    async (tx: Tx) => [await lock(tx, 'v2'), await write(tx)],
    async (tx: Tx) => [await savepoint(tx, () => lock(tx), 'rollback to'), await write(tx)],
    async (tx: Tx) => [await savepoint(tx, () => add(tx), 'rollback to'), await write(tx)],
  ])
    expect(await said(work)).toContain(`A row of ${schema}.video_row was written without the lock of its aggregate video v1`)
  expect(await titles()).toEqual(['v1 old', 'v2 old'])
})

test('the lock of somebody else is not the writer’s', async () => {
  const { lock, write, reports } = await guarded('report')
  await transaction(db, (tx) => lock(tx))
  await transaction(db, async (other) => {
    await lock(other)
    await transaction(db, (tx) => write(tx))
  })
  expect(await reports()).toMatchObject([{ aggregate_id: 'v1', writes: 1 }])
})

test('a report fails and delays nobody, and the doctor says which program wrote what', async () => {
  const { write, reports, titles, outbox, schema } = await guarded('report')
  const pool = new pg.Pool({ connectionString: database.url, application_name: 'old importer' })
  try {
    const importer = fromPg(pool)
    await transaction(importer, (tx) => write(tx))
    // Two at the same moment: the second waits for nothing, though the first has not ended.
    await transaction(importer, async (first) => {
      await write(first, 'v1')
      await first.query('set constraints all immediate')
      await transaction(importer, (second) => write(second, 'v2'))
    })
  } finally {
    await pool.end()
  }
  expect(await titles()).toEqual(['v1 new', 'v2 new'])
  expect(await reports()).toEqual([
    { aggregate_id: 'v1', writes: 2, role: expect.any(String) as string, application: 'old importer' },
  ])
  const findings = (await doctorOutbox(db, outbox)).filter(({ problem }) => problem === 'unlocked-writes')
  expect(findings).toEqual([
    {
      problem: 'unlocked-writes',
      text: expect.stringMatching(
        new RegExp(
          `^${schema}\\.video_row was written without the lock of its aggregate, 2 times or more .* by role \\w+ as "old importer", the last time video v1: `,
        ),
      ) as string,
    },
  ])
})

test.each([
  [`'video'`, /needs an aggregate type/],
  [`'video', 'id', 'ignore'`, /needs an aggregate type/],
  [`'video', 'video_id'`, /names the aggregate's id "video_id": the table has no such column/],
])('a guard with the arguments %s says what is wrong with it', async (given, says) => {
  const { schema } = (await outboxFixture(db)).outbox.tables
  await db.query(`create table ${schema}.video_row (id text primary key)`)
  await db.query(
    `create constraint trigger waybill_guard after insert on ${schema}.video_row
       deferrable initially deferred for each row execute function ${schema}.guard_aggregate(${given})`,
  )
  await expect(db.query(`insert into ${schema}.video_row values ('v1')`)).rejects.toThrow(says)
})
