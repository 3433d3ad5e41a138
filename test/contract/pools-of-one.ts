/**
 * The adapters whose libraries take their connections from a pool of node-postgres, each with a pool of one: a connection that is
 * lost, or given back broken, shows at the next use.
 */
import { drizzle } from 'drizzle-orm/node-postgres'
import { withReplicas } from 'drizzle-orm/pg-core'
import knex from 'knex'
import { Kysely, PostgresDialect } from 'kysely'
import pg from 'pg'
import { DataSource } from 'typeorm'

import type { Database } from '../../src/postgres/query/database.ts'
import { fromDrizzle } from '../../src/postgres/adapters/from-drizzle.ts'
import { fromKnex } from '../../src/postgres/adapters/from-knex.ts'
import { fromKysely } from '../../src/postgres/adapters/from-kysely.ts'
import { fromPg } from '../../src/postgres/adapters/from-pg.ts'
import { fromPrisma } from '../../src/postgres/adapters/from-prisma.ts'
import { fromTypeOrm } from '../../src/postgres/adapters/from-type-orm.ts'
import { openPrisma } from '../setup/prisma-client.ts'

/** One adapter over one connection of its library. */
export interface Opened {
  readonly db: Database
  close(): Promise<unknown>
}

function openPool(url: string, options: pg.PoolConfig = {}): pg.Pool {
  const pool = new pg.Pool({ connectionString: url, max: 1, ...options })
  pool.on('error', () => undefined)
  // Kysely's clients have no listener while they are out of the pool.
  pool.on('connect', (client) => client.on('error', () => undefined))
  return pool
}

export function openPg(url: string, options?: pg.PoolConfig): Opened {
  const pool = openPool(url, options)
  return { db: fromPg(pool), close: () => pool.end() }
}

/** One that writes here and might read elsewhere. */
export function openDrizzleWithReplicas(url: string): Opened {
  const pool = openPool(url)
  const db = drizzle({ client: pool })
  return { db: fromDrizzle(withReplicas(db, [db])), close: () => pool.end() }
}

export const adapters: Record<string, (url: string) => Opened | Promise<Opened>> = {
  fromPg: (url) => openPg(url),
  fromDrizzle: (url) => {
    const pool = openPool(url)
    return { db: fromDrizzle(drizzle({ client: pool })), close: () => pool.end() }
  },
  fromKysely: (url) => {
    const db = new Kysely<object>({ dialect: new PostgresDialect({ pool: openPool(url) }) })
    return { db: fromKysely(db), close: () => db.destroy() }
  },
  fromKnex: (url) => {
    const db = knex({ client: 'pg', connection: url, pool: { min: 0, max: 1 } })
    return { db: fromKnex(db), close: () => db.destroy() }
  },
  fromPrisma: async (url) => {
    const prisma = await openPrisma(url)
    return { db: fromPrisma(prisma), close: () => prisma.$disconnect() }
  },
  fromTypeOrm: async (url) => {
    const poolErrorHandler = (): void => undefined
    const dataSource = new DataSource({ type: 'postgres', url, installExtensions: false, poolSize: 1, poolErrorHandler })
    await dataSource.initialize()
    return { db: fromTypeOrm(dataSource), close: () => dataSource.destroy() }
  },
}
