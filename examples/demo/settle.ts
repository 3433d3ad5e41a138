/**
 * The end of a run: no more is asked for, and what was asked for arrives.
 */
import { setTimeout as delay } from 'node:timers/promises'
import type { Ledger } from './ledger.ts'
import type { Observer } from './observer.ts'
import type { Tap } from './tap.ts'
import type { Traffic } from './traffic.ts'

export interface SettleParts {
  readonly ledger: Ledger
  readonly observer: Observer
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
