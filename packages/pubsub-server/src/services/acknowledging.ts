/**
 * Acknowledging and changing deadlines, for unary calls and streams alike.
 *
 * Without exactly-once delivery an id that names no lease is ignored, as Google does: the lease has ended and the
 * message comes again. With it, each id has an outcome that the caller is told.
 */
import type { Subscription } from '../broker/topic.ts'
import type { Faults } from '../model/faults.ts'
import { invalid, RpcError } from '../model/rpc-error.ts'
import { formatDigits, noNumber } from '../protocol/digits.ts'
import type { AckIds } from '../protocol/subscriber-codec.ts'

export interface AckOutcomes {
  readonly done: string[]
  readonly invalid: string[]
  readonly unordered: string[]
  readonly transient: string[]
}

/** Acknowledges each id. The outcomes are listed only where somebody is told: with exactly-once delivery. */
export function acknowledge(subscription: Subscription, ids: AckIds, faults: Faults): AckOutcomes {
  const { queue } = subscription
  const { isExactlyOnce } = queue.policy
  const outcomes = noOutcomes(ids)
  for (const leaseId of ids.leaseIds) {
    if (leaseId === noNumber) continue
    const isDropped = faults.strikes('dropAcks')
    const outcome = isDropped ? 'transient' : queue.ack(leaseId)
    if (isExactlyOnce) outcomes[outcome].push(formatDigits(leaseId))
  }
  return outcomes
}

/** Gives each lease its new deadline; zero seconds gives the message back. */
export function modifyDeadlines(subscription: Subscription, ids: AckIds, secondsOf: (index: number) => number): AckOutcomes {
  const { queue } = subscription
  const { isExactlyOnce } = queue.policy
  const outcomes = noOutcomes(ids)
  ids.leaseIds.forEach((leaseId, index) => {
    if (leaseId === noNumber) return
    const outcome = queue.modify(leaseId, secondsOf(index))
    if (isExactlyOnce) outcomes[outcome].push(formatDigits(leaseId))
  })
  return outcomes
}

export function checkDeadline(seconds: number): void {
  if (seconds < 0 || seconds > 600) throw invalid(`Invalid ack deadline given: ${seconds}. It must be from 0 to 600 seconds.`)
}

/** Throws when an id cannot have come from this service. */
export function checkAckIds(ids: AckIds): void {
  const [malformed] = ids.malformed
  if (ids.leaseIds.length === 0) throw invalid('No ack ids specified.')
  if (malformed !== undefined) throw invalid(`You have passed an invalid ack ID to the service (ack_id=${malformed}).`)
}

/**
 * Throws a status with the outcome of each id, as the official clients expect it of a unary call, when one has failed.
 *
 * Clients take an id without an outcome as failed for good. So those that succeeded are listed too, as to be tried
 * again: the repetition finds them acknowledged and succeeds. The status is one that no client repeats as a whole.
 */
export function throwFailures(outcomes: AckOutcomes): void {
  const failures = new Map<string, string>()
  for (const ackId of outcomes.invalid) failures.set(ackId, 'PERMANENT_FAILURE_INVALID_ACK_ID')
  for (const ackId of outcomes.unordered) failures.set(ackId, 'TRANSIENT_FAILURE_UNORDERED_ACK_ID')
  for (const ackId of outcomes.transient) failures.set(ackId, 'TRANSIENT_FAILURE_SERVICE_UNAVAILABLE')
  if (failures.size === 0) return
  for (const ackId of outcomes.done) failures.set(ackId, 'TRANSIENT_FAILURE_SERVICE_UNAVAILABLE')
  throw new RpcError('FAILED_PRECONDITION', 'Some acknowledgement ids were not processed; see the details of each.', failures)
}

function noOutcomes(ids: AckIds): AckOutcomes {
  return { done: [], invalid: [...ids.malformed], unordered: [], transient: [] }
}
