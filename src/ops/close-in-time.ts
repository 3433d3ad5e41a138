/**
 * Closes what may not answer any more. A pool waits for the connections that are in use, and one whose packets are dropped is in
 * use for ever; whoever waits for that neither says what went wrong nor ends.
 */
import { systemClock } from '../core/clock.ts'

const closeMs = 3_000

/** Resolves when it is closed, or has had its time. */
export async function closeInTime(closable: { close(): Promise<void> }): Promise<void> {
  const closed = new AbortController()
  const closing = closable.close().finally(() => closed.abort())
  await Promise.race([closing, systemClock.sleep(closeMs, closed.signal)])
}
