/**
 * Holds a backfill back: while relays have more to send than a limit it waits, and once the broker has refused many of its
 * snapshots it stops, for the next would be refused as well, and each one parks an aggregate.
 */
import type { Clock } from '../core/clock.ts'
import { WaybillError } from '../core/errors.ts'
import type { SignalBus } from '../core/signals.ts'
import { one, type Queryable } from '../postgres/database.ts'
import { countParkedSnapshots, countUnsent } from './backfill.sql.ts'
import type { Outbox } from './outbox.ts'

export interface BackfillGateDeps {
  readonly db: Queryable
  readonly outbox: Pick<Outbox, 'tables'>
  readonly name: string
  readonly maxBacklog: number
  readonly signals: SignalBus
  readonly clock: Clock
}

const lookEveryMs = 250
const waitForRelayMs = 500
const lookAtParkedEveryMs = 5_000
const mostParked = 100

/** Whether the relay keeps up; if not, it has waited a little. Asked for every batch, it looks a few times a second. */
export function createBackfillGate(deps: BackfillGateDeps, operation: string): (signal: AbortSignal) => Promise<boolean> {
  const { db, outbox, name, maxBacklog, signals, clock } = deps
  let lookAtMs = clock.monotonicMs()
  let lookAtParkedMs = lookAtMs
  let isWaiting = false
  return async (signal) => {
    const now = clock.monotonicMs()
    if (now < lookAtMs) return true
    if (now >= lookAtParkedMs) {
      lookAtParkedMs = now + lookAtParkedEveryMs
      await refuseParked(deps, operation)
    }
    const { unsent } = await one(db, countUnsent(outbox.tables, maxBacklog + 1))
    if (unsent <= maxBacklog) {
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

async function refuseParked({ db, outbox, name }: BackfillGateDeps, operation: string): Promise<void> {
  const { parked } = await one(db, countParkedSnapshots(outbox.tables, operation, mostParked))
  if (parked < mostParked) return
  throw new WaybillError(
    'REFUSED',
    `backfill ${name}: ${mostParked} or more of its snapshots are parked, because the broker refused them, and hold their aggregates. Remove the cause, redrive or skip them, and resume.`,
    { details: { operation } },
  )
}
