/**
 * The demo's heartbeat: looks into the databases, cuts time into slices for the chart, and says when a fault is overcome.
 */
import { setTimeout as delay } from 'node:timers/promises'
import type { Latencies } from './latencies.ts'
import type { Ledger } from './ledger.ts'
import type { Timeline } from './timeline.ts'

export interface WatchParts {
  readonly ledger: Ledger
  readonly latencies: Latencies
  readonly observer: { look(): Promise<void> }
  readonly timeline: Timeline
  readonly processes: readonly { readonly isUp: boolean }[]
}

const lookEveryMs = 250
const sliceEveryMs = 500
/** Longer than the network is cut: before that, a fault may not have shown what it does. */
const faultShowsMs = 2_000

export function startWatch({ ledger, latencies, observer, timeline, processes }: WatchParts): { stop(): Promise<void> } {
  const stop = new AbortController()
  const slicing = setInterval(() => latencies.slice(), sliceEveryMs)
  let announced = 0
  const announce = (): void => {
    const lastFault = timeline.lastOf('fault')
    const lastTurn = Math.max(lastFault, timeline.lastOf('recovery'))
    const hasShown = Date.now() - lastFault > faultShowsMs
    if (lastFault <= announced || !hasShown || !processes.every(({ isUp }) => isUp) || isOpen(ledger, lastTurn)) return
    announced = lastFault
    timeline.add(
      'recovery',
      `caught up ${seconds(Date.now() - lastFault)} after the last fault: all that was committed before the recovery is applied`,
    )
  }
  const looking = (async () => {
    while (!stop.signal.aborted) {
      // A server that was given to the demo may be gone for a moment; the next look makes up for it.
      await observer.look().then(announce, () => {})
      await delay(lookEveryMs, undefined, { signal: stop.signal }).catch(() => {})
    }
  })()
  return {
    stop: async () => {
      stop.abort()
      clearInterval(slicing)
      await looking
    },
  }
}

/** Whether anything that was committed up to this moment is not applied. */
function isOpen({ flights }: Ledger, untilMs: number): boolean {
  for (const { commit, appliedAtMs } of flights.values()) if (appliedAtMs === undefined && commit.atMs <= untilMs) return true
  return false
}

function seconds(ms: number): string {
  return `${(ms / 1_000).toFixed(1)} s`
}
