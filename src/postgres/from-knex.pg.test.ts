import knex, { type Knex } from 'knex'
import { expect, test } from 'vitest'

import { adapterContract } from '../../test/contract/adapter-contract.ts'
import { testDatabase } from '../../test/setup/test-database.ts'
import { fromKnex } from './from-knex.ts'
import { transaction } from './transaction.ts'

const database = await testDatabase()

function connect(url: string): Knex {
  return knex({ client: 'pg', connection: url, pool: { min: 0, max: 1 } })
}

adapterContract<Knex.Transaction>('fromKnex', database, (url) => {
  const db = connect(url)
  return {
    db: fromKnex(db),
    insertNote: async (trx, id, text) => await trx('note').insert({ id, text }),
    updateNote: async (trx, id, text) => await trx('note').where({ id }).update({ text }),
    nativeXid: async (trx) =>
      (await trx.raw<{ rows: { xid: string }[] }>('select pg_current_xact_id()::text as xid')).rows[0]!.xid,
    ownTransaction: (work) => db.transaction((trx) => work(fromKnex(trx))),
    close: () => db.destroy(),
  }
})

test('a transaction that the closure ended through Knex is not reported as committed', async () => {
  const db = connect(database.url)
  for (const end of ['commit', 'rollback'] as const) {
    const work = transaction(fromKnex(db), async (tx) => void (await tx.native[end]()))
    await expect(work).rejects.toMatchObject({ code: 'NOT_A_TRANSACTION' })
  }
  await db.destroy()
})

test('a transaction of the user’s own takes no statements after its end', async () => {
  const db = connect(database.url)
  const trx = await db.transaction()
  const tx = fromKnex(trx)
  await trx.commit()
  await expect(tx.query('select 1')).rejects.toMatchObject({ code: 'NOT_A_TRANSACTION' })
  expect(() => fromKnex(trx)).toThrow(/not under way/)
  await db.destroy()
})

test('something else, also Knex for another database, is refused with a sentence that says what is expected', () => {
  expect(() => fromKnex({} as Knex)).toThrow(/expected a knex instance with the client "pg"/)
  expect(() => fromKnex({ client: { dialect: 'mysql' } } as Knex)).toThrow(/expected a knex instance with the client "pg"/)
})
