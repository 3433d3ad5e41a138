/**
 * A clock that stands still until a test moves it, so that tests of waits, back-offs and time-outs take no time.
 *
 * `advance` wakes the sleepers that fall due in the order of their times, and lets what they wake run before the next
 * one: work that goes back to sleep within the span is woken again within it.
 */
import { setImmediate as turn } from 'node:timers/promises'
import type { Clock } from '../../core/service/clock.ts'

export interface FakeClock extends Clock {
  /** Moves time by `ms` and wakes whoever falls due, in order. Resolves when all that could run has run. */
  advance(ms: number): Promise<void>
  /** Sets the wall clock alone, forwards or backwards, as a time server may; waits and deadlines do not notice. */
  setNow(nowMs: number): void
  /** How many are asleep now. */
  sleepers(): number
}

interface Sleeper {
  readonly dueMs: number
  readonly wake: () => void
}

/** A clock for tests. It starts at `nowMs`, by default in the year 2025. */
export function createFakeClock(nowMs: number = Date.UTC(2025, 0, 1)): FakeClock {
  let elapsedMs = 0
  let startMs = nowMs
  const asleep = new Set<Sleeper>()

  const sleep: Clock['sleep'] = (ms, signal) =>
    new Promise((resolve) => {
      if (signal?.aborted === true) return resolve()
      const wake = (): void => {
        asleep.delete(sleeper)
        signal?.removeEventListener('abort', wake)
        resolve()
      }
      const sleeper: Sleeper = { dueMs: elapsedMs + Math.max(0, ms), wake }
      asleep.add(sleeper)
      signal?.addEventListener('abort', wake, { once: true })
    })

  return {
    nowMs: () => Math.floor(startMs + elapsedMs),
    monotonicMs: () => elapsedMs,
    sleep,
    sleepers: () => asleep.size,
    setNow: (ms) => {
      startMs = ms - elapsedMs
    },
    advance: async (ms) => {
      const untilMs = elapsedMs + ms
      await turn()
      for (let next = earliest(asleep); next !== undefined && next.dueMs <= untilMs; next = earliest(asleep)) {
        elapsedMs = Math.max(elapsedMs, next.dueMs)
        next.wake()
        await turn()
      }
      elapsedMs = untilMs
    },
  }
}

/** Of those who are due at the same time, the one who lay down first. */
function earliest(asleep: ReadonlySet<Sleeper>): Sleeper | undefined {
  let first: Sleeper | undefined
  for (const sleeper of asleep) if (first === undefined || sleeper.dueMs < first.dueMs) first = sleeper
  return first
}
