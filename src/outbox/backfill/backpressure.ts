/**
 * Holds a backfill back: while relays have more to send than a limit it waits, and once the broker has refused many of its
 * snapshots it stops, for the next would be refused as well, and each one parks an aggregate.
 *
 * Relays have to send what is due, whichever stream it is of: it takes their time. What failed takes none of it, so only what failed
 * of the backfill's own stream counts: a broker that refuses it would refuse the next snapshots too.
 */
import type { Clock } from '../../core/service/clock.ts'
import { WaybillError } from '../../core/errors.ts'
import type { SignalBus } from '../../core/signals.ts'
import type { AnyStream } from '../../core/event/stream.ts'
import { one, type Queryable } from '../../postgres/query/database.ts'
import { countDue, countFailed, countParkedSnapshots } from '../tables/backfill.sql.ts'
import type { Outbox } from '../outbox.ts'

export interface BackfillGateDeps {
  readonly db: Queryable
  readonly outbox: Pick<Outbox, 'tables'>
  readonly name: string
  readonly stream: Pick<AnyStream, 'aggregateType'>
  readonly maxBacklog: number
  readonly signals: SignalBus
  readonly clock: Clock
}

const lookEveryMs = 250
const waitForRelayMs = 500
const lookAtRefusedEveryMs = 5_000
const mostParked = 100

/** Whether the relay keeps up; if not, it has waited a little. `emitted` is what the operation has emitted so far. */
type BackfillGate = (emitted: number, signal: AbortSignal) => Promise<boolean>

/** Asked for every batch, it looks a few times a second. */
export function createBackfillGate(deps: BackfillGateDeps, operation: string): BackfillGate {
  const { db, outbox, name, maxBacklog, signals, clock } = deps
  const failedOf = createFailedCount(deps, operation)
  let lookAtMs = clock.monotonicMs()
  let isWaiting = false
  return async (emitted, signal) => {
    if (clock.monotonicMs() < lookAtMs) return true
    const failed = await failedOf(emitted)
    const { due } = await one(db, countDue(outbox.tables, maxBacklog + 1))
    if (due + failed <= maxBacklog) {
      isWaiting = false
      lookAtMs = clock.monotonicMs() + lookEveryMs
      return true
    }
    if (!isWaiting) signals.emit('backfill.waiting', { backfill: name, operation, reason: 'backlog' })
    isWaiting = true
    await clock.sleep(waitForRelayMs, signal)
    return false
  }
}

/**
 * What failed of the stream. It comes and goes at the pace of back-offs, and is looked at as rarely as what is parked; sooner only
 * when the limit would be passed if all failed that was emitted since. So a broker that refuses everything is noticed before much more
 * than the limit failed, or twice of it if as many were due at the last look.
 */
function createFailedCount(deps: BackfillGateDeps, operation: string): (emitted: number) => Promise<number> {
  const { db, outbox, stream, maxBacklog, clock } = deps
  let lookAtMs = clock.monotonicMs()
  let failed = 0
  let emittedThen = 0
  return async (emitted) => {
    const now = clock.monotonicMs()
    const mayBeFull = emitted > emittedThen && failed + emitted - emittedThen > maxBacklog
    if (now < lookAtMs && !mayBeFull) return failed
    lookAtMs = now + lookAtRefusedEveryMs
    emittedThen = emitted
    await refuseParked(deps, operation)
    failed = (await one(db, countFailed(outbox.tables, stream.aggregateType, maxBacklog + 1))).failed
    return failed
  }
}

async function refuseParked({ db, outbox, name }: BackfillGateDeps, operation: string): Promise<void> {
  const { parked } = await one(db, countParkedSnapshots(outbox.tables, operation, mostParked))
  if (parked < mostParked) return
  throw new WaybillError(
    'REFUSED',
    `backfill ${name}: ${mostParked} or more of its snapshots are parked, because the broker refused them, and hold their aggregates. Remove the cause, redrive or skip them, and resume.`,
    { details: { operation } },
  )
}
