/**
 * Opens the receivers of several topics, all of them or none: one that nobody knows would go on delivering after a pause and
 * after the end.
 */
import { unlessAborted } from '../../core/service/abort.ts'
import type { Receiver } from '../../transport/port/transport.ts'

/** Rejects as the first of them that failed; empty if `stopping` aborts before all are open. */
export async function allReceivers(opening: readonly Promise<Receiver>[], stopping: AbortSignal): Promise<readonly Receiver[]> {
  const results = await unlessAborted(Promise.allSettled(opening), stopping)
  if (results === undefined) {
    // Each by itself: one that never opens must not keep the others.
    for (const each of opening) void each.then((receiver) => receiver.close(AbortSignal.abort())).catch(() => undefined)
    return []
  }
  const failed = results.find((result) => result.status === 'rejected')
  if (failed === undefined) return opened(results)
  await closeOpened(results)
  throw failed.reason
}

function opened(results: readonly PromiseSettledResult<Receiver>[]): readonly Receiver[] {
  return results.flatMap((result) => (result.status === 'fulfilled' ? [result.value] : []))
}

async function closeOpened(results: readonly PromiseSettledResult<Receiver>[]): Promise<void> {
  await Promise.all(opened(results).map((receiver) => receiver.close(AbortSignal.abort())))
}
