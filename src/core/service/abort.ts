/**
 * Waits with an end: until a signal aborts, or for a given time. The work itself goes on, and what becomes of it then is not told.
 *
 * `underSignals` gives work a signal that aborts with the first of several, and leaves nothing behind once the work is over.
 * `AbortSignal.any` says the same in one line, but one of the signals usually lives as
 * long as the process, and many releases of Node, 22.18 and 24.13 among them, keep every composite of such a one and search all of
 * them whenever somebody listens.
 *
 * x
 *
 * x
 *
 * x
 */
import type { Clock } from './clock.ts'

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

/**
 * Waits for a signal to abort, as a promise that resolves then.
 */
/** Resolves when the signal aborts. */
export function untilAborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve()
    signal.addEventListener('abort', () => resolve(), { once: true })
  })
}
