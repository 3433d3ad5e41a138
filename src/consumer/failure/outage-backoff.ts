/**
 * How long those wait whose trouble is not their own: as long as it has lasted already, within limits.
 *
 * It goes by time and not by failures, because an outage meets many at once and none of them is counted for it.
 */
import { backoffMs } from '../../core/service/backoff.ts'
import type { ConsumerSettings } from '../model/consumer-options.ts'

/** The next delay in milliseconds. */
export type Patience = () => number

/** The longest delay of those who wait for nothing but our own database. */
export const longestPauseMs = 5_000

/** Nobody met it for this long beyond the longest delay: the next one is another trouble. */
const quietMs = 30_000

/** Delays from the first of the settings' back-off to its longest, or to `longestMs` if that is shorter. */
export function createPatience(
  { clock, random, backoff }: Pick<ConsumerSettings, 'clock' | 'random' | 'backoff'>,
  longestMs: number = Infinity,
): Patience {
  const maxMs = Math.min(backoff.maxMs, longestMs)
  let beganMs = 0
  let lastMs = -Infinity
  return () => {
    const nowMs = clock.monotonicMs()
    if (nowMs - lastMs > maxMs + quietMs) beganMs = nowMs
    lastMs = nowMs
    const delayMs = Math.min(maxMs, Math.max(backoff.firstMs, nowMs - beganMs))
    return backoffMs({ ...backoff, firstMs: delayMs, maxMs: delayMs }, 1, random)
  }
}
