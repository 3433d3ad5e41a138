/**
 * What a relay keeps an eye on beside its work: what is paused, and how much waits.
 *
 * The backlog is counted by the relay that holds lane 0, so that it is counted once, and in every state: counting only what
 * is due would show nothing while 100,000 events are held behind one that failed. The same relay brings retries back that a
 * clock which stepped back has put out of reach. Pauses are read in a pass of their own, which waits for none of that.
 */
import type { Clock } from '../../core/service/clock.ts'
import type { Pass } from '../../core/service/loop.ts'
import type { SignalBus } from '../../core/signals.ts'
import { execute, one, rows, type Queryable } from '../../postgres/query/database.ts'
import type { LaneLeases } from '../../postgres/lanes/lane-leases.ts'
import { pullBackRetries, readPauses } from '../tables/dispatch.sql.ts'
import type { OutboxTables } from '../tables/outbox.sql.ts'
import { readBacklog } from '../tables/backlog.sql.ts'

export interface OutboxWatch {
  /** Reads the pauses. */
  readonly pass: Pass
  /** Counts what waits, and brings retries back. */
  readonly count: Pass
  /** Whether it has read the pauses yet: before that, nothing may go out. */
  isInformed(): boolean
  isPaused(aggregateType: string, aggregateId: string): boolean
  /** Whether everything is, known streams and others. */
  isAllPaused(): boolean
}

export interface OutboxWatchDeps {
  readonly db: Queryable
  readonly tables: OutboxTables
  readonly leases: LaneLeases
  readonly signals: SignalBus
  readonly clock: Clock
  /** The longest back-off of a head. */
  readonly longestRetryMs: number
}

const countEveryMs = 5_000
const pullBackEveryMs = 60_000

export function createOutboxWatch({ db, tables, leases, signals, clock, longestRetryMs }: OutboxWatchDeps): OutboxWatch {
  let paused = new Set<string>()
  let informed = false
  let countAt = 0
  let pullBackAt = 0
  return {
    isInformed: () => informed,
    isPaused: (aggregateType, aggregateId) =>
      paused.size > 0 && (paused.has(id(aggregateType, '')) || paused.has(id(aggregateType, aggregateId))),
    isAllPaused: () => paused.has(id('', '')),
    pass: async () => {
      paused = new Set((await rows(db, readPauses(tables))).map((row) => id(row.aggregate_type, row.aggregate_id)))
      informed = true
      return 'idle'
    },
    count: async () => {
      if (!leases.held().some(({ lane }) => lane === 0)) return 'idle'
      const now = clock.monotonicMs()
      if (now >= countAt) {
        countAt = now + countEveryMs
        signals.emit('relay.backlog', { outbox: tables.schema, ...(await one(db, readBacklog(tables))) })
      }
      if (now >= pullBackAt) {
        pullBackAt = now + pullBackEveryMs
        await execute(db, pullBackRetries(tables, longestRetryMs * 2))
      }
      return 'idle'
    },
  }
}

function id(aggregateType: string, aggregateId: string): string {
  return `${aggregateType}\u0000${aggregateId}`
}
