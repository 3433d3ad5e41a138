/**
 * The headless run's hand: does everything that can be done to the system, in turn, each at least once.
 */
import { setTimeout as delay } from 'node:timers/promises'
import type { Action } from './actions.ts'

const shortestPauseMs = 300
const longestPauseMs = 2_000

/** Goes around for `forMs`, or longer if it takes longer to have done everything once. */
export async function wreak(actions: readonly Action[], forMs: number, signal: AbortSignal): Promise<void> {
  const possible = actions.filter(({ disabled }) => disabled === undefined)
  const pauseMs = Math.min(longestPauseMs, Math.max(shortestPauseMs, forMs / (possible.length + 1)))
  const endsAt = performance.now() + forMs
  const underWay: Promise<void>[] = []
  const pause = (ms: number): Promise<void> => delay(ms, undefined, { signal }).catch(() => {})
  for (let turn = 0; !signal.aborted; turn += 1) {
    await pause(pauseMs)
    const isEveryoneDone = turn >= possible.length
    if (signal.aborted || (isEveryoneDone && performance.now() + pauseMs > endsAt)) break
    const action = possible[turn % possible.length]
    if (action !== undefined) underWay.push(action.run())
  }
  await pause(Math.max(0, endsAt - performance.now()))
  await Promise.all(underWay)
}
