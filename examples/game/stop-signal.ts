/**
 * Ctrl-C, for the examples: the first one lets a program stop in order, and one that comes more than a second later ends it at once.
 * What comes sooner is the same wish: under npm, Ctrl-C comes from the terminal and from npm.
 */

/** Aborts when the program is asked to stop. */
export function stopSignal(): AbortSignal {
  const stop = new AbortController()
  let askedAtMs: number | undefined
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.on(signal, () => {
      const now = performance.now()
      askedAtMs ??= now
      // It waits for nothing; what it started ends with it.
      if (now - askedAtMs > 1_000) process.exit(130)
      stop.abort()
    })
  }
  return stop.signal
}
