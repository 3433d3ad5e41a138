/**
 * Only a transaction is a `Tx`: a pool, a client or a database passed instead does not compile.
 */
import type pg from 'pg'
import { fromPg, transaction, type Database, type Tx } from '../../src/index.ts'
import { sameType } from './same-type.ts'

declare const pool: pg.Pool
declare const client: pg.PoolClient
declare function needsTx(tx: Tx): void

const db = fromPg(pool)
sameType<typeof db extends Database ? true : false, true>()

void transaction(db, async (tx) => {
  needsTx(tx)
  // Inside a transaction the same function joins it.
  return await transaction(tx, async (same) => await same.query('select 1'))
})
needsTx(fromPg(client))

// @ts-expect-error -- a pool is no transaction: the event would commit without its change
needsTx(pool)
// @ts-expect-error -- a client may be outside a transaction; fromPg(client) looks
needsTx(client)
// @ts-expect-error -- a database starts transactions, it is none
needsTx(db)
// @ts-expect-error -- what looks like one is not one
needsTx({ native: pool, query: async () => await Promise.resolve({ rows: [], rowCount: 0 }) })
// @ts-expect-error -- a pool is made a database by its adapter first
void transaction(pool, async () => await Promise.resolve())

// What the closure returns is what the transaction returns.
const total: Promise<number> = transaction(db, async () => await Promise.resolve(7))
// @ts-expect-error -- a number
const text: Promise<string> = transaction(db, async () => await Promise.resolve(7))
void [total, text]
