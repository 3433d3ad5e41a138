/**
 * The demo's heartbeat: looks into the databases, cuts time into slices for the chart, and says when a fault is overcome.
 */
import { setTimeout as delay } from 'node:timers/promises'
import type { Latencies } from './latencies.ts'
import type { Ledger } from './ledger.ts'
import type { Observer } from './observer.ts'
import type { ProcessKeeper } from './process-keeper.ts'
import type { Tap } from './tap.ts'
import type { Timeline } from './timeline.ts'
import type { Traffic } from './traffic.ts'

export interface WatchParts {
  readonly ledger: Ledger
  readonly latencies: Latencies
  readonly observer: Observer
  readonly timeline: Timeline
  readonly processes: readonly ProcessKeeper[]
}

const lookEveryMs = 250
const sliceEveryMs = 500
/** An event that is not applied after this long is behind; in good times it takes a few milliseconds. */
const behindMs = 1_000

export function startWatch({ ledger, latencies, observer, timeline, processes }: WatchParts): { stop(): Promise<void> } {
  const stop = new AbortController()
  const slicing = setInterval(() => latencies.slice(), sliceEveryMs)
  let announced = 0
  const announce = (): void => {
    const lastFault = timeline.happenings.findLast(({ kind }) => kind === 'fault')?.atMs ?? 0
    const isSettled = Date.now() - lastFault > behindMs && processes.every(({ isUp }) => isUp) && !isBehind(ledger)
    if (lastFault <= announced || !isSettled) return
    announced = lastFault
    timeline.add(
      'recovery',
      `caught up ${seconds(Date.now() - lastFault)} after the last fault: all that was committed is applied`,
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

export interface SettleParts extends Pick<WatchParts, 'ledger' | 'observer'> {
  readonly tap: Tap
  readonly traffic: Traffic
  readonly patienceMs: number
}

/** Ends the traffic and looks until everything has arrived, or patience is over. */
export async function settle({ traffic, ledger, observer, tap, patienceMs }: SettleParts): Promise<void> {
  const deadline = performance.now() + patienceMs
  await Promise.race([traffic.stop(), delay(patienceMs, undefined, { ref: false })])
  do {
    await observer.look()
    const isAtRest = ledger.flights.size === 0 && observer.sizes.backlog === 0 && tap.isThrough
    if (isAtRest) return
    await delay(50)
  } while (performance.now() < deadline)
}

function isBehind({ flights }: Ledger): boolean {
  const limit = Date.now() - behindMs
  for (const { commit, appliedAtMs } of flights.values()) if (appliedAtMs === undefined && commit.atMs < limit) return true
  return false
}

function seconds(ms: number): string {
  return `${(ms / 1_000).toFixed(1)} s`
}
