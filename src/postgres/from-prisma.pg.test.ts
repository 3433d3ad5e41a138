import { expect, test } from 'vitest'

import { adapterContract } from '../../test/contract/adapter-contract.ts'
import { lockWaits, notes } from '../../test/contract/adapter-harness.ts'
import { openPrisma, type PrismaClient, type PrismaTx } from '../../test/setup/prisma-client.ts'
import { testDatabase } from '../../test/setup/test-database.ts'
import { eventually } from '../testing/eventually.ts'
import { fromPrisma } from './from-prisma.ts'
import { isUnavailable } from './sql-state.ts'
import { transaction } from './transaction.ts'

const database = await testDatabase()

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

test('something else is refused with a sentence that says what is expected', () => {
  expect(() => fromPrisma({} as PrismaClient)).toThrow(/expected a PrismaClient, or the tx of/)
})
