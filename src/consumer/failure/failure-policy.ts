/**
 * Decides what becomes of an event that failed alone, or that must not be tried. Pure: settle.ts counts, writes and reports.
 *
 *   outage of what its data is read from, or a lock on its row   not counted: returned with a delay that grows with the outage
 *   another instance has applied it, or is about to              not counted either
 *   discarded by its handler, or forked                          dead letter at once
 *   a dead letter that is redriven                               dead again at once
 *   data that cannot be read                                     counted; dead letter at once
 *   any other failure                                            counted; returned with a growing delay, dead letter after `maxAttempts`
 *
 * With `onPoison: 'stop'` an event that is at the end of its attempts is returned for ever instead.
 */
import { backoffMs } from '../../core/service/backoff.ts'
import { errorMessage } from '../../core/errors.ts'
import { isAbortedTransaction, isLockTimeout } from '../../postgres/query/sql-state.ts'
import { storableError } from '../../postgres/query/storable.ts'
import { transactionAborted } from '../../postgres/transaction/tx-scope.ts'
import { Forked, ItemFailure, type Item, type UnreadItem } from '../model/batch-item.ts'
import type { ConsumerSettings } from '../model/consumer-options.ts'
import { isDiscarded, isRetryAfter } from '../model/handler.ts'
import type { DeadReason } from '../model/received-event.ts'
import type { OutageBackoff } from './outage-backoff.ts'

export interface Failure {
  readonly item: Item
  /** As the batch threw it: an ItemFailure, if the item is to blame for sure. */
  readonly error: unknown
}

/** An event is returned to where it came from, and redelivered after a delay. */
export interface Delay {
  readonly delayMs: number
  readonly error: string
}

export interface DeadLetterDecision {
  readonly reason: DeadReason
  readonly error: string
  readonly attempts: number
}

export type FailureDecision =
  | ({ readonly kind: 'not-counted' } & Delay)
  | ({ readonly kind: 'retry' | 'stopped'; readonly attempts: number } & Delay)
  | ({ readonly kind: 'dead-letter' } & DeadLetterDecision)
  | { readonly kind: 'dead-again'; readonly reason: DeadReason; readonly error: string }

/** The decision on a failure that is not counted; undefined for one that is counted first. */
export function decideAtOnce({ item, error }: Failure, outageBackoff: OutageBackoff): FailureDecision | undefined {
  const { origin, refusal } = item
  const cause = causeOf(error)
  const text = failureText(error)
  if (refusal?.passing === 'outage')
    return { kind: 'not-counted', delayMs: outageBackoff(), error: storableError(errorMessage(refusal.error)) }
  // A lock that a statement of ours met: another transaction has the row.
  if (cause === error && isLockTimeout(error)) return { kind: 'not-counted', delayMs: outageBackoff(), error: text }
  if (isDiscarded(cause)) return { kind: 'dead-letter', reason: 'discarded', error: text, attempts: 1 }
  if (origin.kind === 'dead') return { kind: 'dead-again', reason: refusal?.reason ?? 'failed', error: text }
  if (cause instanceof Forked) return { kind: 'dead-letter', reason: 'forked', error: text, attempts: 1 }
  return undefined
}

export interface Counted extends Failure {
  /** This one included; undefined if another instance has applied the event meanwhile, or is about to. */
  readonly attempts: number | undefined
}

export type FailureSettings = Pick<ConsumerSettings, 'maxAttempts' | 'onPoison' | 'backoff' | 'random'>

/** The decision on a counted failure. */
export function decideCounted(
  { item, error, attempts }: Counted,
  settings: FailureSettings,
  outageBackoff: OutageBackoff,
): FailureDecision {
  const { maxAttempts, onPoison, backoff, random } = settings
  const { refusal } = item
  const cause = causeOf(error)
  const text = failureText(error)
  if (attempts === undefined) return { kind: 'not-counted', delayMs: outageBackoff(), error: text }
  const isFinal = refusal !== undefined && refusal.passing === undefined
  const isPoison = isFinal || attempts >= maxAttempts
  if (isPoison && onPoison === 'dead-letter')
    return { kind: 'dead-letter', reason: refusal?.reason ?? 'failed', error: text, attempts }
  if (isPoison) return { kind: 'stopped', attempts, delayMs: backoff.maxMs, error: text }
  const delayMs = isRetryAfter(cause) ? cause.delayMs : backoffMs(backoff, attempts, random)
  return { kind: 'retry', attempts, delayMs, error: text }
}

export interface Untried {
  readonly item: UnreadItem
  /** Its version is too far ahead to be believed. */
  readonly isJump: boolean
  /** How many processes ended while they handled it. */
  readonly crashes: number
}

/** The dead letter of an item that must not be tried; undefined if it is to be tried. */
export function decideUntried(
  { item, isJump, crashes }: Untried,
  { maxCrashes, maxVersionJump }: Pick<ConsumerSettings, 'maxCrashes' | 'maxVersionJump'>,
): DeadLetterDecision | undefined {
  if (isJump) {
    const error = `Version ${item.event.version} is more than ${maxVersionJump} ahead of what was seen of its aggregate.`
    return { reason: 'version_jump', error, attempts: 1 }
  }
  if (crashes < maxCrashes) return undefined
  return { reason: 'crashed', error: `The process ended ${crashes} times while it handled this event.`, attempts: crashes }
}

/** The longest rest of an event that keeps ending the process and is not given up. */
const longestRestMs = 3_600_000

/** How long an event rests that ended so many processes: twice as long with each one. */
export function restAfterCrashes(
  crashes: number,
  { backoff: { maxMs }, maxCrashes }: Pick<ConsumerSettings, 'backoff' | 'maxCrashes'>,
): number {
  return Math.min(Math.max(maxMs, longestRestMs), maxMs * 2 ** (crashes - maxCrashes))
}

/** What a dead letter does to its aggregate: holds it, lets it go on without the event, or neither. */
export function effectOnAggregate(
  { reason }: Pick<DeadLetterDecision, 'reason'>,
  { onDead }: Pick<ConsumerSettings, 'onDead'>,
): 'hold' | 'pass' | 'none' {
  // Nothing is known of the order of a stream that this process does not read.
  const isBelieved = reason !== 'version_jump' && reason !== 'unknown_stream'
  // After a fork only an operator knows which of the two histories is the true one.
  const holds = reason === 'forked' || (isBelieved && reason !== 'discarded' && onDead === 'hold')
  if (holds) return 'hold'
  return isBelieved ? 'pass' : 'none'
}

/** As it is stored and reported. */
export function failureText(error: unknown): string {
  const cause = causeOf(error)
  return storableError(errorMessage(isAbortedTransaction(cause) ? transactionAborted(cause) : cause))
}

function causeOf(error: unknown): unknown {
  return error instanceof ItemFailure ? error.cause : error
}
