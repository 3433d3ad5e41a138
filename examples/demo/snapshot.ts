/**
 * What the page shows, twice a second, and the report of a run: the same figures in two shapes.
 */
import { explainVerdict, type InvariantId, type Verdict } from 'waybill/testing'
import type { Counts } from './ledger.ts'
import type { Demo } from './demo.ts'
import type { Percentiles } from './latencies.ts'
import { processLabels } from './process-keeper.ts'

const shownHappenings = 40
const shownEvents = 8

/** How many events were committed in each of the last seconds, for a rate that follows quickly. */
export class Rate {
  readonly #marks: { readonly atMs: number; readonly count: number }[] = []

  mark(count: number): number {
    const now = performance.now()
    this.#marks.push({ atMs: now, count })
    while (this.#marks.length > 2 && now - (this.#marks[0]?.atMs ?? now) > 3_000) this.#marks.shift()
    const [first] = this.#marks
    if (first === undefined || now === first.atMs) return 0
    return Math.round(((count - first.count) * 1_000) / (now - first.atMs))
  }
}

export function snapshotOf(demo: Demo, rate: Rate): unknown {
  const { ledger, latencies, observer, tap, traffic, timeline } = demo
  const { counts } = ledger
  return {
    atMs: Date.now(),
    startedAtMs: demo.startedAtMs,
    verdict: ledger.isClean ? 'ok' : 'violated',
    violations: ledger.violations,
    counts,
    rates: { perSecond: rate.mark(counts.applied), target: traffic.perSecond },
    sizes: { ...observer.sizes, underWay: counts.committed - counts.applied },
    survived: { duplicates: tap.duplicates, staleVersions: observer.forgedEffects, ...traffic.counts },
    processes: demo.processes.map(({ name, pid, isUp, restarts }) => ({ name: processLabels[name], pid, isUp, restarts })),
    slices: latencies.slices,
    happenings: timeline.happenings.slice(-shownHappenings),
    events: observer.recent
      .slice(-shownEvents)
      .toReversed()
      .map(({ eventId, id, version }) => ({ eventId, what: id, version })),
    actions: demo.actions.map(({ name, label, hint, disabled, count }) => ({ name, label, hint, disabled, count })),
  }
}

export interface Report extends Counts {
  readonly verdict: 'ok' | 'violated'
  readonly readyMs: number
  readonly ranMs: number
  readonly throughputPerSecond: number
  readonly latencyMs: { readonly commitToPublish: Percentiles | null; readonly commitToApplied: Percentiles | null }
  readonly kills: { readonly count: number; readonly kinds: Readonly<Record<string, number>> }
  readonly survived: Readonly<Record<string, number>>
  readonly restarts: Readonly<Record<string, number>>
  /** What the history checker says to each of its promises; `null` if the run was longer than it remembers. */
  readonly promises: Readonly<Record<InvariantId, string>> | null
  readonly violations: readonly string[]
}

export function reportOf(demo: Demo, { readyMs, ranMs }: { readonly readyMs: number; readonly ranMs: number }): Report {
  const { ledger, latencies, observer, tap, traffic, actions } = demo
  const { counts } = ledger
  const judged = demo.history.verdict()
  const isOk = ledger.isClean && judged?.verdict !== 'fail' && counts.committed > 0
  const kinds = Object.fromEntries(actions.filter(({ count }) => count > 0).map(({ name, count }) => [name, count]))
  return {
    verdict: isOk ? 'ok' : 'violated',
    ...counts,
    readyMs,
    ranMs,
    throughputPerSecond: Math.round((counts.applied * 1_000) / ranMs),
    latencyMs: latencies.whole,
    kills: { count: Object.values(kinds).reduce((sum, count) => sum + count, 0), kinds },
    survived: {
      duplicates: tap.duplicates,
      staleVersions: observer.forgedEffects,
      deadLetters: observer.sizes.deadLetters,
      ...traffic.counts,
    },
    restarts: Object.fromEntries(demo.processes.map(({ name, restarts }) => [processLabels[name], restarts])),
    promises: judged === undefined ? null : promisesOf(judged),
    violations: [...ledger.violations, ...(judged?.verdict === 'fail' ? explainVerdict(judged).split('\n') : [])],
  }
}

function promisesOf({ invariants }: Verdict): Record<InvariantId, string> {
  const states = Object.entries(invariants).map(([id, { state }]) => [id, state])
  return Object.fromEntries(states) as Record<InvariantId, string>
}
