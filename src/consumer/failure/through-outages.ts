/**
 * Takes a step of a consumer's work through outages: it is repeated with a growing delay until it is done or the process stops.
 *
 * An outage says nothing about the events at hand, so nobody is charged for it. An error that is none is thrown at once.
 */
import { backoffMs } from '../../core/service/backoff.ts'
import { redactedMessage } from '../../core/redact.ts'
import type { ConsumerSettings } from '../model/consumer-options.ts'
import type { Scope } from '../tables/inbox.sql.ts'
import { ItemFailure } from '../model/batch-item.ts'
import { isHandlerOutage, isOutage } from './retry-outages.ts'

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
export async function throughOutages<Result>(
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
      const isOver = !saysNothing(error) || limited >= limit
      if (isOver || stopping.aborted || aborting.aborted) throw error
      const delayMs = backoffMs(backoff, failures, random)
      signals.emit('consumer.retried', { consumer: scope.consumer, count, delayMs, error: redactedMessage(error) })
      await clock.sleep(delayMs, stopping)
    }
  }
}

/** The process gives up its work, or stops and cannot wait for an outage to pass: nobody is to blame. */
export function isInterrupted({ stopping, aborting }: Pick<StepDeps, 'stopping' | 'aborting'>, error: unknown): boolean {
  return aborting.aborted || (stopping.aborted && saysNothing(error))
}

/** It was an outage, which says nothing about the items. */
function saysNothing(error: unknown): boolean {
  return error instanceof ItemFailure ? isHandlerOutage(error) : isOutage(error)
}
