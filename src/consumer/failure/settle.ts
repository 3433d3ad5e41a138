/**
 * Settles events that were not applied: executes what failure-policy.ts decided, each decision in one transaction. And acknowledges.
 *
 * An event is acknowledged only after its effect, its dead letter or its stored copy is committed. An inbox row says that an
 * effect committed, or that a handler discarded the event for good; a dead letter has none, so that a redrive applies it.
 */
import { businessKeyId } from '../../core/event/id.ts'
import { voidEventType } from '../../core/event/event.ts'
import { oncePer } from '../../core/options.ts'
import { execute, first, one, rows, type Database, type Tx } from '../../postgres/query/database.ts'
import { isLockTimeout } from '../../postgres/query/sql-state.ts'
import { storableError } from '../../postgres/query/storable.ts'
import { transaction, transactionOptions } from '../../postgres/transaction/transaction.ts'
import { ackAll } from '../../transport/port/ack-all.ts'
import type { Delivery } from '../../transport/port/transport.ts'
import { placeOf, type Item, type UnreadItem } from '../model/batch-item.ts'
import type { ConsumerSettings } from '../model/consumer-options.ts'
import type { BatchEvents } from '../model/observer.ts'
import type { Place } from '../model/partition-order.ts'
import type { ForeignMessage, RawMessage } from '../model/received-event.ts'
import { standsForAll } from '../model/routes.ts'
import {
  bury,
  chargeAttempt,
  forgetAttempts,
  forgetSeen,
  holdAggregate,
  lockLetter,
  lockRedriving,
  markFailed,
  markFollowersFailed,
  moveOverEvent,
  moveOverGap,
  readRest,
  recordSeen,
  releaseAttempts,
  restLetter,
  settleApplied,
  type NewDeadLetter,
} from '../tables/dead-letter.sql.ts'
import { removeStored, restStored, storeWaiting, type Scope } from '../tables/inbox.sql.ts'
import { moveOver, takeOffsets } from '../tables/offsets.ts'
import { holdOffset } from '../tables/offsets.sql.ts'
import { lockLane, removeReceived, restReceived, type StoredPlace } from '../tables/stored.sql.ts'
import {
  decideAtOnce,
  decideCounted,
  decideUntried,
  effectOnAggregate,
  failureText,
  restAfterCrashes,
  type DeadLetterDecision,
  type Delay,
  type Failure,
  type FailureDecision,
  type Untried,
} from './failure-policy.ts'
import type { OutageBackoff } from './outage-backoff.ts'
import { describe, reportDead, reportFailed, reportForks, reportStopped, type Dead } from './report.ts'
import { retryOutages, type StepDeps } from './retry-outages.ts'

export interface SettleDeps {
  readonly settings: ConsumerSettings
  readonly scope: Scope
  readonly events: Pick<BatchEvents, 'returned'>
  /** First in every transaction that makes a dead letter; throws LostClaimError if the items are another instance's by now. */
  readonly guard?: ((tx: Tx) => Promise<void>) | undefined
}

export interface FailureDeps extends SettleDeps, StepDeps {
  readonly settings: ConsumerSettings
  /** Delays of events that met an outage alone. */
  readonly outageBackoff: OutageBackoff
}

/**
 * Settles an item that failed alone; the result is whether it was returned. What was decided is executed as a step of its own: a failure is
 * counted once, however often an outage interrupts what follows.
 */
export async function settleFailed(deps: FailureDeps, failure: Failure): Promise<boolean> {
  const decision = await retryOutages(deps, 1, () => recordFailure(deps, failure))
  if (decision.kind === 'dead-letter') await retryOutages(deps, 1, () => deadLetterItem(deps, failure.item, decision))
  else if (decision.kind !== 'dead-again') await retryOutages(deps, 1, () => returnItem(deps, failure.item, decision))
  return decision.kind !== 'dead-letter'
}

