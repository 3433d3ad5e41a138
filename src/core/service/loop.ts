/**
 * The one loop around every pass. The pass has all the meaning and no timing; the loop has all the timing and no meaning.
 *
 * A pass that threw is tried again after a back-off. A waker only shortens a wait: polling alone is correct.
 */
import { backoffMs, type BackoffOptions } from './backoff.ts'
import { systemClock, type Clock } from './clock.ts'
import { defaults } from '../defaults.ts'
import type { Lifetime } from './lifetime.ts'
import { systemRandom, type Random } from './random.ts'

/** One step of work: `more` is called again at once, `idle` after a wait. */
export type Pass = (aborting: AbortSignal) => Promise<'more' | 'idle'>

export interface Pace {
  /** The wait after the nth idle pass in a row. */
  readonly idleMs: (idlePasses: number) => number
  /** The wait after the nth failure in a row. @default 100 ms × 2 to 10 s */
  readonly backoff?: BackoffOptions
  /** Told of every failure; throwing here ends the loop. */
  readonly onError: (error: unknown, failures: number, delayMs: number) => void
  readonly waker?: Waker
  readonly clock?: Clock
  readonly random?: Random
}

/** Calls `pass` until `stopping`. */
export async function loop(pass: Pass, life: Lifetime, pace: Pace): Promise<void> {
  const { backoff = defaults.loop.backoff, waker = createWaker(), clock = systemClock, random = systemRandom } = pace
  let failures = 0
  let idlePasses = 0
  while (!life.stopping.aborted) {
    const wakeUps = waker.count()
    try {
      const next = await pass(life.aborting)
      failures = 0
      idlePasses = next === 'idle' ? idlePasses + 1 : 0
      if (next === 'idle') await waker.sleep(pace.idleMs(idlePasses), { clock, signal: life.stopping, since: wakeUps })
    } catch (error) {
      failures += 1
      const delayMs = backoffMs(backoff, failures, random)
      pace.onError(error, failures, delayMs)
      await clock.sleep(delayMs, life.stopping)
    }
  }
}

export interface Waker {
  /** Ends the waits under way, and the next wait of every loop that is in a pass now. */
  wake(): void
  /** How many times it was woken. */
  count(): number
  /** Waits `ms`, and gives others a turn however short that is; returns at once if it was woken after `since`. */
  sleep(ms: number, options: { readonly clock: Clock; readonly signal: AbortSignal; readonly since: number }): Promise<void>
}

/** Shortens the waits of the loops that share it when there is news. A wake-up during a pass is not lost. */
export function createWaker(): Waker {
  const sleeping = new Set<AbortController>()
  let wakeUps = 0
  return {
    wake: () => {
      wakeUps += 1
      for (const sleeper of sleeping) sleeper.abort()
    },
    count: () => wakeUps,
    sleep: async (ms, { clock, signal, since }) => {
      if (wakeUps !== since || signal.aborted) return
      // Not AbortSignal.any: `signal` lives as long as the process, and would remember every wait.
      const sleeper = new AbortController()
      const stop = (): void => sleeper.abort()
      sleeping.add(sleeper)
      signal.addEventListener('abort', stop, { once: true })
      await clock.sleep(ms, sleeper.signal)
      signal.removeEventListener('abort', stop)
      sleeping.delete(sleeper)
    },
  }
}
