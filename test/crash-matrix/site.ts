/**
 * The services that cells share, one cell after the other: a Postgres with a database that is emptied, a Redis or a Kafka, and
 * a process that waits to be crashed in the next cell. The proxy before the database is each cell's own, and so is what it has
 * of the broker: a server of Pub/Sub, or a topic of Kafka.
 */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fromPg } from '../../src/postgres/adapters/from-pg.ts'
import { migrate } from '../../src/postgres/schema/migrate.ts'
import { startChild, type Child } from '../../src/testing/process/child.ts'
import { startPostgres, type Postgres } from '../../src/testing/servers/postgres.ts'
import { startRedis, type Redis } from '../../src/testing/servers/redis.ts'
import type { CommandCache } from '../../src/command/cache/cache.ts'
import { memoryCache } from '../../src/command/cache/memory.ts'
import { redisClients, type OpenCache } from '../command/redis-clients.ts'
import type { BrokerName, CellBroker } from './broker.ts'
import { openKafkaBroker } from './kafka-broker.ts'
import { tables } from './ledger.ts'
import { openPubsubBroker } from './pubsub-broker.ts'
import type { SharedKafka } from './shared-kafka.ts'
import pg from 'pg'

export interface Site {
  readonly postgres: Postgres
  /** Cells on Kafka do without. */
  readonly redis: Redis | undefined
  readonly cache: CommandCache
  /** The cells' database. */
  readonly url: string
  openBroker(): Promise<CellBroker>
  /** A process that is ready to be told what it is, and the next one started. */
  takeChild(): Child
  /** Starts Redis again, where it was. */
  restartRedis(): Promise<void>
  close(): Promise<void>
}

const script = new URL('crashed-process.ts', import.meta.url)

/** @param kafka the Kafka of the cells; without, they are on Pub/Sub */
export async function openSite(kafka?: SharedKafka): Promise<Site> {
  const name: BrokerName = kafka === undefined ? 'Pub/Sub' : 'Kafka'
  const [postgres, started] = await Promise.all([startPostgres(), kafka === undefined ? startRedis() : undefined])
  let redis = started
  const url = await postgres.createDatabase()
  await makeTables(url)
  const cache = redis === undefined ? { cache: memoryCache(), close: () => {} } : await openCache(redis.url)
  // Reading the same modules a few hundred times is most of what a process costs.
  const compiled = await mkdtemp(join(tmpdir(), 'waybill-crash-'))
  const start = (): Child => startChild(script, { args: [name], env: { NODE_COMPILE_CACHE: compiled } })
  let next = start()
  return {
    postgres,
    get redis() {
      return redis
    },
    cache: cache.cache,
    url,
    openBroker: () => (kafka === undefined ? openPubsubBroker() : openKafkaBroker(kafka)),
    takeChild: () => {
      const child = next
      next = start()
      return child
    },
    restartRedis: async () => {
      await redis?.stop()
      if (redis !== undefined) redis = await startRedis({ port: redis.port })
    },
    close: async () => {
      cache.close()
      await Promise.all([next.kill(), redis?.stop(), postgres.stop('immediate')])
      await rm(compiled, { recursive: true, force: true })
    },
  }
}

async function makeTables(url: string): Promise<void> {
  await withPool(url, async (pool) => {
    await migrate(fromPg(pool), { schema: 'waybill', service: 'ledger' })
    await pool.query(tables)
  })
}

async function openCache(url: string): Promise<OpenCache> {
  const open = redisClients['ioredis']
  if (open === undefined) throw new Error('There is no client of Redis.')
  return await open(url)
}

/** Empties all tables but those that say what the schema is, and the audit log, which refuses; frees the lanes. */
export async function emptyTables(url: string): Promise<void> {
  await withPool(url, async (pool) => {
    const { rows } = await pool.query(
      `select string_agg(format('%I.%I', schemaname, tablename), ', ') as all from pg_tables
        where schemaname in ('waybill', 'public')
          and tablename not in ('deployment', 'migration', 'audit_log', 'marker_retention', 'outbox_lane')`,
    )
    await pool.query(`truncate ${(rows[0] as { all: string }).all} restart identity cascade`)
    await pool.query(
      'update waybill.outbox_lane set lock_token = null, locked_by = null, locked_at = null, lock_expires_at = null',
    )
  })
}

/** A pool for one piece of work. */
export async function withPool<Result>(url: string, work: (pool: pg.Pool) => Promise<Result>): Promise<Result> {
  const pool = openPool(url)
  try {
    return await work(pool)
  } finally {
    await pool.end()
  }
}

/** It waits for a connection as long as a machine may stand still: a server that is down refuses at once. */
export function openPool(url: string): pg.Pool {
  const pool = new pg.Pool({ connectionString: url, max: 12, connectionTimeoutMillis: 60_000 })
  // A server that is stopped on purpose breaks idle connections; whoever uses one next is told.
  pool.on('error', () => {})
  return pool
}
