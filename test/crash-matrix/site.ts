/**
 * The services that cells share, one cell after the other: a Postgres with a database that is emptied, a Redis, and a process
 * that waits to be crashed in the next cell. The broker and the proxy before the database are each cell's own.
 */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fromPg } from '../../src/postgres/from-pg.ts'
import { migrate } from '../../src/postgres/migrate.ts'
import { startChild, type Child } from '../../src/testing/child.ts'
import { startPostgres, type Postgres } from '../../src/testing/embedded-postgres.ts'
import { startRedis, type Redis } from '../../src/testing/redis.ts'
import { redisClients, type OpenCache } from '../command/redis-clients.ts'
import { tables } from './ledger.ts'
import pg from 'pg'

export interface Site {
  readonly postgres: Postgres
  readonly redis: Redis
  readonly cache: OpenCache
  /** The cells' database. */
  readonly url: string
  /** A process that is ready to be told what it is, and the next one started. */
  takeChild(): Child
  close(): Promise<void>
}

const script = new URL('crashed-process.ts', import.meta.url)

export async function openSite(): Promise<Site> {
  const [postgres, redis] = await Promise.all([startPostgres(), startRedis()])
  const url = await postgres.createDatabase()
  const pool = openPool(url)
  await migrate(fromPg(pool), { schema: 'waybill', service: 'ledger' })
  await pool.query(tables)
  await pool.end()
  const open = redisClients['ioredis']
  if (open === undefined) throw new Error('There is no client of Redis.')
  const cache = await open(redis.url)
  // Reading the same modules a few hundred times is most of what a process costs.
  const compiled = await mkdtemp(join(tmpdir(), 'waybill-crash-'))
  const start = (): Child => startChild(script, { env: { NODE_COMPILE_CACHE: compiled } })
  let next = start()
  return {
    postgres,
    redis,
    cache,
    url,
    takeChild: () => {
      const child = next
      next = start()
      return child
    },
    close: async () => {
      cache.close()
      await Promise.all([next.kill(), redis.stop(), postgres.stop('immediate')])
      await rm(compiled, { recursive: true, force: true })
    },
  }
}

/** Empties all tables but those that say whose schema it is, and frees the lanes. */
export async function emptyTables(url: string): Promise<void> {
  const pool = openPool(url)
  const { rows } = await pool.query(
    `select string_agg(format('%I.%I', schemaname, tablename), ', ') as all from pg_tables
      where schemaname in ('waybill', 'public') and tablename not in ('deployment', 'migration', 'outbox_lane', 'outbox_setting')`,
  )
  await pool.query(`truncate ${(rows[0] as { all: string }).all} restart identity cascade`)
  await pool.query('update waybill.outbox_lane set lock_token = null, locked_by = null, locked_at = null, lock_expires_at = null')
  await pool.end()
}

export function openPool(url: string): pg.Pool {
  const pool = new pg.Pool({ connectionString: url, max: 12, connectionTimeoutMillis: 10_000 })
  // A server that is stopped on purpose breaks idle connections; whoever uses one next is told.
  pool.on('error', () => {})
  return pool
}
