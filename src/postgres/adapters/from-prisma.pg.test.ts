import { setImmediate as nextTurn } from 'node:timers/promises'
import { afterEach, expect, test } from 'vitest'

import { adapterContract } from '../../../test/contract/adapter-contract.ts'
import { lockWaits, notes } from '../../../test/contract/adapter-harness.ts'
import { openPrisma, type PrismaClient, type PrismaTx } from '../../../test/setup/prisma-client.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { startFaultProxy } from '../../testing/faults/fault-proxy.ts'
import { fromPrisma } from './from-prisma.ts'
import { isUnavailable } from '../query/sql-state.ts'
import { transaction } from '../transaction/transaction.ts'

const database = await testDatabase()
afterEach(() => database.pool.query('truncate note'))

adapterContract<PrismaTx>('fromPrisma', database, async (url) => {
  const prisma = await openPrisma(url)
  return {
    db: fromPrisma(prisma),
    insertNote: async (tx, id, text) => await tx.note.create({ data: { id, text } }),
    updateNote: async (tx, id, text) => await tx.note.update({ where: { id }, data: { text } }),
    nativeXid: async (tx) => (await tx.$queryRawUnsafe<{ xid: string }[]>('select pg_current_xact_id()::text as xid'))[0]!.xid,
    ownTransaction: (work) => prisma.$transaction((tx) => work(fromPrisma(tx))),
    close: () => prisma.$disconnect(),
  }
})

test('a pool without a free connection is an outage, and is waited for as long as in our own pool', async () => {
  const prisma = await openPrisma(database.url)
  const asked: unknown[] = []
  const impatient = {
    $connect: () => prisma.$connect(),
    $queryRawUnsafe: (text: string) => prisma.$queryRawUnsafe(text),
    $executeRawUnsafe: (text: string) => prisma.$executeRawUnsafe(text),
    $transaction: <Result>(work: (tx: PrismaTx) => Promise<Result>, options: { maxWait?: number } = {}) => {
      asked.push(options.maxWait)
      return prisma.$transaction(work, { ...options, maxWait: 1 })
    },
  }
  await prisma.$transaction(async () => {
    await expect(transaction(fromPrisma(impatient), (tx) => tx.query('select 1'))).rejects.toSatisfy(isUnavailable)
  })
  expect(asked).toEqual([10_000])
  await prisma.$disconnect()
})

test('an operation of several statements that the closure left under way is rolled back as a whole', async () => {
  const prisma = await openPrisma(database.url)
  const other = await database.pool.connect()
  await other.query('begin; lock table note in access exclusive mode')
  const closed = Promise.withResolvers<void>()
  let late: PromiseLike<unknown> | undefined
  const work = transaction(fromPrisma(prisma), async (tx) => {
    // Looks for the one, then makes the other.
    const both = tx.native.note.upsert({ where: { id: 1 }, create: { id: 2, text: 'late' }, update: {} })
    late = both.then(undefined, () => undefined)
    await eventually(async () => (await database.pool.query(lockWaits)).rowCount === 1, { intervalMs: 1 })
    closed.resolve()
    throw new Error('card declined')
  })
  work.catch(() => undefined)
  await closed.promise
  await other.query('rollback')
  other.release()
  await expect(work).rejects.toThrow('card declined')
  await late
  await prisma.$disconnect()
  expect(await notes(database)).toEqual([])
})

test('a nested transaction that returns while everything is rolled back cannot commit it', async () => {
  const { hostname, port } = new URL(database.url)
  const proxy = await startFaultProxy({ target: { host: hostname, port: Number(port) } })
  const prisma = await openPrisma(proxy.url(database.url))
  const leave = Promise.withResolvers<void>()
  let nested: Promise<unknown> = Promise.resolve()
  const work = transaction(fromPrisma(prisma), async (tx) => {
    await tx.native.note.create({ data: { id: 1, text: 'undone' } })
    const inside = Promise.withResolvers<void>()
    nested = nesting(tx.native).$transaction(async (inner) => {
      await inner.$queryRawUnsafe('select 1')
      inside.resolve()
      await leave.promise
    })
    nested.catch(() => undefined)
    await inside.promise
    proxy.stall('toClient')
    throw new Error('card declined')
  })
  work.catch(() => undefined)
  // The answer to the first of Prisma's rollbacks, that to its savepoint.
  await eventually(() => proxy.waiting('toClient') > 0, { intervalMs: 1 })
  leave.resolve()
  await nextTurn()
  proxy.heal()
  await expect(work).rejects.toThrow('card declined')
  const told: unknown = await nested.catch((error: unknown) => error)
  expect(await notes(database)).toEqual([])
  expect(told).toMatchObject({ code: 'NOT_A_TRANSACTION' })
  await prisma.$disconnect()
  await proxy.stop()
})

test('a nested transaction that the closure left open is rolled back with everything else, and named', async () => {
  const prisma = await openPrisma(database.url)
  let runs = 0
  const work = transaction(fromPrisma(prisma), async (tx) => {
    runs += 1
    const inside = Promise.withResolvers<void>()
    void nesting(tx.native).$transaction(async (inner) => {
      await inner.note.create({ data: { id: runs, text: 'undone' } })
      inside.resolve()
      await new Promise(() => undefined)
    })
    await inside.promise
  })
  await expect(work).rejects.toThrow(/returned while a transaction nested in it was still under way/)
  expect(runs).toBe(1)
  await prisma.$disconnect()
  expect(await notes(database)).toEqual([])
})

test('nested transactions work as ever while the closure lasts', async () => {
  const prisma = await openPrisma(database.url)
  await transaction(fromPrisma(prisma), async (tx) => {
    const native = nesting(tx.native)
    await native.$transaction((inner) => inner.note.create({ data: { id: 1, text: 'kept' } }) as Promise<unknown>)
    const failing = native.$transaction(async (inner) => {
      await inner.note.create({ data: { id: 2, text: 'undone' } })
      throw new Error('card declined')
    })
    await expect(failing).rejects.toThrow('card declined')
  })
  await prisma.$disconnect()
  expect(await notes(database)).toEqual([{ id: 1, text: 'kept' }])
})

/** The client of a transaction has it, too. */
function nesting(tx: PrismaTx): Pick<PrismaClient, '$transaction'> {
  return tx as unknown as Pick<PrismaClient, '$transaction'>
}

test('something else is refused with a sentence that says what is expected', () => {
  expect(() => fromPrisma({} as PrismaClient)).toThrow(/expected a PrismaClient, or the tx of/)
})
