/**
 * When the relay looks again: soon after work, rarely when idle, and not at all on lanes that it cannot serve.
 */
import type { Breaker } from '../../core/service/breaker.ts'
import type { Pass } from '../../core/service/loop.ts'
import type { LaneLeases } from '../../postgres/lanes/lane-leases.ts'
import type { RelaySettings } from './relay-options.ts'

export interface YieldingDeps {
  readonly breaker: Breaker
  readonly leases: LaneLeases
  readonly leaseMs: number
  /** Counts what waits, if that is due and ours to do. */
  readonly count: Pass
}

/**
 * A relay that cannot publish must not sit on its lanes: after three leases it gives them back, and tries again later. It counts
 * before that: news ends every wait, so the lanes may be gone again before the loop that counts looks.
 */
export function yielding(pass: Pass, { breaker, leases, leaseMs, count }: YieldingDeps): Pass {
  let hasLeft = false
  return async (aborting) => {
    const isHopeless = breaker.waitMs() > 0 && breaker.openForMs() > 3 * leaseMs
    if (!isHopeless) {
      hasLeft = false
      return await pass(aborting)
    }
    if (hasLeft) return 'idle'
    try {
      return await count(aborting)
    } finally {
      // Also without a lane: whoever has not left counts among those who share them.
      await leases.release({ leave: true })
      hasLeft = true
    }
  }
}

/** After an idle wait, news is given a moment to be joined by more. */
export function lingering(pass: Pass, { lingerMs, clock }: RelaySettings): Pass {
  if (lingerMs === 0) return pass
  let wasIdle = false
  return async (aborting) => {
    if (wasIdle) await clock.sleep(lingerMs, aborting)
    const next = await pass(aborting)
    wasIdle = next === 'idle'
    return next
  }
}

/** 5 ms after work, doubling to 50 ms; while the broker is down, until it is worth asking again. */
export function idling({ busyMs, idleMs, renewMs }: RelaySettings, breaker: Breaker): (idlePasses: number) => number {
  return (idlePasses) =>
    Math.max(Math.min(breaker.waitMs(), renewMs), Math.min(idleMs, busyMs * 2 ** Math.min(idlePasses - 1, 20)))
}
