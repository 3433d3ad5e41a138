/**
 * A server of its own for a test file, whose log a connector can read: `const { db } = await logicalDatabase()` at the top of the file.
 */
import pg from 'pg'
import { afterAll } from 'vitest'
import type { Database } from '../../src/postgres/database.ts'
import { fromPg } from '../../src/postgres/from-pg.ts'
import { startPostgres } from '../../src/testing/embedded-postgres.ts'

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
