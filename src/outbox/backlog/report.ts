/**
 * Counts what waits in the outbox, in a process that is no relay: `relay.backlog` is signalled although no relay runs.
 *
 * A relay counts too, but one that is stopped or cannot start says nothing, and that is when somebody should hear of it. Run
 * this beside the service that writes, with the `readonly` role or a relay's. It locks nothing.
 */
import { systemClock, type Clock } from '../../core/service/clock.ts'
import { defaults } from '../../core/defaults.ts'
import type { Service } from '../../core/service/lifetime.ts'
import { loop } from '../../core/service/loop.ts'
import { resolve, wholeBetween } from '../../core/options.ts'
import { defaultSignals, type SignalBus } from '../../core/signals.ts'
import { one, type Queryable } from '../../postgres/query/database.ts'
import { withDeadlines } from '../../postgres/transaction/deadline.ts'
import { readBacklog } from '../tables/backlog.sql.ts'
import type { Outbox } from '../outbox.ts'

export interface BacklogReportOptions {
  readonly db: Queryable
  readonly outbox: Pick<Outbox, 'tables'>
  /** @default 5_000 */
  readonly everyMs?: number
  readonly signals?: SignalBus
  readonly clock?: Clock
}

/** How long a count is waited for: its connection may be dead, and then nobody would ever hear of the backlog. */
const answerMs = 60_000

export function createBacklogReport(options: BacklogReportOptions): Service {
  const { db, outbox, everyMs, signals, clock } = resolve<Required<BacklogReportOptions>>(
    'backlog report',
    {
      db: options.db,
      outbox: options.outbox,
      everyMs: defaults.backlogReport.everyMs,
      signals: defaultSignals,
      clock: systemClock,
    },
    options,
    { everyMs: wholeBetween(100, 600_000) },
  )
  const heard = withDeadlines(db, { statementMs: answerMs, clock })
  const name = 'backlog report'
  return {
    name,
    run: (life) =>
      loop(
        async () => {
          signals.emit('relay.backlog', { outbox: outbox.tables.schema, ...(await one(heard, readBacklog(outbox.tables))) })
          return 'idle'
        },
        life,
        {
          idleMs: () => everyMs,
          onError: (error, failures, delayMs) => signals.emit('service.failed', { service: name, error, failures, delayMs }),
          clock,
        },
      ),
  }
}
