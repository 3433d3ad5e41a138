import { DataSource, EntitySchema, type EntityManager } from 'typeorm'
import { expect, test } from 'vitest'

import { adapterContract } from '../../test/contract/adapter-contract.ts'
import { testDatabase } from '../../test/setup/test-database.ts'
import { fromTypeOrm } from './from-type-orm.ts'
import { transaction } from './transaction.ts'

const note = new EntitySchema<{ id: number; text: string }>({
  name: 'note',
  columns: { id: { type: 'int', primary: true }, text: { type: 'text' } },
})
const database = await testDatabase()

function connect(url: string): Promise<DataSource> {
  return new DataSource({
    type: 'postgres',
    url,
    entities: [note],
    installExtensions: false,
    poolSize: 1,
    poolErrorHandler: () => undefined,
  }).initialize()
}

adapterContract<EntityManager>('fromTypeOrm', database, async (url) => {
  const dataSource = await connect(url)
  return {
    db: fromTypeOrm(dataSource),
    insertNote: (manager, id, text) => manager.insert(note, { id, text }),
    updateNote: (manager, id, text) => manager.update(note, { id }, { text }),
    nativeXid: async (manager) => (await manager.query<{ xid: string }[]>('select pg_current_xact_id()::text as xid'))[0]!.xid,
    ownTransaction: (work) => dataSource.transaction((manager) => work(fromTypeOrm(manager))),
    close: () => dataSource.destroy(),
  }
})

test('a query runner inside a transaction will do, until that ends', async () => {
  const dataSource = await connect(database.url)
  const runner = dataSource.createQueryRunner()
  expect(() => fromTypeOrm(runner)).toThrow(/not under way. Pass the manager that/)
  await runner.startTransaction()
  const tx = fromTypeOrm(runner)
  expect((await tx.query('select $1::text as value', ['x'])).rows).toEqual([{ value: 'x' }])
  await runner.commitTransaction()
  await expect(tx.query('select 1')).rejects.toMatchObject({ code: 'NOT_A_TRANSACTION' })
  await runner.release()
  await dataSource.destroy()
})

test('a manager outside a transaction is refused', async () => {
  const dataSource = await connect(database.url)
  expect(() => fromTypeOrm(dataSource.manager)).toThrow(/not under way. Pass the manager that/)
  await transaction(fromTypeOrm(dataSource), async (tx) => expect(fromTypeOrm(tx.native).native).toBe(tx.native))
  await dataSource.destroy()
})

test('something else is refused with a sentence that says what is expected', () => {
  expect(() => fromTypeOrm({} as DataSource)).toThrow(/expected a DataSource, or the EntityManager or QueryRunner/)
})
