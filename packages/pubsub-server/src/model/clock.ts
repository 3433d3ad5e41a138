/**
 * Time as a port: deadlines and delays follow the clock that the server was started with, so a test may own time.
 */
export interface Clock {
  /** Milliseconds since 1970; may jump when the machine's clock is set. */
  nowMs(): number
  /** Milliseconds since some start; never jumps. */
  monotonicMs(): number
  /** Resolves after `ms`, or at once when `signal` aborts; it never rejects. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>
}

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
      const timer = setTimeout(done, ms)
      signal?.addEventListener('abort', done, { once: true })
    }),
}
