import postgres, { type Sql, type TransactionSql } from 'postgres'
import { expect, test } from 'vitest'

import { adapterContract } from '../../test/contract/adapter-contract.ts'
import { testDatabase } from '../../test/setup/test-database.ts'
import { fromPostgresJs } from './from-postgres-js.ts'

const database = await testDatabase()

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

test('a reserved connection, or something else, is refused with a sentence that says what is expected', async () => {
  const sql = postgres(database.url, { max: 1, prepare: false })
  const reserved = await sql.reserve()
  expect(() => fromPostgresJs(reserved)).toThrow(/not a reserved connection. Use sql.begin/)
  reserved.release()
  expect(() => fromPostgresJs({} as Sql)).toThrow(/expected the sql of postgres/)
  await sql.end()
})
