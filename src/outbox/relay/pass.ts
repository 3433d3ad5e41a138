/**
 * One pass of the relay: read, publish, confirm, settle. All the meaning, no timing.
 *
 * Guarantee: at least once, and per aggregate the first occurrence of each version in order. A row is removed only after
 * the broker confirmed it, so a crash in between publishes it again; readers remove duplicates.
 *
 *   due ──publish──▶ confirmed: removed
 *    │ failed
 *    ▼
 *   retry (head, blocks its key) ──too often──▶ parked (waits for an operator)
 *
 * The relay's part of an event's trace is a span from the reading of its batch to its confirmation.
 */
import { errorMessage } from '../../core/errors.ts'
import { redactSecrets } from '../../core/redact.ts'
import type { Clock } from '../../core/service/clock.ts'
import type { Pass } from '../../core/service/loop.ts'
import { parseMoment } from '../../core/timestamps.ts'
import type { SignalBus } from '../../core/signals.ts'
import type { Tracing } from '../../core/tracing.ts'
import { underSignals } from '../../core/service/abort.ts'
import type { Breaker } from '../../core/service/breaker.ts'
import type { LaneLeases } from '../../postgres/lanes/lane-leases.ts'
import type { HeldLane } from '../../postgres/lanes/lanes.sql.ts'
import { isLockTimeout, isRefusedValue } from '../../postgres/query/sql-state.ts'
import type { Publisher } from '../../transport/port/transport.ts'
import type { BatchWatch } from './batch-deadline.ts'
import type { DispatchRow, ReadWindow, Settlement } from '../tables/dispatch.sql.ts'
import type { LaneHints } from '../wake-up/lane-hints.ts'
import type { LaneWindows } from './read-sizes.ts'
import type { Decision, OutcomeRules, PlanRules } from './plan.ts'
import type { RelaySteps, StepContext } from './steps.ts'
import type { TopicGates } from './topic-breakers.ts'
import { headersOf } from './message.ts'

export interface RelayPassDeps extends StepContext {
  readonly steps: RelaySteps
  readonly publisher: Publisher
  readonly leases: LaneLeases
  readonly windows: LaneWindows
  readonly hints: LaneHints
  readonly breaker: Breaker
  readonly topics: TopicGates
  /** Whether an operator holds everything back. */
  readonly isAllPaused: () => boolean
  readonly planRules: Omit<PlanRules, 'quota' | 'topics'>
  readonly outcomeRules: Omit<OutcomeRules, 'windowOf' | 'topics'>
  readonly publishTimeoutMs: number
  readonly batch: Pick<BatchWatch, 'begin'>
  readonly signals: SignalBus
  readonly tracing: Tracing
  readonly clock: Clock
  readonly onPublished: (count: number) => void
}

/** While the broker is being probed, little is risked. */
const probe = { heads: 4, chain: 0 }
/** No key takes more than this many rows of a pass while others wait in its lane. */
const smallestQuota = 64

export function relayPass(deps: RelayPassDeps): Pass {
  const { leases, windows, breaker, hints, isAllPaused } = deps
  let isResting = false
  return async (aborting) => {
    if (leases.isRebalanceDue()) await leases.rebalance()
    const held = leases.held()
    if (held.length === 0 || breaker.waitMs() > 0 || !leases.mayWork() || isAllPaused()) return 'idle'

    const found: Found = { rows: [], ranOut: false }
    const named = hints.take(leases.lanes(), isResting)
    const all = windows.plan(held)
    const planned = named === undefined ? all : [all.flat().filter(({ lane }) => named.has(lane))]
    isResting = false
    // A broker that is out of reach is tried once, not twice.
    const parts = (breaker.state() === 'closed' ? planned : [planned.flat()]).map((lanes) =>
      passLanes(deps, { lanes, found }, aborting),
    )
    // All of them end before the next pass begins or lanes are given away, even if one has failed.
    const ended = await Promise.allSettled(parts)
    windows.learn(found.rows, found.ranOut)
    const failed = ended.find((part) => part.status === 'rejected')
    if (failed !== undefined) throw failed.reason
    // Only now: a part that planned before a topic opened may have put something off for it.
    await deps.topics.wakeOpened((opened) => deps.steps.wake(deps, opened))
    isResting = !ended.some((part) => part.status === 'fulfilled' && part.value === 'more')
    return isResting ? 'idle' : 'more'
  }
}

