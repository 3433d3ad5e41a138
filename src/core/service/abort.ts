/**
 * Work under a signal that aborts with the first of several.
 *
 * Nothing is left of it once the work is over. `AbortSignal.any` says the same in one line, but one of the signals usually lives as
 * long as the process, and many releases of Node, 22.18 and 24.13 among them, keep every composite of such a one and search all of
 * them whenever somebody listens.
 */

/** What the work comes to. Its signal aborts with the first of these, for the same reason. */
export async function underSignals<Result>(
  signals: readonly AbortSignal[],
  work: (signal: AbortSignal) => Promise<Result>,
): Promise<Result> {
  const first = new AbortController()
  const follow = signals.map((signal) => ({ signal, abort: (): void => first.abort(signal.reason) }))
  for (const { signal, abort } of follow) {
    if (signal.aborted) abort()
    signal.addEventListener('abort', abort, { once: true })
  }
  try {
    return await work(first.signal)
  } finally {
    for (const { signal, abort } of follow) signal.removeEventListener('abort', abort)
  }
}
