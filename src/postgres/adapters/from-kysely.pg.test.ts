import { CamelCasePlugin, Kysely, PostgresDialect, sql, type Transaction } from 'kysely'
import pg from 'pg'
import { expect, test } from 'vitest'

import { adapterContract } from '../../../test/contract/adapter-contract.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { fromKysely } from './from-kysely.ts'
import { transaction } from '../transaction/transaction.ts'

interface Tables {
  note: { id: number; text: string }
}

const database = await testDatabase()

function connect(url: string): Kysely<Tables> {
  const pool = new pg.Pool({ connectionString: url, max: 1 })
  pool.on('error', () => undefined)
  pool.on('connect', (client) => client.on('error', () => undefined))
  // The plugin renames columns of results, which must not reach ours.
  return new Kysely<Tables>({ dialect: new PostgresDialect({ pool }), plugins: [new CamelCasePlugin()] })
}

adapterContract<Transaction<Tables>>('fromKysely', database, (url) => {
  const kysely = connect(url)
  return {
    db: fromKysely(kysely),
    insertNote: (trx, id, text) => trx.insertInto('note').values({ id, text }).execute(),
    updateNote: (trx, id, text) => trx.updateTable('note').set({ text }).where('id', '=', id).execute(),
    nativeXid: async (trx) => (await sql<{ xid: string }>`select pg_current_xact_id()::text as xid`.execute(trx)).rows[0]!.xid,
    ownTransaction: (work) => kysely.transaction().execute((trx) => work(fromKysely(trx))),
    close: () => kysely.destroy(),
  }
})

test('a transaction that Kysely has ended takes no more statements', async () => {
  const kysely = connect(database.url)
  const trx = await kysely.startTransaction().execute()
  const tx = fromKysely(trx)
  await trx.rollback().execute()
  await expect(tx.query('select 1')).rejects.toThrow(/already rolled back/)
  await kysely.destroy()
})

test('our column names pass the plugins unchanged', async () => {
  const kysely = connect(database.url)
  const { rows } = await transaction(fromKysely(kysely), (tx) => tx.query('select 1 as snake_case'))
  expect(rows).toEqual([{ snake_case: 1 }])
  await kysely.destroy()
})

test('something else is refused with a sentence that says what is expected', () => {
  expect(() => fromKysely({} as Kysely<Tables>)).toThrow(/expected a Kysely instance, or the transaction of/)
})
