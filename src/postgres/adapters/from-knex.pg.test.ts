import knex, { type Knex } from 'knex'
import { afterEach, expect, test } from 'vitest'

import { adapterContract } from '../../../test/contract/adapter-contract.ts'
import { refusesBehindCommit } from '../../../test/contract/adapter-under-way.ts'
import { lockWaits, notes, type AdapterHarness } from '../../../test/contract/adapter-harness.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { fromKnex } from './from-knex.ts'
import { transaction } from '../transaction/transaction.ts'

const database = await testDatabase()
afterEach(() => database.pool.query('truncate note'))

function connect(url: string): Knex {
  return knex({ client: 'pg', connection: url, pool: { min: 0, max: 1 } })
}

const open = (url: string): AdapterHarness<Knex.Transaction> => {
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
}
adapterContract('fromKnex', database, open)
refusesBehindCommit('fromKnex', database, open)

test('a transaction that the closure ended through Knex is not reported as committed', async () => {
  const db = connect(database.url)
  for (const end of ['commit', 'rollback'] as const) {
    const work = transaction(fromKnex(db), async (tx) => void (await tx.native[end]()))
    await expect(work).rejects.toMatchObject({ code: 'NOT_A_TRANSACTION' })
  }
  await db.destroy()
})

const nestings: Record<
  string,
  (trx: Knex.Transaction, work: (nested: Knex.Transaction) => Promise<unknown>) => Promise<unknown>
> = {
  transaction: (trx, work) => trx.transaction(work),
  savepoint: (trx, work) => trx.savepoint(work),
  'transaction without a container': async (trx, work) => await work(await trx.transaction()),
  'transaction of a transaction': (trx, work) => trx.transaction((nested) => nested.transaction(work)),
}

test.each(Object.entries(nestings))(
  'what a nested %s still has under way rolls everything back, and nothing of it runs behind that',
  async (_name, nest) => {
    const db = connect(database.url)
    const other = await database.pool.connect()
    await other.query(`begin; insert into note values (1, 'in the way')`)
    const closed = Promise.withResolvers<void>()
    let late: Promise<unknown> = Promise.resolve()
    const ended = transaction(fromKnex(db), async (tx) => {
      const twice = async (nested: Knex.Transaction): Promise<void> => {
        await nested('note').insert({ id: 1, text: 'under way' })
        await nested('note').insert({ id: 2, text: 'late' })
      }
      late = nest(tx.native, twice).catch((error: unknown) => error)
      await eventually(async () => (await database.pool.query(lockWaits)).rowCount === 1, { intervalMs: 1 })
      closed.resolve()
    })
    ended.catch(() => undefined)
    await closed.promise
    await other.query('rollback')
    other.release()
    await expect(ended).rejects.toThrow(/while a transaction nested in it; insert into "note".* were still under way/)
    await expect(late).resolves.toBeInstanceOf(Error)
    await transaction(fromKnex(db), ({ native }) => native('note').insert({ id: 3, text: 'the next one' }))
    expect(await notes(database)).toEqual([{ id: 3, text: 'the next one' }])
    await db.destroy()
  },
)

test('nested transactions work as ever while the closure lasts', async () => {
  const db = connect(database.url)
  await transaction(fromKnex(db), async ({ native }) => {
    await native.transaction((nested) => nested('note').insert({ id: 1, text: 'kept' }))
    const failing = native.transaction(async (nested) => {
      await nested('note').insert({ id: 2, text: 'undone' })
      throw new Error('card declined')
    })
    await expect(failing).rejects.toThrow('card declined')
    await native.batchInsert(
      'note',
      [3, 4].map((id) => ({ id, text: 'kept' })),
      1,
    )
  })
  expect(await notes(database)).toEqual([1, 3, 4].map((id) => ({ id, text: 'kept' })))
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
