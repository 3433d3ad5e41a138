/**
 * The eleven promises that a history is held to, and the book in which their judges write what they find.
 *
 * A judge sees every entry once, in the order of the history, and keeps only what it needs to decide: time and memory grow with
 * the history, never faster. What can only be said of a complete history it says at the end, if the history came to rest.
 */
import type { Evidence } from './describe-entry.ts'
import type { HistoryEntry, Rest } from './entry.ts'

/** Each promise, and the order of entries that deciding it relies on. */
export const invariants = {
  'no-loss': { promise: 'every committed event is published', order: 'none' },
  'no-ghost': { promise: 'what is published, delivered, applied or read was committed, as one version', order: 'none' },
  'first-occurrence-order': { promise: 'per aggregate, versions reach the broker in order', order: 'of each topic’s log' },
  'one-effect': { promise: 'each consumer applies each event once', order: 'none' },
  'one-fate': { promise: 'at rest, what a consumer applied is no dead letter of it', order: 'of each source of dead letters' },
  'version-monotonic': { promise: 'a projection’s version never decreases', order: 'of each source that watches a projection' },
  'projection-equals-owner': { promise: 'at rest, projections are what the owner has', order: 'of each source of states' },
  'read-your-writes': { promise: 'a reader with a token sees that write or a later one', order: 'none' },
  'one-effect-per-command': { promise: 'a request has one effect and one response', order: 'none' },
  'ambiguity-is-info': { promise: 'nobody is told failure of what took effect', order: 'of each source that repeats requests' },
  liveness: { promise: 'after the faults, the backlog goes to zero in time', order: 'none' },
} as const

export type InvariantId = keyof typeof invariants

export const invariantIds: readonly InvariantId[] = Object.keys(invariants) as InvariantId[]

export interface Violation {
  readonly invariant: InvariantId
  /** One sentence, which begins with the invariant: `no-loss: video a v3 was committed and never published`. */
  readonly text: string
  /** The shortest part of the history that shows it. */
  readonly evidence: readonly Evidence[]
}

export interface Judge {
  see(entry: HistoryEntry, line: number): void
  /** What is wrong if nothing more comes. Called again for every verdict; `rest` is the entry that says so. */
  end(findings: Findings, rest: RestEvidence): void
}

/** Where the history says that it is at rest; empty if whoever asks said so. */
export type RestEvidence = readonly (Evidence & { readonly entry: Rest })[]

/** A thousand violations of one kind say no more than a few; they are counted all the same. */
const keptViolations = 20

/** What was checked, and what was found to be wrong. */
export class Findings {
  readonly checked: Record<InvariantId, number>
  readonly violated: Record<InvariantId, number>
  readonly violations: Violation[]

  constructor(of?: Findings) {
    this.checked = of === undefined ? noCounts() : { ...of.checked }
    this.violated = of === undefined ? noCounts() : { ...of.violated }
    this.violations = of === undefined ? [] : [...of.violations]
  }

  check(invariant: InvariantId, count = 1): void {
    this.checked[invariant] += count
  }

  violate(invariant: InvariantId, text: string, evidence: readonly Evidence[]): void {
    this.violated[invariant] += 1
    if (this.violated[invariant] > keptViolations) return
    this.violations.push({ invariant, text: `${invariant}: ${text}`, evidence: evidence.toSorted((a, b) => a.line - b.line) })
  }
}

function noCounts(): Record<InvariantId, number> {
  return Object.fromEntries(invariantIds.map((id) => [id, 0])) as Record<InvariantId, number>
}