/**
 * Settles an item that must not be tried: its version is too far ahead to be believed, or it kept ending the process. It becomes a dead
 * letter; with `onPoison: 'stop'` a jump is redelivered until an operator acts, and an item that ends processes rests, twice as long
 * with each of them, and has another try after that. A letter that is redriven was given up before: it stays a letter.
 */
export async function settleUntried(deps: FailureDeps, untried: Untried): Promise<'try' | 'settled' | 'returned'> {
  const { settings, scope } = deps
  const { item, isJump, crashes } = untried
  const decision = decideUntried(untried, settings)
  if (decision === undefined) return 'try'
  if (settings.onPoison !== 'stop' || item.origin.kind === 'dead') {
    await retryOutages(deps, 1, () => deadLetterItem(deps, item, decision))
    return 'settled'
  }
  const { maxMs } = settings.backoff
  let delayMs = maxMs
  if (!isJump) {
    const [last] = await retryOutages(deps, 1, () => rows(settings.db, readRest(scope, item.event.id)))
    const restMs = last === undefined ? 0 : restAfterCrashes(crashes, settings) - last.ms
    if (restMs <= 0) return 'try'
    delayMs = Math.min(restMs, maxMs)
  }
  await retryOutages(deps, 1, () => returnItem(deps, item, { delayMs, error: decision.error }))
  reportStopped(deps, item, decision)
  return 'returned'
}

/** Counts a failure if it counts, and writes and reports what was decided, except a return or a dead letter. */
async function recordFailure(deps: FailureDeps, failure: Failure): Promise<FailureDecision> {
  const { settings, scope, outageBackoff } = deps
  const { item } = failure
  const decision =
    decideAtOnce(failure, outageBackoff) ??
    decideCounted({ ...failure, attempts: await countFailure(deps, failure) }, settings, outageBackoff)
  if (decision.kind === 'dead-again') await failAgain(deps, item, decision)
  if (decision.kind === 'retry') reportFailed(deps, item, decision)
  if (decision.kind === 'stopped') reportStopped(deps, item, decision)
  if (decision.kind === 'not-counted') {
    const { delayMs, error } = decision
    await execute(settings.db, releaseAttempts(scope, [item.event.id]))
    settings.signals.emit('consumer.retried', { consumer: scope.consumer, count: 1, delayMs, error })
  }
  return decision
}

/** A redriven letter failed again: it stays dead, and what is redriven behind it dies with it. */
async function failAgain(
  deps: FailureDeps,
  item: Item,
  { reason, error }: Extract<FailureDecision, { readonly kind: 'dead-again' }>,
): Promise<void> {
  const { settings, scope } = deps
  if (item.origin.kind !== 'dead') return
  const { letterId } = item.origin
  const held = settings.onDead === 'hold'
  const followers = await inOwnTransaction(settings, async (tx) => {
    const isDead = (await execute(tx, markFailed(scope, letterId, error))) > 0
    await execute(tx, forgetAttempts(scope, [item.event.id]))
    if (!isDead) return []
    const later = await failFollowers(tx, deps, item)
    // The letter that held it may have been settled since.
    if (held) await execute(tx, holdAggregate(scope, item))
    return later
  })
  reportDead(deps, { ...describe(item), reason, attempts: 1, held, error })
  for (const follower of followers) reportDead(deps, follower)
}

/**
 * How often it has failed; undefined if another instance has applied it meanwhile, or is about to: what is counted then would outlive
 * its effect. Its offset is held and it is recorded as seen first, as an instance that applies it does, and not for long.
 */
