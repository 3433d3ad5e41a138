/**
 * How long those wait whose trouble is not their own: as long as it has lasted already, within limits.
 *
 * It goes by time and not by failures, because an outage meets many at once and none of them is counted for it.
 */
import { backoffMs, type BackoffOptions } from '../core/backoff.ts'
import type { ConsumerSettings } from './consumer-options.ts'

/** The next delay in milliseconds. */
export type Patience = () => number

/** Nobody met it for this long beyond the longest delay: the next one is another trouble. */
const quietMs = 30_000

export function createPatience({ clock, random }: Pick<ConsumerSettings, 'clock' | 'random'>, backoff: BackoffOptions): Patience {
  let beganMs = 0
  let lastMs = -Infinity
  return () => {
    const nowMs = clock.monotonicMs()
    if (nowMs - lastMs > backoff.maxMs + quietMs) beganMs = nowMs
    lastMs = nowMs
    const delayMs = Math.min(backoff.maxMs, Math.max(backoff.firstMs, nowMs - beganMs))
    return backoffMs({ ...backoff, firstMs: delayMs, maxMs: delayMs }, 1, random)
  }
}
