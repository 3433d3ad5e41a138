/**
 * Delays of events that met an outage: as long as it has lasted already, within limits.
 *
 * It goes by time and not by failures, because an outage meets many events at once and is counted for none of them.
 */
import { backoffMs } from '../../core/service/backoff.ts'
import type { ConsumerSettings } from '../model/consumer-options.ts'

/** The next delay in milliseconds. */
export type OutageBackoff = () => number

/** The longest delay of work that waits for our own database only. */
export const longestPauseMs = 5_000

/** After this long beyond the longest delay the next outage is another one. */
const quietMs = 30_000

/** Delays from the first of the settings' back-off to its longest, or to `longestMs` if that is shorter. */
export function createOutageBackoff(
  { clock, random, backoff }: Pick<ConsumerSettings, 'clock' | 'random' | 'backoff'>,
  longestMs: number = Infinity,
): OutageBackoff {
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
