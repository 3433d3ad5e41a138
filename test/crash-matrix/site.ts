/**
 * The services that cells share, one cell after the other: a Postgres, a Redis, and a process that waits to be crashed in the
 * next cell. Each cell has a database of its own, copied from a template, a broker of its own, and a proxy before its database.
 */
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
  /** A database with empty tables; returns its address. */
  newDatabase(): Promise<string>
  /** A process that is ready to be told what it is, and the next one started. */
  takeChild(): Child
  close(): Promise<void>
}

const script = new URL('crashed-process.ts', import.meta.url)
const template = 'crash_template'

export async function openSite(): Promise<Site> {
  const [postgres, redis] = await Promise.all([startPostgres(), startRedis()])
  const url = await postgres.createDatabase(template)
  const pool = openPool(url)
  await migrate(fromPg(pool), { schema: 'waybill', service: 'ledger' })
  await pool.query(tables)
  await pool.end()
  const open = redisClients['ioredis']
  if (open === undefined) throw new Error('There is no client of Redis.')
  const cache = await open(redis.url)
  let next = startChild(script)
  return {
    postgres,
    redis,
    cache,
    newDatabase: () => postgres.createDatabase(undefined, { template }),
    takeChild: () => {
      const child = next
      next = startChild(script)
      return child
    },
    close: async () => {
      cache.close()
      await Promise.all([next.kill(), redis.stop(), postgres.stop('immediate')])
    },
  }
}

export function openPool(url: string): pg.Pool {
  const pool = new pg.Pool({ connectionString: url, max: 12, connectionTimeoutMillis: 10_000 })
  // A server that is stopped on purpose breaks idle connections; whoever uses one next is told.
  pool.on('error', () => {})
  return pool
}
