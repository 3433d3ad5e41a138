/**
 * Ends items that were not applied: charged and given back, or buried as dead letters. And acknowledges those that were.
 *
 *   a verdict (unknown type, invalid data)       buried at once
 *   a failure (handler, bytes that are missing)  charged, given back with a growing delay, buried after `maxAttempts`
 *   an outage of what its data is read from,
 *   or somebody else has its rows locked         given back with a growing delay; nobody is charged, and no redrive is over
 *
 * An item is acknowledged only after its effect, its dead letter or its stored copy is committed. An inbox row says that an
 * effect committed, or that a handler discarded the event for good; a dead letter has none, so that a redrive applies it.
 */
import { backoffMs } from '../../core/service/backoff.ts'
import { errorMessage } from '../../core/errors.ts'
import type { Signals } from '../../core/signals.ts'
import { execute, first, one, rows, type Database, type Tx } from '../../postgres/query/database.ts'
import { isAbortedTransaction, isLockTimeout } from '../../postgres/query/sql-state.ts'
import { storableError } from '../../postgres/query/storable.ts'
import { transaction, transactionOptions } from '../../postgres/transaction/transaction.ts'
import { transactionAborted } from '../../postgres/transaction/tx-scope.ts'
import { ackAll } from '../../transport/port/ack-all.ts'
import type { ConsumerSettings } from '../model/consumer-options.ts'
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
  recordSeen,
  releaseAttempts,
  restLetter,
  settleApplied,
  type NewDeadLetter,
} from '../tables/dead-letter.sql.ts'
import { Forked, reportForks } from './forks.ts'
import { removeStored, restStored, storeWaiting, type Scope } from '../tables/inbox.sql.ts'
import type { Item, UnreadItem } from '../model/batch-item.ts'
import type { DeadReason, ForeignMessage, RawMessage } from '../model/received-event.ts'
import { holdOffset } from '../tables/offsets.sql.ts'
import type { Place } from '../model/partition-order.ts'
import { createPatience, type Patience } from './outage-backoff.ts'
import { standsForAll } from '../model/routes.ts'
import { isDiscarded, isRetryAfter } from '../model/handler.ts'
import { lockLane, removeReceived, restReceived, type StoredPlace } from '../tables/stored.sql.ts'
import { moveOver, placeOf, takeOffsets } from '../tables/offsets.ts'
import { businessKeyId } from '../../core/event/id.ts'
import { voidEventType } from '../../core/event/event.ts'
import { oncePer } from '../../core/once-per.ts'

export interface UndertakerDeps {
  readonly settings: ConsumerSettings
  readonly scope: Scope
  /** It rests for so long. The later ones of this aggregate are given back by the broker as well. */
  readonly onGivenBack: (item: UnreadItem, restMs: number) => void
  /** See `guardedBy`. */
  readonly guard?: ((tx: Tx) => Promise<void>) | undefined
  /** With outages that an item met alone. @default one of its own */
  readonly patience?: Patience | undefined
}

export interface Undertaker {
  ack(items: readonly UnreadItem[]): Promise<void>
  /**
   * An item failed alone. What is to become of it is another step, so that an outage in that one charges nobody again. A letter
   * that is redriven dies again at once, and what is redriven behind it with it.
   */
  charge(item: Item, error: unknown): Promise<Verdict | 'dead again'>
  /** An item met an outage alone. */
  putOff(item: UnreadItem, error: unknown): Promise<Verdict>
  /** Gives back an item, and what is behind it in line. */
  giveBack(item: UnreadItem, rest: Rest): Promise<void>
  /** Makes a dead letter, at once. */
  bury(item: UnreadItem, burial: Burial): Promise<void>
  buryForeign(delivered: ForeignDelivery): Promise<void>
  /** Tells that an item is not given up, although it cannot be applied. */
  reportStopped(item: UnreadItem, why: Pick<Burial, 'attempts' | 'error'>): void
  /** Gives back an item whose predecessor failed. */
  follow(item: UnreadItem, marked: boolean): Promise<void>
  /** Gives back items, and what is behind them in line, without another word to the database. */
  giveUp(items: readonly UnreadItem[], delayMs: number): void
  /** The same, for items that may be lost to another: `guard` is called first in every transaction that buries, and throws if they are. */
  guardedBy(guard: UndertakerDeps['guard']): Undertaker
}