async function countFailure({ settings, scope }: FailureDeps, { item, error }: Failure): Promise<number | undefined> {
  const { event } = item
  const place = placeOf(item)
  const count = async (tx: Tx): Promise<number | undefined> => {
    const [offset] = place === undefined ? [] : await rows(tx, holdOffset(scope, place))
    if (offset?.is_done === true) return undefined
    const isFresh = (await rows(tx, recordSeen(scope, { eventId: event.id, source: event.aggregateType }))).length > 0
    if (!isFresh) return undefined
    const { attempts } = await one(tx, chargeAttempt(scope, event.id, failureText(error)))
    await execute(tx, forgetSeen(scope, event.id))
    return attempts
  }
  try {
    return await inOwnTransaction(settings, count, 'unless locked')
  } catch (failure) {
    if (isLockTimeout(failure)) return undefined
    throw failure
  }
}

/** Returns an item to where it came from, and what is behind it in line. */
async function returnItem({ settings, scope, events }: SettleDeps, item: UnreadItem, { delayMs, error }: Delay): Promise<void> {
  const { origin } = item
  if (origin.kind === 'waiting') await execute(settings.db, restStored(scope, item, { delayMs, error }))
  else if (origin.kind === 'stored') await delayAtHead(settings.db, scope, { place: origin, delayMs, error })
  else if (origin.kind === 'dead') await execute(settings.db, restLetter(scope, origin.letterId, delayMs))
  else await origin.delivery.nack(delayMs)
  events.returned(item, delayMs)
}

/** Returns items, and what is behind them in line, without a statement. */
export function returnAll({ events }: Pick<SettleDeps, 'events'>, items: readonly UnreadItem[], delayMs: number): void {
  for (const item of items) {
    if (item.origin.kind !== 'delivery') continue
    void item.origin.delivery.nack(delayMs)
    events.returned(item, delayMs)
  }
}

/** Returns an item whose predecessor failed, without a delay: it comes behind that one. */
export async function returnFollower({ settings, scope }: SettleDeps, item: UnreadItem, isMarked: boolean): Promise<void> {
  if (isMarked) await execute(settings.db, releaseAttempts(scope, [item.event.id]))
  if (item.origin.kind === 'delivery') await item.origin.delivery.nack()
}

/** The dead letter, the aggregate's position and what becomes of the item's own row commit together; then it is acknowledged. */
export async function deadLetterItem(
  deps: SettleDeps,
  item: UnreadItem,
  { reason, error, attempts }: DeadLetterDecision,
): Promise<void> {
  const { settings, scope, guard } = deps
  const { event, message, origin } = item
  const effect = effectOnAggregate({ reason }, settings)
  const held = effect === 'hold'
  const text = storableError(error)
  const aggregate =
    reason !== 'version_jump' ? { type: event.aggregateType, id: event.aggregateId, version: event.version } : undefined
  const followers = await transaction(settings.db, async (tx) => {
    await guard?.(tx)
    const isDone = (await takeOffsets(tx, scope, [item])).length === 0
    if (isDone) return undefined
    const isSettled = origin.kind === 'dead' && (await rows(tx, lockRedriving(scope, [origin.letterId]))).length === 0
    const draft = { eventId: event.id, eventType: event.type, aggregate, message, reason, error: text, attempts, holds: held }
    const letter = isSettled ? undefined : await makeDeadLetter(tx, scope, draft)
    await execute(tx, forgetAttempts(scope, [event.id]))
    if (origin.kind === 'waiting') await execute(tx, removeStored(scope, [event.id]))
    if (origin.kind === 'stored') await execute(tx, removeReceived(scope, [origin]))
    if (letter === undefined) return undefined
    if (held) await execute(tx, holdAggregate(scope, item))
    else if (effect === 'pass') await skipVersion(tx, scope, { ...item, closesGap: closesGap(item) })
    if (reason === 'discarded' && settings.inbox)
      await rows(tx, recordSeen(scope, { eventId: event.id, source: event.aggregateType }))
    return held ? await failFollowers(tx, deps, item) : []
  })
  if (followers !== undefined) {
    reportDead(deps, { ...describe(item), reason, attempts, held, error: text })
    if (reason === 'forked') reportForks(deps, [item])
    for (const follower of followers) reportDead(deps, follower)
  }
  await ackItems(deps, [item])
}

