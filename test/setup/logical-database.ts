/**
 * A server of its own for a test file, whose log a connector can read: `const { db } = await logicalDatabase()` at the top of the file.
 */
import pg from 'pg'
import { afterAll } from 'vitest'
import type { Outbox } from '../../src/outbox/outbox.ts'
import type { Database } from '../../src/postgres/query/database.ts'
import { fromPg } from '../../src/postgres/adapters/from-pg.ts'
import { startPostgres } from '../../src/testing/servers/postgres.ts'

export interface LogicalDatabase {
  readonly url: string
  readonly pool: pg.Pool
  readonly db: Database
}

/** Starts the server; it ends with the file. */
export async function logicalDatabase(): Promise<LogicalDatabase> {
  const server = await startPostgres({ logical: true })
  const pool = new pg.Pool({ connectionString: server.url })
  pool.on('error', () => {})
  afterAll(async () => {
    await pool.end()
    await server.stop('immediate')
  })
  return { url: server.url, pool, db: fromPg(pool) }
}

/** A slot as an operator makes it, as the guide says: behind the publication. */
export async function makeSlot(pool: pg.Pool, { tables }: Pick<Outbox, 'tables'>, slot: string): Promise<void> {
  await pool.query(`create publication ${tables.schema}_outbox for table ${tables.outbox.quoted} with (publish = 'insert')`)
  await pool.query(`select pg_create_logical_replication_slot($1, 'pgoutput')`, [slot])
}
