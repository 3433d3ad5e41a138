/**
 * What a relay keeps an eye on beside its work: which streams and aggregates are paused, and how much waits.
 *
 * The backlog is counted by the relay that holds lane 0, so that it is counted once, and in every state: counting only what
 * is due would show nothing while 100,000 events are held behind one that failed.
 */
import type { Clock } from '../core/clock.ts'
import type { Pass } from '../core/loop.ts'
import type { SignalBus } from '../core/signals.ts'
import { one, rows, type Queryable } from '../postgres/database.ts'
import type { LaneLeases } from '../postgres/lane-leases.ts'
import { readPauses } from './dispatch.sql.ts'
import type { OutboxTables } from './outbox.sql.ts'
import { readBacklog } from './backlog.sql.ts'

export interface OutboxWatch {
  readonly pass: Pass
  isPaused(aggregateType: string, aggregateId: string): boolean
}

export interface OutboxWatchDeps {
  readonly db: Queryable
  readonly tables: OutboxTables
  readonly leases: LaneLeases
  readonly signals: SignalBus
  readonly clock: Clock
}

const countEveryMs = 5_000

export function createOutboxWatch({ db, tables, leases, signals, clock }: OutboxWatchDeps): OutboxWatch {
  let paused = new Set<string>()
  let countAt = 0
  return {
    isPaused: (aggregateType, aggregateId) =>
      paused.size > 0 && (paused.has(id(aggregateType, '')) || paused.has(id(aggregateType, aggregateId))),
    pass: async () => {
      paused = new Set((await rows(db, readPauses(tables))).map((row) => id(row.aggregate_type, row.aggregate_id)))
      if (clock.monotonicMs() >= countAt && leases.held().some(({ lane }) => lane === 0)) {
        countAt = clock.monotonicMs() + countEveryMs
        signals.emit('relay.backlog', await one(db, readBacklog(tables)))
      }
      return 'idle'
    },
  }
}

function id(aggregateType: string, aggregateId: string): string {
  return `${aggregateType}\u0000${aggregateId}`
}