function closesGap({ route }: UnreadItem): boolean {
  return route !== undefined && standsForAll(route)
}

/** Makes a dead letter of a message that is no event. */
export async function deadLetterForeign(
  deps: Pick<SettleDeps, 'settings' | 'scope'>,
  message: RawMessage,
  { id, type, problem }: ForeignMessage,
  place: Place | undefined,
): Promise<void> {
  const { settings, scope } = deps
  const dead = { reason: 'not_ours', attempts: 1, error: storableError(problem) } as const
  await transaction(settings.db, async (tx) => {
    if (place !== undefined) await moveOver(tx, scope, [place])
    await makeDeadLetter(tx, scope, { ...dead, eventId: id, eventType: type, aggregate: undefined, message, holds: false })
  })
  const { messageId, orderingKey } = message
  const described = { eventId: id, messageId, orderingKey, eventType: type, aggregateType: '', aggregateId: '' }
  reportDead(deps, { ...described, ...dead, held: false })
}

/** Acknowledges the deliveries among the items. */
export async function ackItems({ settings }: Pick<SettleDeps, 'settings'>, items: readonly UnreadItem[]): Promise<void> {
  const deliveries = items.flatMap(({ origin }) => (origin.kind === 'delivery' ? origin.delivery : []))
  await confirmDeliveries(settings, deliveries)
}

/** Acknowledges deliveries, and tells how many acks were not confirmed. */
export async function confirmDeliveries(
  { signals, name }: Pick<ConsumerSettings, 'signals' | 'name'>,
  deliveries: readonly Delivery[],
): Promise<void> {
  const outcomes = await ackAll(deliveries)
  const count = outcomes.filter((outcome) => outcome !== 'confirmed').length
  if (count > 0) signals.emit('consumer.ack-unconfirmed', { consumer: name, count })
}

/**
 * Ends the redrive of what is behind a letter that died again. Returns what is to be told of each; nothing, if the item is no letter.
 *
 *   version 1, redriving ──fails──▶ dead, holds its aggregate
 *   version 2, redriving ─────────▶ dead, untried
 *
 * A redriven letter passes a hold, so that an operator can settle a later letter first. Redriven together they come in order: left as
 * it is, the later one would be found alone by the next look, and applied. Wherever it is (in the batch of the one that failed, beyond
 * it or at rest) it is decided with that one, in its transaction. What takes its turn, as a delta does, is stored behind the gap
 * instead. With `onDead: 'pass'` everything goes on, and so does what has no ordering key.
 */
export async function failFollowers(
  tx: Tx,
  { settings, scope }: { readonly settings: Pick<ConsumerSettings, 'onDead'>; readonly scope: Scope },
  item: UnreadItem,
): Promise<readonly Dead[]> {
  if (item.origin.kind !== 'dead' || settings.onDead !== 'hold') return []
  const { aggregateType, aggregateId, version } = item.event
  const error = `Version ${version} of its aggregate failed again before it; this one was not tried.`
  const followers = await rows(tx, markFollowersFailed(scope, item, error))
  return followers.map((row) => ({
    eventId: row.event_id,
    messageId: row.message_id,
    orderingKey: row.ordering_key ?? undefined,
    eventType: row.event_type,
    aggregateType,
    aggregateId,
    reason: row.reason,
    attempts: 0,
    held: true,
    error,
  }))
}

export interface SkippedVersion extends Pick<Item, 'event' | 'message'> {
  /** Versions of its aggregate are taken one after the other, or it is not known. */
  readonly sequential: boolean
  /** It stands for everything before it. */
  readonly closesGap: boolean
}

