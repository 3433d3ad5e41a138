/**
 * The loop around the transaction: runs attempts until one commits, is answered by an earlier request, or must not be repeated.
 *
 * Every attempt begins with the marker, so repeating one is always safe; without a request id there is none, and only an attempt
 * that was rolled back for certain is repeated. A COMMIT that was never answered is looked up before anything is said about it.
 *
 * A rejection that is kept is told after the attempt that keeps it. If the same request has taken effect meanwhile, that is told.
 */
import { backoffMs } from '../../core/service/backoff.ts'
import { isWaybillError } from '../../core/errors.ts'
import { runAfterCommit } from '../../postgres/transaction/transaction.ts'
import { answerMs, commitOutcome } from '../../postgres/transaction/commit-outcome.ts'
import { isLockTimeout, isRetryableState, sqlState } from '../../postgres/query/sql-state.ts'
import { withDeadlines } from '../../postgres/transaction/deadline.ts'
import { transactionIdOf, type TransactionId } from '../../postgres/transaction/tx-scope.ts'
import type { Admitted } from './admit.ts'
import { keptRejection, NothingPlanned, runAttempt, type Attempt, type AttemptResult } from './attempt.ts'
import { committedOutcome, currentToken, parseResponse } from './committed.ts'
import { failed, type Outcome } from '../model/outcome.ts'
import type { Pipeline } from './run.ts'
import { failedPlan, type PlanNode } from './plan.ts'

export async function runAttempts(pipeline: Pipeline, asked: Admitted, planned: PlanNode): Promise<Outcome> {
  let node = planned
  for (let number = 1; ; number += 1) {
    const attempt: Attempt = { number }
    let result: AttemptResult
    try {
      result = await runAttempt(pipeline, { asked, node, attempt })
    } catch (error) {
      if (error instanceof NothingPlanned) throw error.failure.error
      if (keptRejection(asked, error) !== undefined) {
        node = failedPlan(node, error)
        continue
      }
      const verdict = await judge(pipeline, asked, attempt, error)
      if (verdict === 'again') continue
      if (verdict !== 'committed') return verdict
      result = attempt.result as AttemptResult
    }
    return await conclude(pipeline, asked, result, number)
  }
}

async function conclude(pipeline: Pipeline, asked: Admitted, result: AttemptResult, attempts: number): Promise<Outcome> {
  if (result.kind === 'known') return await committedOutcome(pipeline, asked, { ...result.marker, from: 'marker' })
  if (result.kind === 'rejected') return { status: 'rejected', ...result.rejection, replayed: false }
  return { status: 'executed', response: parseResponse(result.response), token: result.token, attempts }
}

type Verdict = 'again' | 'committed' | Outcome

/** What an attempt's failure means: an outcome, another attempt, or success after all. Throws what is not ours to judge. */
async function judge(pipeline: Pipeline, asked: Admitted, attempt: Attempt, error: unknown): Promise<Verdict> {
  if (isWaybillError(error, 'COMMIT_UNKNOWN')) {
    if (attempt.result !== undefined) return await lookUp(pipeline, asked, attempt, transactionIdOf(error))
    const { name } = asked.definition
    const message = `${name} was rolled back, but a transaction that it ran elsewhere may have committed. Send the same request again.`
    return failed('UNAVAILABLE', message, { cause: error })
  }
  if (isWaybillError(error, 'PRECONDITION_FAILED')) {
    return failed('PRECONDITION_FAILED', error.message, { token: await currentToken(pipeline, attempt.aggregate) })
  }
  if (isLockTimeout(error)) {
    return isBeaten(pipeline, asked, attempt)
      ? failed('IN_PROGRESS', 'The same request is being executed right now. Send it again to learn its outcome.')
      : failed('VERSION_CONFLICT', `Others hold what ${asked.definition.name} needs for too long.`, { cause: error })
  }
  // Also where the client sent a version: the next attempt compares it again, and knows whether that is what has changed.
  const isConflict = isWaybillError(error, 'VERSION_CONFLICT')
  const state = sqlState(error)
  if (!isConflict && !isRetryableState(state)) throw error
  if (await backOff(pipeline, asked, attempt, isConflict ? 'version' : (state ?? ''))) return 'again'
  return failed('VERSION_CONFLICT', `${asked.definition.name} lost the race ${attempt.number} times.`, { cause: error })
}

/**
 * Whether the wait that ended was the one for the marker. The aggregates are asked for in the same statement, but with a longer
 * time-out: a wait that ended before that can only have been the first.
 */
function isBeaten({ limits, clock }: Pipeline, asked: Admitted, { claimedAtMs = 0, isClaimed = false }: Attempt): boolean {
  return asked.requestId !== undefined && !isClaimed && clock.monotonicMs() - claimedAtMs < limits.lockTimeoutMs
}

/** Waits before the next attempt; `false` if there is none. */
async function backOff(pipeline: Pipeline, asked: Admitted, attempt: Attempt, reason: string): Promise<boolean> {
  const { limits, random, clock, signals } = pipeline
  if (attempt.number > limits.retries) return false
  const delayMs = backoffMs(limits.retryBackoff, attempt.number, random)
  signals.emit('command.retried', { command: asked.definition.name, attempt: attempt.number, reason, delayMs })
  await clock.sleep(delayMs)
  return true
}

/**
 * The connection broke during COMMIT. The transaction's id tells, and where the database has forgotten it, the marker does:
 * a row that this very transaction wrote is proof. Without a marker, a request that has an id was never committed.
 */
async function lookUp(pipeline: Pipeline, asked: Admitted, attempt: Attempt, id: TransactionId | undefined): Promise<Verdict> {
  const { db, clock, signals } = pipeline
  const told = id === undefined ? 'unknown' : await commitOutcome(db, id, { clock, beganAtMs: attempt.claimedAtMs ?? 0 })
  const outcome = told === 'rolled-back' ? told : await confirm(pipeline, asked, { id, told })
  signals.emit('transaction.unknown', { outcome, xid: id?.xid })
  if (outcome === 'committed') {
    if (attempt.tx !== undefined) runAfterCommit(attempt.tx, (error) => signals.emit('transaction.hook-failed', { error }))
    return 'committed'
  }
  if (outcome === 'unknown') return unknownEnd(asked)
  if (await backOff(pipeline, asked, attempt, 'commit')) return 'again'
  return failed('UNAVAILABLE', 'The database rolled the command back: nothing was changed. Send the same request again.')
}

/** Only a marker keeps a repeat from doing it again. */
function unknownEnd({ requestId }: Admitted): Outcome {
  const what = 'It is not known whether the command was committed.'
  if (requestId !== undefined) return failed('UNAVAILABLE', `${what} Send the same request again to find out.`)
  return failed('UNAVAILABLE', `${what} It had no request id: look at the state before you repeat it.`, { retryable: false })
}

/** What the marker makes of it, if the request has one. */
async function confirm(
  { db, clock, markers }: Pipeline,
  { principal, requestId }: Admitted,
  { id, told }: { readonly id: TransactionId | undefined; readonly told: 'committed' | 'unknown' },
): Promise<'committed' | 'unknown'> {
  if (requestId === undefined || id === undefined) return told
  const marker = await markers
    .find(withDeadlines(db, { statementMs: answerMs, clock }), { principal, requestId })
    .catch(() => undefined)
  if (marker === undefined) return 'unknown'
  return BigInt(marker.xmin) === BigInt(id.xid) % 4_294_967_296n ? 'committed' : told
}
