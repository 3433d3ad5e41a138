/**
 * Time as a port. Code that waits or measures takes a `Clock`, so that tests and simulations own time.
 *
 * `nowMs` is the wall clock, for people and ids. `monotonicMs` never steps back: every deadline and duration uses it.
 * Leases use neither: they are kept and compared by the database's clock alone.
 */

export interface Clock {
  /** Milliseconds since 1970; may jump when the machine's clock is set. */
  nowMs(): number
  /** Milliseconds since some start; never jumps. */
  monotonicMs(): number
  /** Resolves after `ms`, or at once when `signal` aborts; it never rejects. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>
}

/** A timer that is set for longer fires at once instead. */
const longestTimerMs = 2_147_483_647

export const systemClock: Clock = {
  nowMs: () => Date.now(),
  monotonicMs: () => performance.now(),
  sleep: (ms, signal) =>
    new Promise((resolve) => {
      if (signal?.aborted === true) return resolve()
      const done = (): void => {
        clearTimeout(timer)
        signal?.removeEventListener('abort', done)
        resolve()
      }
      const wait = (leftMs: number): NodeJS.Timeout =>
        leftMs <= longestTimerMs
          ? setTimeout(done, leftMs)
          : setTimeout(() => (timer = wait(leftMs - longestTimerMs)), longestTimerMs)
      let timer = wait(ms)
      signal?.addEventListener('abort', done, { once: true })
    }),
}
