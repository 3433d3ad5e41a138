/**
 * Waits for work no longer than a given time. The work itself goes on; what becomes of it then is nobody's concern.
 */
import type { Clock } from './clock.ts'

/** What the work resolves to, or undefined if it takes longer than this. Rejects with the work, if that is in time. */
export async function unlessLate<Result>(work: Promise<Result>, ms: number, clock: Clock): Promise<Result | undefined> {
  const done = new AbortController()
  const late = clock.sleep(ms, done.signal).then(() => undefined)
  try {
    return await Promise.race([work, late])
  } finally {
    done.abort()
  }
}
