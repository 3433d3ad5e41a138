import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import postgres, { type Sql, type TransactionSql } from 'postgres'
import { afterAll, afterEach, expect, test } from 'vitest'

import { adapterContract } from '../../../test/contract/adapter-contract.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { fromPostgresJs } from './from-postgres-js.ts'
import { transaction } from '../transaction/transaction.ts'

const database = await testDatabase()
const folder = await mkdtemp(join(tmpdir(), 'waybill-postgres-js-'))
afterEach(() => database.pool.query('truncate note'))
afterAll(() => rm(folder, { recursive: true }))

adapterContract<TransactionSql>('fromPostgresJs', database, (url) => {
  const sql = postgres(url, { max: 1, prepare: false, onnotice: () => undefined })
  return {
    db: fromPostgresJs(sql),
    insertNote: (tx, id, text) => tx`insert into note values (${id}, ${text})`,
    updateNote: (tx, id, text) => tx`update note set text = ${text} where id = ${id}`,
    nativeXid: async (tx) => (await tx<{ xid: string }[]>`select pg_current_xact_id()::text as xid`)[0]!.xid,
    ownTransaction: (work) => sql.begin((tx) => work(fromPostgresJs(tx))),
    close: () => sql.end({ timeout: 0 }),
  }
})

test.each(['camel', 'pascal', 'kebab', 'toCamel'] as const)(
  'a client that renames columns with %s is refused',
  async (transform) => {
    const sql = postgres(database.url, {
      max: 1,
      prepare: false,
      transform: postgres[transform],
    })
    expect(() => fromPostgresJs(sql)).toThrow(/transforms names or values, and would rename our columns/)
    await sql.begin(async (tx) => {
      expect(() => fromPostgresJs(tx)).toThrow(/transforms names or values/)
    })
    await sql.end()
  },
)

test('the sql of a transaction works as ever while that lasts, and not after it', async () => {
  const sql = postgres(database.url, { max: 1, prepare: false })
  const [late, written] = await transaction(fromPostgresJs(sql), async ({ native }) => {
    const list = [1, 2].map((id) => ({ id, text: 'a' }))
    await native`insert into note ${native(list)}`
    const failing = native.savepoint(async (inner) => {
      await inner`insert into note values (3, 'undone')`
      throw new Error('card declined')
    })
    await expect(failing).rejects.toThrow('card declined')
    await native.savepoint('named', (inner) => [4, 5].map((id) => inner`insert into note values (${id}, ${'b'})`))
    // It is sent when it is awaited.
    return [native, native`insert into note values (6, 'late')`] as const
  })
  for (const each of [written, late`select 1`, late.unsafe('rollback'), late.savepoint(async () => undefined)])
    await expect(each).rejects.toMatchObject({ code: 'NOT_A_TRANSACTION' })
  expect((await sql`select array_agg(id order by id) as ids from note`)[0]?.['ids']).toEqual([1, 2, 4, 5])
  await sql.end()
})

test(
  'a cursor counts until it is closed, a statement from when it is sent, and a fragment never',
  { timeout: 60_000 },
  async () => {
    const sql = postgres(database.url, { max: 1, prepare: false })
    const db = fromPostgresJs(sql)
    const written = await transaction(db, async ({ native }) => {
      await native`insert into note values (1, 'kept')`
      for await (const [row] of native`select n from generate_series(1, 100) as n`.cursor(10)) if (row?.['n'] > 20) break
      const chunks: number[] = []
      await native`select n from generate_series(1, 25) as n`.cursor(10, (rows) => void chunks.push(rows.length))
      expect(chunks).toEqual([10, 10, 5])
      return [native`where true`, native`insert into note values (2, 'never sent')`]
    })
    expect(written).toHaveLength(2)
    const open = transaction(db, async ({ native }) => {
      await native`insert into note values (3, 'undone')`
      await native`select n from generate_series(1, 100) as n`.cursor(10)[Symbol.asyncIterator]().next()
    })
    await expect(open).rejects.toThrow(/while select n from generate_series\(1, 100\) as n was still under way/)
    expect(await sql`select id from note`).toEqual([{ id: 1 }])
    await sql.end()
  },
)