/**
 * Lets an aggregate go on without an event that was given up.
 *
 * Usually it was the event's turn, and the position moves over it. If versions before it are missing, they may still come:
 * an empty message takes its place in line, and is passed when its turn comes. A state has its turn before versions that are
 * missing, and nothing waits for them because of it: the position moves over it, unless some of them are in the table. Those
 * that come later count as covered by it, as they would if it had been applied.
 */
export async function skipVersion(tx: Tx, scope: Scope, passed: SkippedVersion): Promise<void> {
  const { passed: wasNext } = await one(tx, moveOverEvent(scope, passed))
  const isPast = wasNext || (passed.closesGap && (await rows(tx, moveOverGap(scope, passed))).length > 0)
  if (!isPast) await execute(tx, storeWaiting(scope, [voidOf(passed)]))
}

/** Always the same for one event, so that it is in line once however often the event is given up. */
function voidOf({ event, message }: SkippedVersion): Pick<Item, 'event' | 'message'> {
  const id = businessKeyId(voidEventType, event.id)
  const attributes = { ...message.attributes, event_id: id, event_type: voidEventType }
  return { event: { ...event, id, type: voidEventType }, message: { ...message, attributes, body: new Uint8Array() } }
}

/**
 * Makes a dead letter of a message, unless its effect is committed. Returns the letter's id, or nothing if there was no need of one.
 *
 * The event is recorded in the inbox first, as an instance that applies it does: the one waits for the other. Then the record is taken
 * back, so that a redrive applies it. A letter that the event has already is settled, if its effect is committed.
 */
export async function makeDeadLetter(tx: Tx, scope: Scope, draft: NewDeadLetter): Promise<string | undefined> {
  const { eventId, aggregate, message } = draft
  await execute(tx, lockLetter(scope, eventId))
  const fresh = await first(tx, recordSeen(scope, { eventId, source: aggregate?.type ?? message.topic }))
  if (fresh === undefined) {
    await execute(tx, settleApplied(scope, [eventId]))
    return undefined
  }
  const letter = await first(tx, bury(scope, draft))
  await execute(tx, forgetSeen(scope, eventId))
  return letter?.id
}

/**
 * Lets a stored message that failed rest in its line.
 *
 * An instance that lost the lane may come here while the one that has it now is in a transaction. The lane is locked first, and by a
 * statement of its own: what is done then is decided by what that transaction left, so no line is left without a head.
 */
export async function delayAtHead(
  db: Database | Tx,
  scope: Scope,
  { place, ...rest }: { readonly place: StoredPlace; readonly delayMs: number; readonly error: string },
): Promise<void> {
  const put = async (tx: Tx): Promise<void> => {
    await execute(tx, lockLane(scope, place.lane))
    await execute(tx, restReceived(scope, place, rest))
  }
  // The instance that has the lane now may work for longer than others wait for a lock.
  await transaction(db, put, unlimitedLocks)
}

const unlimitedLocks = transactionOptions({ lockTimeoutMs: 0 })

/**
 * Writes what counts in a transaction of its own. There the server ends a statement that takes too long, and nothing has counted;
 * a single statement that was given up would land some time, besides the one that was sent in its place.
 */
export async function inOwnTransaction<Result>(
  settings: ConsumerSettings,
  write: (tx: Tx) => Promise<Result>,
  how: 'waiting' | 'unless locked' = 'waiting',
): Promise<Result> {
  const { waiting, unlessLocked } = optionsOf(settings)
  return await transaction(settings.db, write, how === 'waiting' ? waiting : unlessLocked)
}

/** A row that is locked for longer may be locked for as long as a handler takes. */
const shortLockMs = 100

const optionsOf = oncePer(({ statementTimeoutMs, lockTimeoutMs, signals, clock, random }: ConsumerSettings) => {
  const common = { statementTimeoutMs, signals, clock, random }
  return {
    waiting: transactionOptions({ ...common, lockTimeoutMs }),
    unlessLocked: transactionOptions({ ...common, lockTimeoutMs: Math.min(lockTimeoutMs, shortLockMs) }),
  }
})