/** What the parts of a pass have read. */
interface Found {
  readonly rows: DispatchRow[]
  ranOut: boolean
}

/** A pass over lanes that nobody else works meanwhile. What it read is added to `found`. */
async function passLanes(
  deps: RelayPassDeps,
  { lanes, found }: { readonly lanes: readonly ReadWindow[]; readonly found: Found },
  aborting: AbortSignal,
): ReturnType<Pass> {
  if (lanes.length === 0) return 'idle'
  // From before the read: the connection that it goes out on may be dead, while others renew the leases.
  const watched = deps.batch.begin()
  try {
    const limits = { ...deps.windows.limits(), ...(deps.breaker.state() === 'probing' ? probe : {}) }
    const batch = await deps.steps.read(deps, { lanes, limits })
    for (const row of batch) found.rows.push(row)
    if (batch.length === 0) return 'idle'
    watched.holds(batch)
    return await passBatch(deps, { batch, lanes, found }, aborting)
  } finally {
    watched.end()
  }
}

async function passBatch(
  deps: RelayPassDeps,
  {
    batch,
    lanes,
    found,
  }: { readonly batch: readonly DispatchRow[]; readonly lanes: readonly ReadWindow[]; readonly found: Found },
  aborting: AbortSignal,
): ReturnType<Pass> {
  const { steps, windows, topics, clock } = deps
  const [startedAt, startedAtMs] = [clock.monotonicMs(), clock.nowMs()]
  const plan = steps.plan(batch, { ...deps.planRules, topics, quota: quotaOf(batch) })
  found.ranOut ||= plan.ranOut
  for (const eventId of plan.missing) deps.signals.emit('relay.event-missing', { relay: deps.relay, eventId })
  const outcomes = plan.messages.length === 0 ? [] : await publish(deps, plan.messages, aborting)
  topics.learn(plan.messages, outcomes)
  const decision = steps.decide(plan, outcomes, { ...deps.outcomeRules, topics, windowOf: (lane) => windows.of(lane) })
  await write(deps, lanes, decision)
  report(deps, decision, startedAt)
  if (deps.tracing.isOn) recordPublished(deps, decision.published, { startedAtMs, endedAtMs: clock.nowMs() })
  return decision.published.length > 0 || !isEmpty(decision.settlement) ? 'more' : 'idle'
}

async function publish(
  deps: RelayPassDeps,
  messages: Parameters<Publisher['publish']>[0],
  aborting: AbortSignal,
): ReturnType<Publisher['publish']> {
  const deadline = deps.clock.monotonicMs() + deps.publishTimeoutMs
  const timeout = AbortSignal.timeout(deps.publishTimeoutMs)
  // Timers are late in a process that was stopped or is busy; so the clock itself is asked before every request.
  const maySend = (): boolean => deps.leases.mayWork() && deps.clock.monotonicMs() < deadline
  return await underSignals([aborting, timeout], (signal) => deps.publisher.publish(messages, { signal, maySend }))
}

/** Clean runs first, by one fenced delete; then the others, one by one if the database refuses a value among them. */
async function write(deps: RelayPassDeps, held: readonly HeldLane[], { confirmed, settlement }: Decision): Promise<void> {
  if (confirmed.length > 0) {
    await writeLanes(deps, used(held, confirmed), (lanes) => deps.steps.confirm(deps, { lanes, confirmed }))
  }
  if (isEmpty(settlement)) return
  try {
    await writeLanes(deps, settledLanes(held, settlement), (lanes) => deps.steps.settle(deps, { lanes, settlement }))
  } catch (error) {
    if (!isRefusedValue(error)) throw error
    await settleApart(deps, held, perKey(settlement, errorMessage(error)))
  }
}

/**
 * Writes what belongs to these lanes. Those whose rows somebody keeps locked are given up, and the rest is written without
 * them: what was published there goes out again, but nothing else does.
 */
async function writeLanes(
  deps: RelayPassDeps,
  lanes: readonly HeldLane[],
  writeTo: (lanes: readonly HeldLane[]) => Promise<readonly number[]>,
): Promise<void> {
  try {
    dropLost(deps, lanes, await writeTo(lanes))
  } catch (error) {
    if (!isLockTimeout(error)) throw error
    const unlocked = await deps.leases.unlocked(lanes)
    dropLost(deps, lanes, unlocked.length === 0 ? [] : await writeTo(unlocked))
  }
}