test('a savepoint that fails after its transaction has ended is not rolled back to', async () => {
  const sent: string[] = []
  const sql = postgres(database.url, { max: 1, prepare: false, debug: (_connection, text) => void sent.push(text) })
  const leave = Promise.withResolvers<void>()
  let late: Promise<unknown> = Promise.resolve()
  const work = transaction(fromPostgresJs(sql), async ({ native }) => {
    const entered = Promise.withResolvers<void>()
    late = native.savepoint(async (inner) => {
      entered.resolve()
      await leave.promise
      await inner`select 1`
    })
    await entered.promise
  })
  await expect(work).rejects.toThrow(/while a transaction nested in it was still under way/)
  leave.resolve()
  await expect(late).rejects.toMatchObject({ code: 'NOT_A_TRANSACTION' })
  await sql`select 1`
  expect(sent.filter((text) => /rollback/.test(text))).toEqual(['rollback'])
  await sql.end()
})

test('nor is one whose work comes to its end after that, although a statement of it failed', async () => {
  const sql = postgres(database.url, { max: 1, prepare: false })
  const leave = Promise.withResolvers<void>()
  const failed = Promise.withResolvers<void>()
  let late: Promise<unknown> = Promise.resolve()
  const work = transaction(fromPostgresJs(sql), async ({ native }) => {
    late = native.savepoint(async (inner) => {
      await inner`select 1/0`.catch(() => undefined)
      failed.resolve()
      await leave.promise
      return 'late'
    })
    await failed.promise
    throw new Error('card declined')
  })
  await expect(work).rejects.toThrow('card declined')
  await transaction(fromPostgresJs(sql), async ({ native }) => {
    // Its savepoint has the name of the other one.
    await native.savepoint((inner) => inner`insert into note values (5, 'kept')`)
    leave.resolve()
    await late.catch(() => undefined)
  })
  expect(await sql`select id from note`).toEqual([{ id: 5 }])
  expect(await late).toBe('late')
  await sql.end()
})

test('a file of statements that was still being read when the closure ended is not run', async () => {
  const sql = postgres(database.url, { max: 1, prepare: false })
  const path = join(folder, 'late.sql')
  await writeFile(path, `insert into note values (1, 'late')`)
  let late: Promise<unknown> = Promise.resolve()
  const work = transaction(fromPostgresJs(sql), async ({ native }) => {
    // It takes the system several turns to read it.
    late = native.file(path).catch((error: unknown) => error)
    throw new Error('card declined')
  })
  await expect(work).rejects.toThrow('card declined')
  const told = await late
  expect(await sql`select * from note`).toEqual([])
  expect(told).toMatchObject({ code: 'NOT_A_TRANSACTION' })
  await sql.end()
})

test('a file of statements is run as ever while the closure lasts, with its parameters and options', async () => {
  const sql = postgres(database.url, { max: 1, prepare: false })
  const path = join(folder, 'notes.sql')
  await writeFile(path, 'select $1::int as id')
  await transaction(fromPostgresJs(sql), async ({ native }) => {
    expect(await native.file(path, [7])).toEqual([{ id: 7 }])
    expect(await native.file(path, [7]).values()).toEqual([[7]])
    await writeFile(path, 'select 1 as id; select 2 as id')
    expect(await native.file(path)).toEqual([[{ id: 1 }], [{ id: 2 }]])
  })
  const missing = transaction(fromPostgresJs(sql), ({ native }) => native.file(`${path}.missing`))
  await expect(missing).rejects.toMatchObject({ code: 'ENOENT' })
  await sql.end()
})

test('a reserved connection, or something else, is refused with a sentence that says what is expected', async () => {
  const sql = postgres(database.url, { max: 1, prepare: false })
  const reserved = await sql.reserve()
  expect(() => fromPostgresJs(reserved)).toThrow(/not a reserved connection. Use sql.begin/)
  reserved.release()
  expect(() => fromPostgresJs({} as Sql)).toThrow(/expected the sql of postgres/)
  await sql.end()
})
