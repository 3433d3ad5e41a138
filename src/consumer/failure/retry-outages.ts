/**
 * Repeats a step of a consumer's work through outages, with a growing delay, until it is done or the process stops.
 *
 * An outage (the database was away, busy, took no writes or chose a victim) says nothing about the events at hand, so it counts as an
 * attempt of none of them. Any other error is thrown at once.
 */
import { isWaybillError } from '../../core/errors.ts'
import {
  isConnectionLoss,
  isLockTimeout,
  isReadOnly,
  isRetryableState,
  isUnavailable,
  sqlState,
} from '../../postgres/query/sql-state.ts'
import { ItemFailure } from '../model/batch-item.ts'
import { backoffMs } from '../../core/service/backoff.ts'
import { redactedMessage } from '../../core/redact.ts'
import type { ConsumerSettings } from '../model/consumer-options.ts'
import type { Scope } from '../tables/inbox.sql.ts'

/** An error of our own statements that passes by itself; a statement time-out may, if it does not come again and again. */
export function isOutage(error: unknown): boolean {
  if (isWaybillError(error)) return error.code === 'COMMIT_UNKNOWN' || error.code === 'UNAVAILABLE'
  return isUnavailable(error) || isReadOnly(error) || isLockTimeout(error) || isRetryableState(sqlState(error))
}

/** The same out of a handler. Its own slow statements and lock waits are its own failures. */
export function isHandlerOutage({ cause }: ItemFailure): boolean {
  return isConnectionLoss(cause) || isRetryableState(sqlState(cause))
}

export interface StepDeps {
  readonly settings: Pick<ConsumerSettings, 'clock' | 'random' | 'signals'>
  readonly scope: Scope
  /** Called before every attempt: the work goes on. */
  readonly onAlive?: (() => void) | undefined
  readonly stopping: AbortSignal
  readonly aborting: AbortSignal
}

const backoff = { firstMs: 50, maxMs: 5_000 }

/** Repeats a step of `count` items through outages, or until as many came in a row as `limitOf` an error allows. */
export async function retryOutages<Result>(
  { settings, scope, onAlive, stopping, aborting }: StepDeps,
  count: number,
  step: () => Promise<Result>,
  limitOf: (error: unknown) => number = () => Infinity,
): Promise<Result> {
  const { clock, random, signals } = settings
  let limited = 0
  for (let failures = 1; ; failures += 1) {
    onAlive?.()
    try {
      return await step()
    } catch (error) {
      const limit = limitOf(error)
      limited = limit === Infinity ? 0 : limited + 1
      const isOver = !isAnyOutage(error) || limited >= limit
      if (isOver || stopping.aborted || aborting.aborted) throw error
      const delayMs = backoffMs(backoff, failures, random)
      signals.emit('consumer.retried', { consumer: scope.consumer, count, delayMs, error: redactedMessage(error) })
      await clock.sleep(delayMs, stopping)
    }
  }
}

/** The process gives up its work, or stops and cannot wait for an outage to pass: no event is to blame. */
export function isInterrupted({ stopping, aborting }: Pick<StepDeps, 'stopping' | 'aborting'>, error: unknown): boolean {
  return aborting.aborted || (stopping.aborted && isAnyOutage(error))
}

/** It was an outage, which says nothing about the items. */
function isAnyOutage(error: unknown): boolean {
  return error instanceof ItemFailure ? isHandlerOutage(error) : isOutage(error)
}
