/**
 * A pool of our own, for processes that have none: the CLI, a relay that stands alone, tests.
 */
import pg from 'pg'
import { refuseUnknown } from '../core/options.ts'
import { defaultSignals, type SignalBus } from '../core/signals.ts'
import type { PgPoolClient } from './adapters/borrow-client.ts'
import { fromPg } from './adapters/from-pg.ts'
import type { Database } from './query/database.ts'

export interface ConnectOptions {
  readonly url: string
  /** Connections at most. @default 10 */
  readonly max?: number
  /** Shown in pg_stat_activity. @default 'waybill' */
  readonly applicationName?: string
  readonly signals?: SignalBus
}

export interface Connection extends Database<PgPoolClient> {
  close(): Promise<void>
}

/** Opens a pool lazily: nothing is connected before the first statement. */
export function connect(options: ConnectOptions): Connection {
  refuseUnknown('connect', options, ['url', 'max', 'applicationName', 'signals'])
  const signals = options.signals ?? defaultSignals
  const pool = new pg.Pool({
    connectionString: options.url,
    max: options.max ?? 10,
    application_name: options.applicationName ?? 'waybill',
    connectionTimeoutMillis: 10_000,
    keepAlive: true,
    keepAliveInitialDelayMillis: 10_000,
  })
  // An idle connection that breaks is replaced at the next use; without a listener it would end the process.
  pool.on('error', (error) => signals.emit('database.idle-connection-lost', { error }))
  return { ...fromPg(pool), close: () => pool.end() }
}
