/**
 * How a command is told to stop: the first SIGINT or SIGTERM lets it stop in order. The same one again ends the process at once, if it
 * comes more than a second later.
 *
 * What comes sooner is the same wish: Ctrl-C reaches a program under npm or npx from the terminal and from npm. A SIGTERM behind a
 * SIGINT is one as well: `waybill dev` sends it to those whom the terminal has told already.
 */
import { systemClock, type Clock } from '../core/service/clock.ts'

/** The part of the process that is needed. */
export interface Signalled {
  on(signal: 'SIGINT' | 'SIGTERM', listener: () => void): unknown
  exit(code: number): void
}

const sameWishMs = 1_000
/** As a shell shows an end by that signal. */
const exitCodes = { SIGINT: 130, SIGTERM: 143 } as const

/** From now on signals no longer end the process by themselves. */
export function stopSignal(process: Signalled, clock: Pick<Clock, 'monotonicMs'> = systemClock): AbortSignal {
  const stop = new AbortController()
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    let askedAtMs: number | undefined
    process.on(signal, () => {
      const now = clock.monotonicMs()
      askedAtMs ??= now
      if (now - askedAtMs > sameWishMs) process.exit(exitCodes[signal])
      stop.abort()
    })
  }
  return stop.signal
}
