/**
 * Waits for work no longer than a signal allows. The work itself goes on; what becomes of it then is nobody's concern.
 */

/** What the work resolves to, or undefined as soon as the signal aborts. */
export async function unlessAborted<Result>(work: Promise<Result>, signal: AbortSignal): Promise<Result | undefined> {
  const { promise: aborted, resolve } = Promise.withResolvers<undefined>()
  const end = (): void => resolve(undefined)
  if (signal.aborted) end()
  signal.addEventListener('abort', end, { once: true })
  try {
    return await Promise.race([work, aborted])
  } finally {
    signal.removeEventListener('abort', end)
  }
}
