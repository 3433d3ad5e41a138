/**
 * The history checker: holds what was recorded to the eleven promises (see invariants.ts), while it happens or afterwards.
 *
 * Every entry is looked at once. A verdict costs what is open at that moment, such as events that are committed and not yet
 * published, so it may be asked for again and again. Before the history comes to rest it tells only what no later entry could
 * repair; at rest, also what is missing.
 */
import { WaybillError } from '../../core/errors.ts'
import { describeEvidence } from './describe-entry.ts'
import { isKnownOp, type HistoryEntry } from './entry.ts'
import { EventBook } from './event-book.ts'
import { Findings, invariantIds, type InvariantId, type Judge, type RestEvidence, type Violation } from './invariants.ts'
import { judgeCommands } from './judge-commands.ts'
import { judgeEffects, judgeVersions } from './judge-effects.ts'
import { judgeGhosts, judgeLoss, judgeOrder } from './judge-publishing.ts'
import { judgeLiveness, judgeProjections, judgeReads } from './judge-reads.ts'

export interface InvariantVerdict {
  /** How many times it was put to the test. */
  readonly checked: number
  readonly violations: number
  /** `not judged` if nothing in the history puts it to the test. */
  readonly state: 'held' | 'violated' | 'not judged'
}

export interface Verdict {
  readonly verdict: 'pass' | 'fail'
  /** Whether the history was judged as a complete one. */
  readonly atRest: boolean
  readonly counts: HistoryCounts
  readonly invariants: Readonly<Record<InvariantId, InvariantVerdict>>
  /** At most 20 of each invariant. */
  readonly violations: readonly Violation[]
}

export interface HistoryCounts {
  readonly entries: number
  /** Entries by what they are. */
  readonly ops: Readonly<Partial<Record<HistoryEntry['op'], number>>>
  /** Different events that are mentioned anywhere. */
  readonly events: number
  /** Messages at the broker that were more than the first of their event. */
  readonly duplicates: number
}

export interface Checker {
  record(entry: HistoryEntry): void
  /** What is known so far. With `atRest` the history is judged as if it ended here, whether or not it says so. */
  verdict(options?: { readonly atRest?: boolean }): Verdict
}

/** A checker that is told of each entry as it happens. */
export function createChecker(): Checker {
  const book = new EventBook()
  const findings = new Findings()
  const judges = createJudges(book, findings)
  const ops: Partial<Record<HistoryEntry['op'], number>> = {}
  let line = 0
  let rest: RestEvidence = []
  return {
    record: (entry) => {
      line += 1
      if (!isKnownOp(entry.op)) throw unknownOp(entry.op, line)
      ops[entry.op] = (ops[entry.op] ?? 0) + 1
      book.see(entry, line)
      for (const judge of judges) judge.see(entry, line)
      if (entry.op === 'rest') rest = [{ line, entry }]
    },
    verdict: ({ atRest = rest.length > 0 } = {}) => {
      const found = new Findings(findings)
      if (atRest) for (const judge of judges) judge.end(found, rest)
      return {
        verdict: found.violations.length === 0 ? 'pass' : 'fail',
        atRest,
        counts: { entries: line, ops: { ...ops }, events: book.size, duplicates: book.duplicates },
        invariants: verdictsOf(found),
        violations: found.violations,
      }
    },
  }
}

/** The verdict on a whole history. */
export function checkHistory(entries: Iterable<HistoryEntry>, options: { readonly atRest?: boolean } = {}): Verdict {
  const checker = createChecker()
  for (const entry of entries) checker.record(entry)
  return checker.verdict(options)
}

/** The verdict as text: a line that sums it up, and each violation with the lines of the history that show it. */
export function explainVerdict({ verdict, atRest, counts, invariants, violations }: Verdict): string {
  const judged = invariantIds.filter((id) => invariants[id].state !== 'not judged')
  const sum = invariantIds.reduce((total, id) => total + invariants[id].violations, 0)
  const head = `${verdict}: ${sum} violations in ${counts.entries} entries${atRest ? ' at rest' : ', still under way'}; judged: ${judged.join(', ') || 'nothing'}`
  const lines = violations.flatMap(({ text, evidence }) => [text, ...evidence.map(describeEvidence)])
  return [head, ...lines].join('\n')
}

/** Passed over, it would leave a promise unjudged that somebody believes to be held. */
function unknownOp(op: string, line: number): WaybillError {
  return new WaybillError(
    'INVALID_INPUT',
    `Line ${line} of the history has the op ${JSON.stringify(op)}, which no entry has. Correct whoever recorded it.`,
  )
}

function createJudges(book: EventBook, findings: Findings): readonly Judge[] {
  return [
    judgeLoss(book),
    judgeGhosts(book, findings),
    judgeOrder(findings),
    judgeEffects(book, findings),
    judgeVersions(book, findings),
    judgeProjections(),
    judgeReads(findings),
    judgeCommands(findings),
    judgeLiveness(),
  ]
}

function verdictsOf(findings: Findings): Record<InvariantId, InvariantVerdict> {
  const verdictOf = (id: InvariantId): InvariantVerdict => {
    const [checked, violations] = [findings.checked[id], findings.violated[id]]
    return { checked, violations, state: violations > 0 ? 'violated' : checked > 0 ? 'held' : 'not judged' }
  }
  return Object.fromEntries(invariantIds.map((id) => [id, verdictOf(id)])) as Record<InvariantId, InvariantVerdict>
}