/** Whether an item comes again after a rest, for which it is given back, or is buried. */
export type Verdict = { readonly rest: Rest } | { readonly burial: Burial }

export interface Rest {
  readonly delayMs: number
  readonly error: string
}

export interface Burial {
  readonly reason: DeadReason
  readonly error: string
  readonly attempts: number
}

export interface ForeignDelivery {
  readonly message: RawMessage
  readonly foreign: ForeignMessage
  readonly place?: Place | undefined
}

export function createUndertaker(deps: UndertakerDeps): Undertaker {
  const { settings, scope, patience = createPatience(settings) } = deps
  const undertaker: Undertaker = {
    ack: async (items) => {
      const outcomes = await ackAll(items.flatMap(({ origin }) => (origin.kind === 'delivery' ? origin.delivery : [])))
      const count = outcomes.filter((outcome) => outcome !== 'confirmed').length
      if (count > 0) settings.signals.emit('consumer.ack-unconfirmed', { consumer: scope.consumer, count })
    },
    charge: async (item, error) => {
      if (item.refusal?.passing === 'outage') return await undertaker.putOff(item, item.refusal.error)
      return (await charge(deps, { item, error })) ?? (await undertaker.putOff(item, error))
    },
    putOff: async (item, error) => {
      const rest = { delayMs: patience(), error: storableError(errorMessage(error)) }
      await execute(settings.db, releaseAttempts(scope, [item.event.id]))
      settings.signals.emit('consumer.retried', { consumer: scope.consumer, count: 1, ...rest })
      return { rest }
    },
    giveBack: (item, rest) => giveBack(deps, item, rest),
    bury: (item, burial) => buryItem(deps, undertaker, { item, ...burial }),
    buryForeign: async ({ message, foreign: { id, type, problem }, place }) => {
      const burial = {
        eventId: id,
        eventType: type,
        aggregate: undefined,
        message,
        reason: 'not_ours' as const,
        error: storableError(problem),
        attempts: 1,
        holds: false,
      }
      await transaction(settings.db, async (tx) => {
        if (place !== undefined) await moveOver(tx, scope, [place])
        await makeDeadLetter(tx, scope, burial)
      })
      report(deps, {
        ...describeForeign(message, { id, type }),
        reason: 'not_ours',
        attempts: 1,
        held: false,
        error: storableError(problem),
      })
    },
    reportStopped: (item, why) => reportStopped(deps, item, why),
    follow: async (item, marked) => {
      if (marked) await execute(settings.db, releaseAttempts(scope, [item.event.id]))
      if (item.origin.kind === 'delivery') await item.origin.delivery.nack()
    },
    giveUp: (items, delayMs) => {
      for (const item of items) {
        if (item.origin.kind !== 'delivery') continue
        void item.origin.delivery.nack(delayMs)
        deps.onGivenBack(item, delayMs)
      }
    },
    guardedBy: (guard) => createUndertaker({ ...deps, guard, patience }),
  }
  return undertaker
}

interface Failed {
  readonly item: Item
  readonly error: unknown
}

/** Undefined if it is another instance's by now. */
async function charge(deps: UndertakerDeps, { item, error }: Failed): Promise<Verdict | 'dead again' | undefined> {
  const { settings, scope } = deps
  const { event, origin, refusal } = item
  const text = storableError(errorMessage(isAbortedTransaction(error) ? transactionAborted(error) : error))
  if (isDiscarded(error)) return { burial: { reason: 'discarded', error: text, attempts: 1 } }
  if (origin.kind === 'dead') {
    const held = settings.onDead === 'hold'
    const followers = await counting(settings, async (tx) => {
      const isDead = (await execute(tx, markFailed(scope, origin.letterId, text))) > 0
      await execute(tx, forgetAttempts(scope, [event.id]))
      if (!isDead) return []
      const later = await failFollowers(tx, deps, item)
      // Whoever held it may have been settled since.
      if (held) await execute(tx, holdAggregate(scope, item))
      return later
    })
    report(deps, { ...describe(item), reason: refusal?.reason ?? 'failed', attempts: 1, held, error: text })
    for (const follower of followers) report(deps, follower)
    return 'dead again'
  }
  if (error instanceof Forked) return { burial: { reason: 'forked', error: text, attempts: 1 } }
  const attempts = await countFailure(deps, item, text)
  if (attempts === undefined) return undefined
  const isVerdict = refusal !== undefined && refusal.passing === undefined
  const isPoison = isVerdict || attempts >= settings.maxAttempts
  if (isPoison && settings.onPoison === 'dead-letter')
    return { burial: { reason: refusal?.reason ?? 'failed', error: text, attempts } }
  const backoff = isPoison ? settings.backoff.maxMs : backoffMs(settings.backoff, attempts, settings.random)
  const delayMs = isRetryAfter(error) && !isPoison ? error.delayMs : backoff
  if (isPoison) reportStopped(deps, item, { attempts, error: text })
  else settings.signals.emit('consumer.failed', { ...describe(item), consumer: scope.consumer, attempts, delayMs, error: text })
  return { rest: { delayMs, error: text } }
}

