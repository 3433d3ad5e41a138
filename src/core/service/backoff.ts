/**
 * How long to wait after the nth failure in a row: doubling, capped, jittered.
 *
 * Jitter spreads those who failed together; without it they come back together. `full` draws from zero to the
 * whole delay (for contention on one row); `equal` keeps at least half (for outages, where zero would be a hammer).
 */
import { WaybillError } from '../errors.ts'
import { oneOf, resolve, wholeBetween, type Checks } from '../options.ts'
import type { Random } from './random.ts'

export interface BackoffOptions {
  readonly firstMs: number
  readonly maxMs: number
  /** @default 2 */
  readonly factor?: number
  /** @default 'equal' */
  readonly jitter?: 'none' | 'equal' | 'full'
}

/** Longer than anybody waits on purpose, and short enough for every clock and timer. */
const yearMs = 365 * 86_400_000

const checks: Checks<Required<BackoffOptions>> = {
  firstMs: wholeBetween(0, yearMs),
  maxMs: wholeBetween(0, yearMs),
  factor: (value) => (Number.isFinite(value) && value >= 1 && value <= 100) || 'must be a number from 1 to 100',
  jitter: oneOf('none', 'equal', 'full'),
}

/** A back-off as an option: what is left out is as in `fallback`. Throws INVALID_OPTION that names the key at fault. */
export function resolveBackoff(
  component: string,
  fallback: BackoffOptions,
  given: Partial<BackoffOptions> = {},
): Required<BackoffOptions> {
  const backoff = resolve<Required<BackoffOptions>>(component, { factor: 2, jitter: 'equal', ...fallback }, given, checks)
  if (backoff.firstMs > backoff.maxMs)
    throw new WaybillError(
      'INVALID_OPTION',
      `${component}.firstMs: must be at most maxMs, which is ${backoff.maxMs}, got ${backoff.firstMs}.`,
    )
  return backoff
}

/** The delay after `failures` failures (1 is the first), in whole milliseconds. */
export function backoffMs(options: BackoffOptions, failures: number, random: Random): number {
  const { firstMs, maxMs, factor = 2, jitter = 'equal' } = options
  const exponent = Math.max(0, Math.min(failures - 1, 64))
  const full = Math.min(maxMs, firstMs * factor ** exponent)
  if (jitter === 'none') return Math.round(full)
  return Math.round(jitter === 'full' ? full * random.next() : full / 2 + (full / 2) * random.next())
}
