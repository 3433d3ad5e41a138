/**
 * Closes what may not answer any more. A pool waits for the connections that are in use, and one whose packets are dropped is in
 * use for ever; whoever waits for that neither says what went wrong nor ends.
 */
import { systemClock } from '../../core/service/clock.ts'
import { unlessLate } from '../../core/service/unless-late.ts'

export interface Closable {
  close(): Promise<void>
}

const closeMs = 3_000

/** Runs `work` and closes what it needed. If both fail, it rejects as the work did: the other mostly follows from it. */
export async function closedAfter<Result>(closable: Closable, work: () => Promise<Result>): Promise<Result> {
  let result: Result
  try {
    result = await work()
  } catch (error) {
    await closeInTime(closable).catch(() => undefined)
    throw error
  }
  await closeInTime(closable)
  return result
}

/** Resolves when it is closed, or has had its time; rejects if closing fails. */
async function closeInTime(closable: Closable): Promise<void> {
  await unlessLate(closable.close(), closeMs, systemClock)
}
