/**
 * How far a pending entry of the cache is believed: as long as its run gives a sign of life, and no longer.
 *
 *   claimed ── load, plan: the owner renews the entry ──▶ marker inserted ──▶ COMMIT, completed
 *              a repeat believes the entry                 a repeat tries the marker
 *
 * While the owner plans there is no marker that a repeat could meet, so the owner renews the entry, and repeats do not plan once
 * more. From then on the marker tells: an entry that was not renewed for a few lock waits is that of a run which holds the marker,
 * or of one that is dead, and an insert with a short lock wait finds out. So a crash costs a repeat that much, not the time that
 * the entry lasts. Clocks of two machines that differ cost a try, or such a wait more: the marker decides.
 */
import type { Admitted } from './admit.ts'
import { runAttempts } from './attempts.ts'
import type { PendingEntry } from '../cache/cache.ts'
import type { Outcome } from '../model/outcome.ts'
import type { Pipeline } from './run.ts'
import { failedPlan, type PlanRequest } from './plan.ts'

/** So many lock waits of the marker is an entry believed after it was written or renewed. */
const believedLockWaits = 3
/** Long enough for the server to answer; there is nothing to wait for. */
const tryLockMs = 20

/** Whether the entry's run gave a sign of life just now. Not for a moment that is far in the future: some clock is wrong. */
export function isBelieved({ clock, limits }: Pipeline, { aliveAtMs }: PendingEntry): boolean {
  return Math.abs(clock.nowMs() - aliveAtMs) < believedLockWaits * limits.markerLockMs
}

/** Awaits the plan of a run that owns the entry, and renews the entry until then. */
export async function whileRenewed<Result>(
  { cache, clock, limits }: Pipeline,
  { key, pending }: { readonly key: string; readonly pending: PendingEntry },
  planning: Promise<Result>,
): Promise<Result> {
  const planned = new AbortController()
  const renew = async (): Promise<void> => {
    for (;;) {
      await clock.sleep(limits.markerLockMs, planned.signal)
      if (planned.signal.aborted) return
      await cache.renew(key, pending, clock.nowMs())
    }
  }
  void renew()
  try {
    return await planning
  } finally {
    planned.abort()
  }
}

/**
 * What the marker says about a request that plans nothing yet: what became of it, or that another run holds the marker;
 * `undefined` if the marker is free. It is inserted and rolled back.
 */
export async function tryMarker(pipeline: Pipeline, asked: Admitted, what: PlanRequest): Promise<Outcome | undefined> {
  const { limits } = pipeline
  const isFree = new Error('The marker is free.')
  const trying = { ...pipeline, limits: { ...limits, markerLockMs: Math.min(tryLockMs, limits.markerLockMs) } }
  try {
    return await runAttempts(trying, asked, failedPlan(what, isFree))
  } catch (error) {
    if (error === isFree) return undefined
    throw error
  }
}