/**
 * How often it has failed; undefined if another instance has applied it meanwhile, or is about to: what is counted then would outlive
 * its effect. Its offset is held and it is recorded as seen first, as whoever applies it does, and not for long.
 */
async function countFailure({ settings, scope }: UndertakerDeps, item: Item, error: string): Promise<number | undefined> {
  const { event } = item
  const place = placeOf(item)
  const count = async (tx: Tx): Promise<number | undefined> => {
    const [offset] = place === undefined ? [] : await rows(tx, holdOffset(scope, place))
    if (offset?.is_done === true) return undefined
    const isFresh = (await rows(tx, recordSeen(scope, { eventId: event.id, source: event.aggregateType }))).length > 0
    if (!isFresh) return undefined
    const { attempts } = await one(tx, chargeAttempt(scope, event.id, error))
    await execute(tx, forgetSeen(scope, event.id))
    return attempts
  }
  try {
    return await counting(settings, count, 'unless locked')
  } catch (failure) {
    if (isLockTimeout(failure)) return undefined
    throw failure
  }
}

function reportStopped(
  { settings, scope }: UndertakerDeps,
  item: UnreadItem,
  { attempts, error }: Pick<Burial, 'attempts' | 'error'>,
): void {
  settings.signals.emit('consumer.stopped', { ...describe(item), consumer: scope.consumer, attempts, error })
}

async function giveBack(deps: UndertakerDeps, item: UnreadItem, rest: Rest): Promise<void> {
  const { settings, scope } = deps
  const { origin } = item
  if (origin.kind === 'waiting') await execute(settings.db, restStored(scope, item, rest))
  else if (origin.kind === 'stored') await restInLine(settings.db, scope, { place: origin, ...rest })
  else if (origin.kind === 'dead') await execute(settings.db, restLetter(scope, origin.letterId, rest.delayMs))
  else await origin.delivery.nack(rest.delayMs)
  deps.onGivenBack(item, rest.delayMs)
}

/** The dead letter, the aggregate's position and what becomes of the item's own row commit together; then it is acknowledged. */
async function buryItem(
  deps: UndertakerDeps,
  undertaker: Undertaker,
  { item, reason, error, attempts }: Burial & { readonly item: UnreadItem },
): Promise<void> {
  const { settings, scope, guard } = deps
  const { event, message, origin } = item
  // Nothing is known of the order of a stream that nobody reads: its letters neither hold an aggregate nor move it.
  const isBelieved = reason !== 'version_jump' && reason !== 'unknown_stream'
  // After a fork only an operator knows which of the two histories is the true one.
  const holds = reason === 'forked' || (isBelieved && reason !== 'discarded' && settings.onDead === 'hold')
  const aggregate =
    reason !== 'version_jump' ? { type: event.aggregateType, id: event.aggregateId, version: event.version } : undefined
  const followers = await transaction(settings.db, async (tx) => {
    await guard?.(tx)
    const isDone = (await takeOffsets(tx, scope, [item])).length === 0
    if (isDone) return undefined
    const isSettled = origin.kind === 'dead' && (await rows(tx, lockRedriving(scope, [origin.letterId]))).length === 0
    const burial = {
      eventId: event.id,
      eventType: event.type,
      aggregate,
      message,
      reason,
      error: storableError(error),
      attempts,
      holds,
    }
    const letter = isSettled ? undefined : await makeDeadLetter(tx, scope, burial)
    await execute(tx, forgetAttempts(scope, [event.id]))
    if (origin.kind === 'waiting') await execute(tx, removeStored(scope, [event.id]))
    if (origin.kind === 'stored') await execute(tx, removeReceived(scope, [origin]))
    if (letter === undefined) return undefined
    if (holds) await execute(tx, holdAggregate(scope, item))
    else if (isBelieved) await passOver(tx, scope, { ...item, closesGap: closesGap(item) })
    if (reason === 'discarded' && settings.inbox)
      await rows(tx, recordSeen(scope, { eventId: event.id, source: event.aggregateType }))
    return holds ? await failFollowers(tx, deps, item) : []
  })
  if (followers !== undefined) report(deps, { ...describe(item), reason, attempts, held: holds, error: storableError(error) })
  if (followers !== undefined && reason === 'forked') reportForks(deps, [item])
  for (const follower of followers ?? []) report(deps, follower)
  await undertaker.ack([item])
}

