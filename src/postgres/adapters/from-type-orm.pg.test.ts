import { DataSource, EntitySchema, type EntityManager, type EntitySubscriberInterface } from 'typeorm'
import { afterEach, describe, expect, test } from 'vitest'

import { adapterContract } from '../../../test/contract/adapter-contract.ts'
import { refusesBehindCommit } from '../../../test/contract/adapter-under-way.ts'
import { notes, type AdapterHarness } from '../../../test/contract/adapter-harness.ts'
import { endingServer, uncaughtDuring } from '../../../test/setup/ending-server.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { createSignals } from '../../core/signals.ts'
import { fromTypeOrm } from './from-type-orm.ts'
import { transaction } from '../transaction/transaction.ts'

const note = new EntitySchema<{ id: number; text: string }>({
  name: 'note',
  columns: { id: { type: 'int', primary: true }, text: { type: 'text' } },
})
const database = await testDatabase()
afterEach(() => database.pool.query('truncate note'))

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

const open = async (url: string): Promise<AdapterHarness<EntityManager>> => {
  const dataSource = await connect(url)
  return {
    db: fromTypeOrm(dataSource),
    insertNote: (manager, id, text) => manager.insert(note, { id, text }),
    updateNote: (manager, id, text) => manager.update(note, { id }, { text }),
    nativeXid: async (manager) => (await manager.query<{ xid: string }[]>('select pg_current_xact_id()::text as xid'))[0]!.xid,
    ownTransaction: (work) => dataSource.transaction((manager) => work(fromTypeOrm(manager))),
    close: () => dataSource.destroy(),
  }
}
adapterContract('fromTypeOrm', database, open)
refusesBehindCommit('fromTypeOrm', database, open)

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

test('a connection that ends as it is handed out fails the work and never the process', async () => {
  const [dataSource, server] = [await connect(database.url), await endingServer()]
  const { master } = dataSource.driver as unknown as { master: { options: object } }
  Object.assign(master.options, { connectionString: server.url, max: 4 })
  const db = fromTypeOrm(dataSource)
  const outcomes: unknown[] = []
  const uncaught = await uncaughtDuring(async () => {
    // The first has the connection to the real server; the other meets the one that ends.
    const work = [db.query('select pg_sleep(0.01)'), transaction(db, (tx) => tx.query('select 1'))]
    for (const { status } of await Promise.allSettled(work)) outcomes.push(status)
  })
  await dataSource.destroy()
  await server.stop()
  expect({ uncaught: uncaught.map(String), outcomes }).toEqual({ uncaught: [], outcomes: ['fulfilled', 'rejected'] })
})

test('something else is refused with a sentence that says what is expected', () => {
  expect(() => fromTypeOrm({} as DataSource)).toThrow(/expected a DataSource, or the EntityManager or QueryRunner/)
})

describe('a transaction nested in the closure that is still open at the end', () => {
  const leaveOpen = async (manager: EntityManager): Promise<void> => {
    const inside = Promise.withResolvers<void>()
    void manager.transaction(async (nested) => {
      await nested.query('select 1')
      inside.resolve()
      await new Promise(() => undefined)
    })
    await inside.promise
  }

  test.each([
    ['throws', () => Promise.reject(new Error('card declined')), 'card declined'],
    ['returns', () => Promise.resolve(), /returned while a transaction nested in it was still under way/],
  ] as const)(
    'is rolled back with everything else when the closure %s, and the next one is undisturbed',
    async (_how, end, told) => {
      const dataSource = await connect(database.url)
      let runs = 0
      const work = transaction(fromTypeOrm(dataSource), async ({ native }) => {
        runs += 1
        await native.insert(note, { id: 1, text: 'undone' })
        await leaveOpen(native)
        await end()
      })
      await expect(work).rejects.toThrow(told)
      await transaction(fromTypeOrm(dataSource), ({ native }) => native.insert(note, { id: 2, text: 'the next one' }))
      expect([runs, await notes(database)]).toEqual([1, [{ id: 2, text: 'the next one' }]])
      await dataSource.destroy()
    },
  )
})

test.each([
  ['its closure', async (manager: EntityManager): Promise<void> => await manager.queryRunner?.release()],
  ['a data source that is destroyed', async (manager: EntityManager): Promise<void> => await manager.dataSource.destroy()],
] as const)('a connection that %s gives back takes nothing of the transaction with it', async (_who, giveBack) => {
  const dataSource = await connect(database.url)
  const work = transaction(fromTypeOrm(dataSource), async ({ native }) => {
    await native.insert(note, { id: 1, text: 'undone' })
    await giveBack(native)
    await native.insert(note, { id: 2, text: 'too late' })
  })
  await expect(work).rejects.toThrow(/released|ended/i)
  const next = dataSource.isInitialized ? dataSource : await connect(database.url)
  await transaction(fromTypeOrm(next), ({ native }) => native.insert(note, { id: 3, text: 'the next one' }))
  expect(await notes(database)).toEqual([{ id: 3, text: 'the next one' }])
  await next.destroy()
})

