/**
 * How long to wait after the nth failure in a row: doubling, capped, jittered.
 *
 * Jitter spreads those who failed together; without it they come back together. `full` draws from zero to the
 * whole delay (for contention on one row); `equal` keeps at least half (for outages, where zero would be a hammer).
 */
import type { Random } from './random.ts'

export interface BackoffOptions {
  readonly firstMs: number
  readonly maxMs: number
  /** @default 2 */
  readonly factor?: number
  /** @default 'equal' */
  readonly jitter?: 'none' | 'equal' | 'full'
}

/** The delay after `failures` failures (1 is the first), in whole milliseconds. */
export function backoffMs(options: BackoffOptions, failures: number, random: Random): number {
  const { firstMs, maxMs, factor = 2, jitter = 'equal' } = options
  const exponent = Math.max(0, Math.min(failures - 1, 64))
  const full = Math.min(maxMs, firstMs * factor ** exponent)
  if (jitter === 'none') return Math.round(full)
  return Math.round(jitter === 'full' ? full * random.next() : full / 2 + (full / 2) * random.next())
}