/** One row that cannot be written must not keep the rest of the batch from being settled. */
async function settleApart(deps: RelayPassDeps, held: readonly HeldLane[], parts: readonly Settlement[]): Promise<void> {
  const refused: unknown[] = []
  for (const settlement of parts) {
    const lanes = settledLanes(held, settlement)
    try {
      dropLost(deps, lanes, await deps.steps.settle(deps, { lanes, settlement }))
    } catch (error) {
      if (!isRefusedValue(error)) throw error
      refused.push(error)
    }
  }
  if (refused.length > 0) throw refused[0]
}

/** The settlement cut into single rows; only the text of an error can be at fault, so it is replaced. */
function perKey({ confirmed, stopped, hold }: Settlement, reason: string): Settlement[] {
  const error = `could not be recorded: ${reason.replaceAll(/[^\x20-\x7e]/g, '?').slice(0, 200)}`
  const parts: Settlement[] = confirmed.map((row) => ({ confirmed: [row], stopped: [], hold: [] }))
  for (const row of stopped) parts.push({ confirmed: [], stopped: [{ ...row, error }], hold: [] })
  if (hold.length > 0) parts.push({ confirmed: [], stopped: [], hold })
  return parts
}

/** A lane that the fence did not return is another's now: nothing was written there, and nothing more will be. */
function dropLost(deps: RelayPassDeps, asked: readonly HeldLane[], mine: readonly number[]): void {
  deps.leases.lose(asked.filter(({ lane }) => !mine.includes(lane)))
}

function report(deps: RelayPassDeps, { published, failures, outage, isReached }: Decision, startedAt: number): void {
  const { signals, relay, breaker, clock } = deps
  if (outage === undefined && isReached) breaker.succeeded()
  if (outage !== undefined) {
    breaker.failed()
    signals.emit('relay.breaker', {
      relay,
      outbox: deps.tables.schema,
      state: breaker.state(),
      error: redactSecrets(outage.message),
    })
  }
  if (published.length > 0) {
    deps.onPublished(published.length)
    const now = clock.nowMs()
    const delaysMs = published.map((row) => now - parseMoment(row.occurred_at))
    signals.emit('relay.published', { relay, count: published.length, durationMs: clock.monotonicMs() - startedAt, delaysMs })
  }
  for (const { row, stopped } of failures) {
    const event = {
      relay,
      eventId: row.event_id,
      aggregateType: row.aggregate_type,
      aggregateId: row.aggregate_id,
      attempts: row.publish_attempts + stopped.charge,
      error: redactSecrets(stopped.error),
    }
    if (stopped.park) signals.emit('relay.parked', event)
    else signals.emit('relay.stopped', { ...event, delayMs: stopped.delayMs })
  }
}

function quotaOf(found: readonly DispatchRow[]): number {
  return Math.max(smallestQuota, Math.ceil(found.length / 4))
}

function settledLanes(held: readonly HeldLane[], { confirmed, stopped, hold }: Settlement): readonly HeldLane[] {
  return used(held, [...confirmed, ...stopped, ...hold])
}

function used(held: readonly HeldLane[], parts: readonly { readonly lane: number }[]): readonly HeldLane[] {
  const lanes = new Set(parts.map(({ lane }) => lane))
  return held.filter(({ lane }) => lanes.has(lane))
}

function isEmpty({ confirmed, stopped, hold }: Settlement): boolean {
  return confirmed.length === 0 && stopped.length === 0 && hold.length === 0
}

/** Records the publishing of those events that belong to a trace. */
function recordPublished(
  { relay, tracing }: { readonly relay: string; readonly tracing: Tracing },
  rows: readonly DispatchRow[],
  times: { readonly startedAtMs: number; readonly endedAtMs: number },
): void {
  for (const row of rows) {
    if (!row.headers.includes('"traceparent"')) continue
    const attributes = {
      'waybill.relay': relay,
      'waybill.event.id': row.event_id,
      'waybill.event.type': row.event_type,
      'waybill.event.version': row.version,
      'waybill.aggregate.type': row.aggregate_type,
      'waybill.aggregate.id': row.aggregate_id,
      'waybill.attempts': row.publish_attempts + 1,
    }
    tracing.record({ name: `publish ${row.event_type}`, kind: 'producer', attributes, parent: headersOf(row) }, times)
  }
}
