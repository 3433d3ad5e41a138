/**
 * What must not compile: a pool, a database or an ORM's database where a transaction is needed.
 *
 * Never run; `tsc` fails when one of the lines marked as an error stops being one. Each library's own types are used,
 * so this also proves that `tx.native` has the type its users know.
 */
import type { NodePgDatabase } from 'drizzle-orm/node-postgres'
import type { PostgresJsDatabase } from 'drizzle-orm/postgres-js'
import type { Knex } from 'knex'
import type { ControlledTransaction, Kysely, Transaction } from 'kysely'
import type pg from 'pg'
import type postgres from 'postgres'
import type { DataSource, EntityManager, QueryRunner } from 'typeorm'

import type { PrismaClient, PrismaTx } from '../../../test/setup/prisma-client.ts'
import type { Database, Tx } from '../query/database.ts'
import { fromDrizzle } from './from-drizzle.ts'
import { fromKnex } from './from-knex.ts'
import { fromKysely } from './from-kysely.ts'
import { fromPg } from './from-pg.ts'
import { fromPostgresJs } from './from-postgres-js.ts'
import { fromPrisma } from './from-prisma.ts'
import { fromTypeOrm } from './from-type-orm.ts'
import { transaction } from '../transaction/transaction.ts'

interface Tables {
  note: { id: number }
}

/** Stands for `outbox.add` and everything else that takes a transaction. */
declare function add(tx: Tx): void

declare const pool: pg.Pool
declare const client: pg.PoolClient
declare const sql: postgres.Sql
declare const transactionSql: postgres.TransactionSql
declare const overPg: NodePgDatabase
declare const overPostgresJs: PostgresJsDatabase
declare const kysely: Kysely<Tables>
declare const kyselyTransaction: Transaction<Tables>
declare const controlled: ControlledTransaction<Tables>
declare const knex: Knex
declare const knexTransaction: Knex.Transaction
declare const dataSource: DataSource
declare const manager: EntityManager
declare const runner: QueryRunner
declare const prisma: PrismaClient
declare const prismaTx: PrismaTx

export const databases: {
  readonly pg: Database<pg.PoolClient>
  readonly postgresJs: Database<postgres.TransactionSql>
  readonly kysely: Database<Transaction<Tables>>
  readonly knex: Database<Knex.Transaction>
  readonly typeOrm: Database<EntityManager>
  readonly prisma: Database<PrismaTx>
} = {
  pg: fromPg(pool),
  postgresJs: fromPostgresJs(sql),
  kysely: fromKysely(kysely),
  knex: fromKnex(knex),
  typeOrm: fromTypeOrm(dataSource),
  prisma: fromPrisma(prisma),
}

add(fromPg(client))
add(fromPostgresJs(transactionSql))
add(fromKysely(kyselyTransaction))
add(fromKysely(controlled))
add(fromKnex(knexTransaction))
add(fromTypeOrm(manager))
add(fromTypeOrm(runner))
add(fromPrisma(prismaTx))
void overPg.transaction(async (tx) => add(fromDrizzle(tx)))
void overPostgresJs.transaction(async (tx) => add(fromDrizzle(tx)))

// @ts-expect-error A pool is not a transaction.
add(pool)
// @ts-expect-error A client is one only after the adapter has looked.
add(client)
// @ts-expect-error A database is not a transaction.
add(fromPg(pool))
// @ts-expect-error Nor is one made of postgres.js,
add(fromPostgresJs(sql))
// @ts-expect-error of Drizzle,
add(fromDrizzle(overPg))
// @ts-expect-error over either driver,
add(fromDrizzle(overPostgresJs))
// @ts-expect-error of Kysely,
add(fromKysely(kysely))
// @ts-expect-error of Knex,
add(fromKnex(knex))
// @ts-expect-error of TypeORM,
add(fromTypeOrm(dataSource))
// @ts-expect-error or of Prisma.
add(fromPrisma(prisma))
// @ts-expect-error An object of the same shape is none either: only adapters make one.
add({ query: async () => ({ rows: [], rowCount: 0 }), native: client })
// @ts-expect-error The runner takes what an adapter made, not the pool itself.
void transaction(pool, async () => undefined)

void transaction(fromDrizzle(overPg), async (tx) => tx.native.execute<{ id: number }>('select 1').then(({ rows }) => rows[0]?.id))
void transaction(fromDrizzle(overPostgresJs), async (tx) => (await tx.native.execute<{ id: number }>('select 1'))[0]?.id)
void transaction(fromKysely(kysely), (tx) => tx.native.insertInto('note').values({ id: 1 }).execute())
// @ts-expect-error The native transaction knows its tables.
void transaction(fromKysely(kysely), (tx) => tx.native.insertInto('nothing').values({ id: 1 }).execute())
