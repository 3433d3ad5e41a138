import { eq, sql } from 'drizzle-orm'
import { drizzle as overPg, type NodePgDatabase } from 'drizzle-orm/node-postgres'
import { drizzle as overPostgresJs, type PostgresJsDatabase } from 'drizzle-orm/postgres-js'
import { integer, pgTable, text as textColumn } from 'drizzle-orm/pg-core'
import pg from 'pg'
import postgres from 'postgres'
import { expect, test } from 'vitest'

import { adapterContract } from '../../../test/contract/adapter-contract.ts'
import { notes, type AdapterHarness } from '../../../test/contract/adapter-harness.ts'
import { refusesBehindCommit } from '../../../test/contract/adapter-under-way.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { fromDrizzle } from './from-drizzle.ts'
import { transaction } from '../transaction/transaction.ts'

const note = pgTable('note', { id: integer('id').primaryKey(), text: textColumn('text') })
const database = await testDatabase()

type PgTx = Parameters<Parameters<NodePgDatabase['transaction']>[0]>[0]
type PostgresJsTx = Parameters<Parameters<PostgresJsDatabase['transaction']>[0]>[0]

const openOverPg = (url: string): AdapterHarness<PgTx> => {
  const pool = new pg.Pool({ connectionString: url, max: 1 })
  pool.on('error', () => undefined)
  const db = overPg(pool)
  return {
    db: fromDrizzle(db),
    insertNote: (tx, id, text) => tx.insert(note).values({ id, text }),
    updateNote: (tx, id, text) => tx.update(note).set({ text }).where(eq(note.id, id)),
    nativeXid: async (tx) => (await tx.execute<{ xid: string }>(sql`select pg_current_xact_id()::text as xid`)).rows[0]!.xid,
    ownTransaction: (work) => db.transaction((tx) => work(fromDrizzle(tx))),
    close: () => pool.end(),
  }
}
adapterContract('fromDrizzle over node-postgres', database, openOverPg)
refusesBehindCommit('fromDrizzle over node-postgres', database, openOverPg)

adapterContract<PostgresJsTx>('fromDrizzle over postgres.js', database, (url) => {
  const client = postgres(url, { max: 1, prepare: false, onnotice: () => undefined })
  const db = overPostgresJs(client)
  return {
    db: fromDrizzle(db),
    insertNote: (tx, id, text) => tx.insert(note).values({ id, text }),
    updateNote: (tx, id, text) => tx.update(note).set({ text }).where(eq(note.id, id)),
    nativeXid: async (tx) => (await tx.execute<{ xid: string }>(sql`select pg_current_xact_id()::text as xid`))[0]!.xid,
    ownTransaction: (work) => db.transaction((tx) => work(fromDrizzle(tx))),
    close: () => client.end({ timeout: 0 }),
  }
})

test('transactions nested at once are refused, so that one that is rolled back takes no other with it', async () => {
  const pool = new pg.Pool({ connectionString: database.url, max: 1 })
  await database.pool.query('create table if not exists note (id int primary key, text text)')
  const refusals: unknown[] = []
  await transaction(fromDrizzle(overPg(pool)), async ({ native }) => {
    const nested = async (id: number): Promise<void> => {
      await native
        .transaction(async (tx) => {
          await tx.insert(note).values({ id, text: 'nested' })
          if (id === 2) tx.rollback()
        })
        .catch((error: unknown) => void ((error as { code?: string }).code === 'NOT_A_TRANSACTION' && refusals.push(id)))
    }
    await Promise.all([1, 2, 3, 4].map(nested))
    // One after the other they work as ever, and within each other.
    for (const id of [2, 5]) await nested(id)
    await native.transaction((outer) => outer.transaction((inner) => inner.insert(note).values({ id: 6, text: 'deep' })))
  })
  await pool.end()
  expect(refusals).toEqual([2, 3, 4])
  expect((await notes(database)).map((row) => (row as { id: number }).id)).toEqual([1, 5, 6])
  await database.pool.query('truncate note')
})

test('one connection instead of a pool is refused, on which transactions would run into each other; its transactions are not', async () => {
  const [client, pooled] = [new pg.Client({ connectionString: database.url }), await database.pool.connect()]
  await client.connect()
  try {
    for (const db of [overPg(client), overPg(pooled)]) {
      expect(() => fromDrizzle(db)).toThrow(/expected a drizzle database over a pool, not over one connection/)
    }
    const found = await overPg(client).transaction((tx) => fromDrizzle(tx).query('select 1 as one'))
    expect(found.rows).toEqual([{ one: 1 }])
  } finally {
    pooled.release()
    await client.end()
  }
})

test('something else is refused with a sentence that says what is expected', () => {
  expect(() => fromDrizzle({} as NodePgDatabase)).toThrow(/expected a drizzle database, or the tx of/)
})