function closesGap({ route }: UnreadItem): boolean {
  return route !== undefined && standsForAll(route)
}

type Death = Omit<Signals['consumer.dead'], 'consumer'>
type Described = Omit<Death, 'reason' | 'attempts' | 'held' | 'error'>

function report({ settings, scope }: UndertakerDeps, dead: Death): void {
  settings.signals.emit('consumer.dead', { consumer: scope.consumer, ...dead })
}

function describe({ event, message }: UnreadItem): Described {
  const { id: eventId, type: eventType, aggregateType, aggregateId } = event
  const { messageId, orderingKey } = message
  return { eventId, messageId, orderingKey, eventType, aggregateType, aggregateId }
}

function describeForeign({ messageId, orderingKey }: RawMessage, { id, type }: Pick<ForeignMessage, 'id' | 'type'>): Described {
  return { eventId: id, messageId, orderingKey, eventType: type, aggregateType: '', aggregateId: '' }
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
): Promise<readonly Omit<Signals['consumer.dead'], 'consumer'>[]> {
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

export interface PassedOver extends Pick<Item, 'event' | 'message'> {
  /** Versions of its aggregate are taken one after the other, or nobody knows. */
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
export async function passOver(tx: Tx, scope: Scope, passed: PassedOver): Promise<void> {
  const { passed: wasNext } = await one(tx, moveOverEvent(scope, passed))
  const isPast = wasNext || (passed.closesGap && (await rows(tx, moveOverGap(scope, passed))).length > 0)
  if (!isPast) await execute(tx, storeWaiting(scope, [voidOf(passed)]))
}

/** Always the same for one event, so that it is in line once however often the event is given up. */
function voidOf({ event, message }: PassedOver): Pick<Item, 'event' | 'message'> {
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
export async function restInLine(
  db: Database | Tx,
  scope: Scope,
  { place, ...rest }: { readonly place: StoredPlace; readonly delayMs: number; readonly error: string },
): Promise<void> {
  const put = async (tx: Tx): Promise<void> => {
    await execute(tx, lockLane(scope, place.lane))
    await execute(tx, restReceived(scope, place, rest))
  }
  // He who has the lane now may work for longer than others wait for a lock.
  await transaction(db, put, unlimitedLocks)
}

const unlimitedLocks = transactionOptions({ lockTimeoutMs: 0 })

/**
 * Writes what counts in a transaction of its own. There the server ends a statement that takes too long, and nothing has counted;
 * a single statement that was given up would land some time, besides the one that was sent in its place.
 */
export async function counting<Result>(
  settings: ConsumerSettings,
  write: (tx: Tx) => Promise<Result>,
  how: 'waiting' | 'unless locked' = 'waiting',
): Promise<Result> {
  const { waiting, unlessLocked } = optionsOf(settings)
  return await transaction(settings.db, write, how === 'waiting' ? waiting : unlessLocked)
}

/** Who has a row for longer may have it for as long as a handler takes. */
const shortLockMs = 100

const optionsOf = oncePer(({ statementTimeoutMs, lockTimeoutMs, signals, clock, random }: ConsumerSettings) => {
  const common = { statementTimeoutMs, signals, clock, random }
  return {
    waiting: transactionOptions({ ...common, lockTimeoutMs }),
    unlessLocked: transactionOptions({ ...common, lockTimeoutMs: Math.min(lockTimeoutMs, shortLockMs) }),
  }
})
