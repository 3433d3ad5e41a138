/**
 * Deletes markers whose time is over. Run it in every instance: they share the work.
 *
 * A marker is honoured for its TTL and deleted a margin later, so clean-up never shortens the protection, however far it is
 * behind: being late only keeps rows longer. Nor does a step of the database's clock (see witnessed-clock.ts). The database deletes
 * nothing younger than its own `marker_retention`, whatever TTL it is given. A full batch is followed by the next at once.
 */
import { systemClock, type Clock } from '../core/service/clock.ts'
import { defaults } from '../core/defaults.ts'
import type { Service } from '../core/service/lifetime.ts'
import { loop, type Pass } from '../core/service/loop.ts'
import { resolve, wholeBetween } from '../core/options.ts'
import { defaultSignals, type SignalBus } from '../core/signals.ts'
import { one, type Database } from '../postgres/query/database.ts'
import { transaction, transactionOptions } from '../postgres/transaction/transaction.ts'
import { answerGraceMs, withDeadlines } from '../postgres/transaction/deadline.ts'
import { createWitness } from '../postgres/clock/witnessed-clock.ts'
import { commandTables, deleteExpired } from './model/command.sql.ts'

export interface MarkerCleanupOptions {
  readonly db: Database
  /** @default 'waybill' */
  readonly schema?: string
  /** For how long a repeat is recognised; the owner's `marker_retention` (66 minutes) is the least. At least the cache's `completedTtlMs` and the clients' longest retry. @default 3_600_000 */
  readonly ttlMs?: number
  /** Markers are deleted this much after their TTL. @default 10 */
  readonly marginPercent?: number
  /** @default 50_000 */
  readonly batchSize?: number
  /** The wait after a batch that was not full. @default 5_000 */
  readonly idleMs?: number
  /** A lag above this is reported as `command.cleanup-lagging`. @default 60_000 */
  readonly alertLagMs?: number
  readonly signals?: SignalBus
  readonly clock?: Clock
}

/** Many times what a batch takes. */
const statementTimeoutMs = 300_000

export interface MarkerCleanup extends Service {
  /** Deletes one batch; `more` if there may be another. */
  readonly pass: Pass
}

export function createMarkerCleanup(options: MarkerCleanupOptions): MarkerCleanup {
  const { schema, ttlMs, marginPercent, batchSize, idleMs, alertLagMs, signals, clock } = resolveOptions(options)
  const db = withDeadlines(options.db, { statementMs: statementTimeoutMs + answerGraceMs, clock })
  const tables = commandTables(schema)
  const keepMs = ttlMs + Math.ceil((ttlMs * marginPercent) / 100)
  const name = 'marker clean-up'
  const look = createWitness({ db, schema, clock, signals })
  // A batch that a crash takes back is deleted again, so it need not wait for the disk.
  const deleting = transactionOptions({ synchronousCommit: 'off', statementTimeoutMs, signals })

  const pass: Pass = async () => {
    const startedAtMs = clock.monotonicMs()
    const ageMs = (await look())(keepMs)
    const { deleted, lag_ms: lag } = await transaction(db, (tx) => one(tx, deleteExpired(tables, ageMs, batchSize)), deleting)
    const lagMs = Math.max(0, Number(lag ?? 0))
    signals.emit('command.cleaned', { deleted, lagMs, durationMs: clock.monotonicMs() - startedAtMs })
    if (lagMs > alertLagMs) signals.emit('command.cleanup-lagging', { lagMs, alertLagMs })
    return deleted >= batchSize ? 'more' : 'idle'
  }
  return {
    name,
    pass,
    run: (life) =>
      loop(pass, life, {
        idleMs: () => idleMs,
        clock,
        onError: (error, failures, delayMs) => signals.emit('service.failed', { service: name, error, failures, delayMs }),
      }),
  }
}

function resolveOptions(options: MarkerCleanupOptions): Required<MarkerCleanupOptions> {
  const whole = wholeBetween(1, Number.MAX_SAFE_INTEGER)
  return resolve<Required<MarkerCleanupOptions>>(
    'markerCleanup',
    {
      db: options.db,
      schema: defaults.schema,
      ...defaults.markerCleanup,
      signals: defaultSignals,
      clock: systemClock,
    },
    options,
    {
      ttlMs: whole,
      marginPercent: wholeBetween(1, 1_000),
      batchSize: wholeBetween(1, 1_000_000),
      idleMs: whole,
      alertLagMs: whole,
    },
  )
}
