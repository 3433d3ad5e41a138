import { expect, test } from 'vitest'

import { adapterContract } from '../../test/contract/adapter-contract.ts'
import { openPrisma, type PrismaClient, type PrismaTx } from '../../test/setup/prisma-client.ts'
import { testDatabase } from '../../test/setup/test-database.ts'
import { fromPrisma } from './from-prisma.ts'

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

test('something else is refused with a sentence that says what is expected', () => {
  expect(() => fromPrisma({} as PrismaClient)).toThrow(/expected a PrismaClient, or the tx of/)
})
