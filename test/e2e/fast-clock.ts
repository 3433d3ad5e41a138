/** Time that runs faster, so that the leases of Pub/Sub, ten seconds or more, end in a moment. */
import type { Clock } from '../../src/core/service/clock.ts'

export function fastClock(factor: number): Clock {
  const startMs = Date.now()
  return {
    nowMs: () => startMs + (Date.now() - startMs) * factor,
    monotonicMs: () => performance.now() * factor,
    sleep: (ms, signal) =>
      new Promise((resolve) => {
        const done = (): void => {
          clearTimeout(timer)
          signal?.removeEventListener('abort', done)
          resolve()
        }
        const timer = setTimeout(done, signal?.aborted === true ? 0 : ms / factor)
        signal?.addEventListener('abort', done, { once: true })
      }),
  }
}
