/** How long others wait for a swap. */
import { expect, test } from 'vitest'
import { rebuildWorld } from '../../../test/setup/rebuild-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { markTx, type Database, type Queryable, type QueryResult } from '../../postgres/query/database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { eventually } from '../../testing/kit/eventually.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

/** A database in whose transactions some statements are answered by `answer`, and what a setting in milliseconds was at each of them. */
function intercepted(
  setting: string,
  isIt: (text: string) => boolean,
  answer: (tx: Queryable, ...query: Parameters<Queryable['query']>) => Promise<QueryResult>,
): { readonly slow: Database; readonly limits: readonly number[] } {
  const limits: number[] = []
  const slow: Database = {
    query: (text, values) => db.query(text, values),
    attempt: (options, work) =>
      db.attempt(options, (tx) => {
        const query: Queryable['query'] = async (text, values) => {
          if (!isIt(text)) return await tx.query(text, values)
          const { rows } = await tx.query(`select setting::int as most from pg_settings where name = '${setting}'`)
          limits.push((rows[0] as { most: number }).most)
          return await answer(tx, text, values)
        }
        return work(markTx({ native: tx.native, query }))
      }),
  }
  return { slow, limits }
}

test.each([0, 0.4, -1, Number.NaN])('a swap that might wait for %s ms is refused before any work is done', async (swapWaitMs) => {
  const w = await rebuildWorld(db)
  await expect(w.rebuild({ from: 'outbox', swap: true, swapWaitMs })).rejects.toMatchObject({
    code: 'INVALID_OPTION',
    message: expect.stringContaining('rebuild.swapWaitMs: must be a whole number from 1') as string,
  })
  expect(await w.count('operation')).toBe(0)
  await w.end()
})

test('writers do not wait longer for the comparison of the tables than for the swap', async () => {
  const isComparison = (text: string): boolean => text.endsWith(' as uncovered')
  const { slow, limits } = intercepted('statement_timeout', isComparison, async (tx) => {
    // As if the tables were so large that the time is up before they are compared.
    await tx.query('set local statement_timeout = 1')
    return await tx.query('select 0 as count from pg_sleep(600)')
  })
  const w = await rebuildWorld(slow)
  await w.write('a')
  await w.settle()
  // Less than a statement may take otherwise.
  await expect(w.rebuild({ from: 'outbox', swap: true, swapWaitMs: 20_000 })).rejects.toMatchObject({
    code: 'TIMEOUT',
    message: expect.stringContaining('could not be compared while writers waited') as string,
  })
  await w.end()
  expect(limits).toHaveLength(1)
  expect(limits[0]).toBeLessThanOrEqual(20_000)
})

test('readers do not wait for one that has the table open, however long writers may', async () => {
  const isRename = (text: string): boolean => text.includes(' rename to ')
  const { slow, limits } = intercepted('lock_timeout', isRename, async (tx, text, values) => {
    // As if that time were over.
    await tx.query('set local lock_timeout = 1')
    return await tx.query(text, values)
  })
  const w = await rebuildWorld(slow)
  await w.write('a')
  await w.settle()
  await w.rebuild({ from: 'outbox' })
  await transaction(db, async (reader) => {
    await reader.query(`select from ${w.schema}.video_view`)
    await expect(w.rebuild({ swap: true, swapWaitMs: 60_000 })).rejects.toMatchObject({
      code: 'TIMEOUT',
      message: expect.stringContaining('still open') as string,
    })
  })
  expect(limits).toEqual([3_000])
  await w.end()
})

test('a swap and a reader of a view do not wait crosswise', async () => {
  const isRename = (text: string): boolean => text.includes(' rename to ')
  const { slow } = intercepted('lock_timeout', isRename, async (tx, text, values) => {
    // Longer than this test takes.
    await tx.query('set local lock_timeout = 600000')
    return await tx.query(text, values)
  })
  const w = await rebuildWorld(slow)
  const waiting = (where: string): Promise<unknown> =>
    eventually(async () =>
      expect(await w.query(`select from pg_locks where not granted and relation::regclass::text ${where}`)).toHaveLength(1),
    )
  await w.query(`create view $schema.shown as select * from $schema.video_view`)
  await w.write('a')
  await w.settle()
  await w.rebuild({ from: 'outbox' })
  let swapping: Promise<unknown> | undefined
  let reading: Promise<unknown> | undefined
  await transaction(db, async (reader) => {
    await reader.query(`select from ${w.schema}.video_view`)
    swapping = w.rebuild({ swap: true })
    await waiting(`= '${w.schema}.video_view' and mode = 'AccessExclusiveLock'`)
    reading = db.query(`select from ${w.schema}.shown`)
    await waiting(`in ('${w.schema}.video_view', '${w.schema}.shown') and mode = 'AccessShareLock'`)
  })
  expect(await swapping).toMatchObject({ swapped: true })
  expect(await reading).toMatchObject({ rowCount: 1 })
  await w.end()
})
