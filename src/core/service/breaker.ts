/**
 * A circuit breaker: after an outage was seen, work waits; then one probe decides.
 *
 *   closed ──outage──▶ open ──delay over──▶ probing ──success──▶ closed
 *                       ▲                      │
 *                       └───────outage─────────┘   (the delay grows, jittered)
 */
import { backoffMs, type BackoffOptions } from './backoff.ts'
import type { Clock } from './clock.ts'
import type { Random } from './random.ts'

export type BreakerState = 'closed' | 'open' | 'probing'

export interface Breaker {
  state(): BreakerState
  /** How long until the next probe; 0 while work may go on. */
  waitMs(): number
  /** How long it has not been closed. */
  openForMs(): number
  succeeded(): void
  failed(): void
  /** Forgets the outage: nobody is going to probe any more. */
  reset(): void
}

export interface BreakerOptions {
  readonly backoff: BackoffOptions
  readonly clock: Clock
  readonly random: Random
  readonly onChange: (state: BreakerState) => void
}

export function createBreaker({ backoff, clock, random, onChange }: BreakerOptions): Breaker {
  let failures = 0
  let openedAt = 0
  let probeAt = 0
  let announced: BreakerState = 'closed'
  // Time alone opens the way for a probe, so that change is announced when somebody first looks.
  const state = (): BreakerState => {
    const current = failures === 0 ? 'closed' : clock.monotonicMs() < probeAt ? 'open' : 'probing'
    if (current !== announced) onChange((announced = current))
    return current
  }
  const close = (): void => {
    failures = 0
    state()
  }
  return {
    state,
    waitMs: () => (failures === 0 ? 0 : Math.max(0, probeAt - clock.monotonicMs())),
    openForMs: () => (failures === 0 ? 0 : clock.monotonicMs() - openedAt),
    succeeded: close,
    failed: () => {
      if (failures === 0) openedAt = clock.monotonicMs()
      failures += 1
      probeAt = clock.monotonicMs() + backoffMs(backoff, failures, random)
      state()
    },
    reset: close,
  }
}
