/**
 * The relay's thinking, without I/O: which rows go out in which order, and what each outcome means for its key.
 *
 * A run is the rows of one key that may go out now, in order. It is clean if every row was due (state 0) and confirmed:
 * then it is simply removed. Any other run is settled as a whole, in one transaction with what becomes of its key:
 *
 *   [due ok] [due ok]                    clean: removed
 *   [due ok] [due failed] [due …]        the first goes; the second becomes the head; the rest is held behind it
 *   [head ok] [held ok] …                they go; the next held row is promoted to head
 *   [due to a topic that is shut] …      becomes a head that is due in some minutes, or when the topic has opened; uncharged
 *   [due ok] [due not before noon] …     the first goes; the second becomes a head that is due at noon, uncharged
 *   [due ok] [due to another topic] …    the first goes; the second becomes a head at once: topics are served side by side
 *   more rows of one key than its quota  those within go; the next becomes a head at once, so that others get their turn
 */
import type { Ordering } from '../../core/event/stream.ts'
import type { OutgoingMessage, PublishOutcome } from '../../transport/port/transport.ts'
import {
  datedError,
  shutError,
  type ConfirmedRow,
  type DispatchRow,
  type RowIdentity,
  type Settlement,
  type StoppedRow,
} from '../tables/dispatch.sql.ts'
import { toMessage } from './message.ts'
import type { TopicGates } from './topic-breakers.ts'
import { pausedError, pausedForMs } from '../tables/pause.sql.ts'

/** The rows of one key to publish, and the row that must become its head afterwards, if any. */
interface Run {
  readonly rows: (DispatchRow & { readonly topic: string })[]
  stop: StoppedRow | undefined
  /** Nothing more of the key belongs to it. */
  isOver: boolean
  clean: boolean
  /** Rows from behind its head were read. */
  isChained: boolean
}

/** By topic, of those that are shut or probed. */
type Probes = Map<string, Run>

interface Planning {
  readonly run: Run
  readonly probes: Probes
  readonly rules: PlanRules
}

export interface PublishPlan {
  readonly messages: readonly OutgoingMessage[]
  readonly runs: readonly Run[]
  /** Lanes in which blocked rows stand in the due range. */
  readonly blocked: ReadonlySet<number>
  /** Events whose row is gone although they were never published. */
  readonly missing: readonly string[]
  /** Whether a key would have sent more rows from behind its head, had more of them been read or its quota been larger. */
  readonly ranOut: boolean
}

export interface PlanRules {
  readonly orderingOf: (aggregateType: string) => Ordering
  readonly isPaused: (aggregateType: string, aggregateId: string) => boolean
  readonly topics: Pick<TopicGates, 'shut' | 'isProbed'>
  /** Rows of one key in one pass at most. */
  readonly quota: number
}

/**
 * No date is put off further than a thousand years: the last one that can be written, the end of the year 9999, counted
 * anew from a later now would lie beyond what can be written, and nothing of the pass could be settled. A head goes out
 * when its delay is over, so a shorter one would break the promise of the date.
 */
const longestWaitMs = 1_000 * 365 * 86_400_000

export function planRuns(rows: readonly DispatchRow[], rules: PlanRules): PublishPlan {
  const byKey = new Map<string, Run>()
  const probes: Probes = new Map()
  const blockedLanes = new Set<number>()
  const missing: string[] = []
  for (const row of rows) {
    if (row.blocked) {
      blockedLanes.add(row.lane)
      continue
    }
    const id = `${row.lane} ${row.key}`
    let run = byKey.get(id)
    if (run === undefined) byKey.set(id, (run = { rows: [], stop: undefined, isOver: false, clean: true, isChained: false }))
    run.isChained ||= row.state === 2
    if (run.isOver) continue
    run.stop = whyStop(row, { run, probes, rules })
    run.isOver = run.stop !== undefined || isBehindProbe(row, { run, probes, rules })
    if (!run.isOver) run.rows.push(row as DispatchRow & { readonly topic: string })
    if (run.stop !== undefined || row.state !== 0) run.clean = false
    if (row.topic === null) missing.push(row.event_id)
  }
  const runs = [...byKey.values()]
  return {
    messages: runs.flatMap((run) => run.rows.map((row) => toMessage(row, rules.orderingOf(row.aggregate_type)))),
    runs,
    blocked: blockedLanes,
    missing,
    ranOut: runs.some((run) => run.isChained && (!run.isOver || run.rows.length >= rules.quota)),
  }
}

/** What keeps a row from being sent now, as the head that it becomes. */
function whyStop(row: DispatchRow, { run, probes, rules }: Planning): StoppedRow | undefined {
  const stop = (delayMs: number, error: string, park = false): StoppedRow => ({
    ...identity(row),
    park,
    void: false,
    charge: 0,
    delayMs,
    error,
  })
  if (row.topic === null) return stop(0, 'the event is missing from the outbox: it was deleted before it was published', true)
  if (row.wait_ms > 0) return stop(Math.min(row.wait_ms, longestWaitMs), datedError)
  if (rules.isPaused(row.aggregate_type, row.aggregate_id)) return stop(pausedForMs, pausedError)
  const shut = rules.topics.shut(row.topic)
  if (shut !== undefined) {
    const isNext = isProbe(row.topic, run, probes)
    return stop(isNext ? shut.probeMs : shut.restMs, shutError(row.topic, shut.error.message))
  }
  if (run.rows.length >= rules.quota || isElsewhere(row, run)) return stop(0, '')
  return undefined
}