describe('subscribers to the end of a transaction', () => {
  const withSubscriber = async (subscriber: EntitySubscriberInterface): Promise<DataSource> => {
    const dataSource = await connect(database.url)
    dataSource.subscribers.push(subscriber)
    return dataSource
  }
  const insert = (id: number) => (tx: { readonly native: EntityManager }) => tx.native.insert(note, { id, text: 'closure' })

  test('may write before COMMIT, and what they write is part of the transaction', async () => {
    const dataSource = await withSubscriber({
      beforeTransactionCommit: ({ manager }) => manager.insert(note, { id: 2, text: 'audit' }) as Promise<unknown>,
    })
    let runs = 0
    await transaction(fromTypeOrm(dataSource), async (tx) => {
      runs += 1
      await insert(1)(tx)
    })
    expect([runs, await notes(database)]).toEqual([
      1,
      [
        { id: 1, text: 'closure' },
        { id: 2, text: 'audit' },
      ],
    ])
    await dataSource.destroy()
  })

  test('are heard when they fail before COMMIT, and nothing takes effect', async () => {
    const dataSource = await withSubscriber({
      beforeTransactionCommit: () => Promise.reject(new Error('audit failed')),
    })
    await expect(transaction(fromTypeOrm(dataSource), insert(1))).rejects.toThrow('audit failed')
    dataSource.subscribers.splice(0)
    await transaction(fromTypeOrm(dataSource), insert(2))
    expect(await notes(database)).toEqual([{ id: 2, text: 'closure' }])
    await dataSource.destroy()
  })

  test('cannot hide a failed statement of theirs', async () => {
    const dataSource = await withSubscriber({
      beforeTransactionCommit: ({ manager }) => manager.query('select 1/0').catch(() => undefined) as Promise<unknown>,
    })
    await expect(transaction(fromTypeOrm(dataSource), insert(1))).rejects.toMatchObject({ code: 'TRANSACTION_ABORTED' })
    expect(await notes(database)).toEqual([])
    await dataSource.destroy()
  })

  test.each([
    ['a statement', (manager: EntityManager) => manager.insert(note, { id: 1, text: 'audit' }) as Promise<unknown>],
    ['a statement that fails', (manager: EntityManager) => manager.query('select 1/0')],
    ['a failure', () => Promise.reject(new Error('audit failed'))],
  ])('cannot keep a transaction open by %s before ROLLBACK', async (_what, heard) => {
    const dataSource = await withSubscriber({ beforeTransactionRollback: ({ manager }) => heard(manager) })
    const work = transaction(fromTypeOrm(dataSource), async (tx) => {
      await insert(2)(tx)
      throw new Error('card declined')
    })
    await expect(work).rejects.toThrow('card declined')
    await transaction(fromTypeOrm(dataSource), insert(3))
    expect(await notes(database)).toEqual([{ id: 3, text: 'closure' }])
    await dataSource.destroy()
  })

  test('cannot let a statement run behind ROLLBACK by failing before it', async () => {
    const dataSource = await withSubscriber({ beforeTransactionRollback: () => Promise.reject(new Error('audit failed')) })
    let late: Promise<unknown> = Promise.resolve()
    const work = transaction(fromTypeOrm(dataSource), (tx) => {
      late = tx.query('select pg_sleep(0.2)::text').then(() => insert(1)(tx))
      late.catch(() => undefined)
      return Promise.reject(new Error('card declined'))
    })
    await expect(work).rejects.toThrow('card declined')
    await expect(late).rejects.toThrow(/has ended/)
    expect(await notes(database)).toEqual([])
    await dataSource.destroy()
  })

  test('cannot make a nested transaction commit everything by letting it return before ROLLBACK', async () => {
    const leave = Promise.withResolvers<void>()
    let nested: Promise<unknown> = Promise.resolve()
    const dataSource = await withSubscriber({
      beforeTransactionRollback: async () => {
        const waitedFor = nested
        // It fails, and then comes by here as well.
        nested = Promise.resolve()
        leave.resolve()
        await waitedFor
      },
    })
    const work = transaction(fromTypeOrm(dataSource), async (tx) => {
      await insert(1)(tx)
      const inside = Promise.withResolvers<void>()
      const waiting = tx.native.transaction(async (inner) => {
        await inner.query('select 1')
        inside.resolve()
        await leave.promise
      })
      nested = waiting.catch(() => undefined)
      await inside.promise
      throw new Error('card declined')
    })
    await expect(work).rejects.toThrow('card declined')
    await transaction(fromTypeOrm(dataSource), insert(2))
    expect(await notes(database)).toEqual([{ id: 2, text: 'closure' }])
    await dataSource.destroy()
  })

  test.each([
    ['a statement', (manager: EntityManager) => manager.insert(note, { id: 3, text: 'late' }) as Promise<unknown>],
    ['a conflict', () => Promise.reject(Object.assign(new Error('deadlock detected'), { code: '40P01' }))],
  ])('cannot undo what is committed by %s after COMMIT', async (_what, heard) => {
    const dataSource = await withSubscriber({ afterTransactionCommit: ({ manager }) => heard(manager) })
    const told: string[] = []
    const signals = createSignals()
    signals.on('transaction.unknown', ({ outcome }) => void told.push(outcome))
    for (const id of [1, 2]) await transaction(fromTypeOrm(dataSource), insert(id), { signals })
    expect([told, await notes(database)]).toEqual([[], [1, 2].map((id) => ({ id, text: 'closure' }))])
    await dataSource.destroy()
  })
})