/** What goes to two topics leaves in parallel: the later version could be there first, and stay although the earlier one failed. */
function isElsewhere({ topic }: DispatchRow, { rows }: Run): boolean {
  return rows[0] !== undefined && rows[0].topic !== topic
}

/** Of a topic that is probed, the events of one key go out; all others stay where they are until it is known what became of it. */
function isBehindProbe({ topic }: DispatchRow, { run, probes, rules }: Planning): boolean {
  return topic !== null && rules.topics.isProbed(topic) && !isProbe(topic, run, probes)
}

/** Whether this run is the one of its topic that is tried, now or next: the first that asks. */
function isProbe(topic: string, run: Run, probes: Probes): boolean {
  const probe = probes.get(topic) ?? run
  probes.set(topic, probe)
  return probe === run
}

export interface OutcomeRules {
  readonly maxAttempts: number
  /** The delay after the nth charged failure. */
  readonly backoffMs: (failures: number) => number
  /** The delay of what its topic did not take. */
  readonly topics: Pick<TopicGates, 'shut'>
  /** What happens to an event that gave up: it waits, or an empty marker goes out in its place. */
  readonly onPark: (row: Pick<DispatchRow, 'aggregate_type' | 'event_type'>) => 'hold' | 'pass'
  /** How deep to look for rows behind a head. */
  readonly windowOf: (lane: number) => number
}

export interface Decision {
  /** Clean runs, to be removed by the fast statement. */
  readonly confirmed: readonly ConfirmedRow[]
  readonly settlement: Settlement
  readonly failures: readonly { readonly row: DispatchRow; readonly stopped: StoppedRow }[]
  readonly published: readonly DispatchRow[]
  /** The broker took nothing and refused nothing: an outage, in which nothing is charged or moved. */
  readonly outage: Error | undefined
  /** The broker has answered. */
  readonly isReached: boolean
}

/** What to write for what the broker said. */
export function decide(plan: PublishPlan, outcomes: readonly PublishOutcome[], rules: OutcomeRules): Decision {
  const outage = outageOf(outcomes)
  const confirmed: ConfirmedRow[] = []
  const settled: ConfirmedRow[] = []
  const stopped: StoppedRow[] = []
  const failures: { row: DispatchRow; stopped: StoppedRow }[] = []
  const published: DispatchRow[] = []
  let next = 0
  for (const run of plan.runs) {
    const sent: ConfirmedRow[] = []
    let failure: StoppedRow | undefined
    let open = true
    for (const row of run.rows) {
      const outcome = outcomes[next++] ?? { status: 'not-sent' }
      // What was confirmed behind something that was not stays, and goes out again in its turn.
      if (!open) continue
      if (outcome.status === 'confirmed') {
        sent.push({ ...identity(row), messageId: outcome.messageId })
        published.push(row)
        continue
      }
      open = false
      if (outcome.status === 'not-sent') continue
      failure = stopFor(row, outcome, rules)
      if (outage === undefined) failures.push({ row, stopped: failure })
    }
    const complete = sent.length === run.rows.length
    if (run.clean && complete) confirmed.push(...sent)
    else settled.push(...sent)
    if (failure !== undefined && outage === undefined) stopped.push(failure)
    else if (complete && run.stop !== undefined) stopped.push(run.stop)
  }
  // Together with a new head, or it could be gone again before anybody is held behind it, and others would wait for a turn.
  const lanes = new Set([...plan.blocked, ...stopped.map(({ lane }) => lane)])
  const hold = [...lanes].map((lane) => ({ lane, depth: rules.windowOf(lane) }))
  return {
    confirmed,
    settlement: { confirmed: settled, stopped, hold },
    failures,
    published,
    outage,
    isReached: outcomes.some(isAnswer),
  }
}

function stopFor(
  row: Run['rows'][number],
  outcome: Extract<PublishOutcome, { readonly error: Error }>,
  rules: OutcomeRules,
): StoppedRow {
  const charge = outcome.status === 'rejected' ? 1 : 0
  const attempts = row.publish_attempts + charge
  // Only the broker's refusal can be the last straw: an outage parks nothing, whatever happened before it.
  const exhausted = charge > 0 && attempts >= rules.maxAttempts
  const unroutableMs = outcome.status === 'unroutable' ? (rules.topics.shut(row.topic)?.probeMs ?? 0) : undefined
  const pass = exhausted && !row.void && rules.onPark(row) === 'pass'
  return {
    ...identity(row),
    park: exhausted && !pass,
    void: pass,
    charge,
    delayMs: pass ? 0 : (unroutableMs ?? rules.backoffMs(Math.max(1, attempts))),
    error: outcome.error.message,
  }
}

function isAnswer({ status }: PublishOutcome): boolean {
  return status === 'confirmed' || status === 'unroutable'
}

/** Something was tried, nothing got through, and neither a message nor its topic was to blame. */
function outageOf(outcomes: readonly PublishOutcome[]): Error | undefined {
  let error: Error | undefined
  for (const outcome of outcomes) {
    if (outcome.status === 'confirmed' || outcome.status === 'rejected') return undefined
    if (outcome.status === 'unavailable') error ??= outcome.error
  }
  return error
}

function identity(row: DispatchRow): RowIdentity {
  return { lane: row.lane, seq: row.seq, eventId: row.event_id }
}
