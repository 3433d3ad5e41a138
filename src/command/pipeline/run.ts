/**
 * The pipeline that every command goes through, in this order and no other:
 *
 *   fingerprint → validate → L1 claim → load → plan (once) → gate →
 *     loop: BEGIN · marker · aggregates · execute · events · [response] · COMMIT
 *   → L1 complete → outcome
 *
 * Before it borrows a connection, for a load or a look too, it takes places at the gate. What the gate refuses has done nothing.
 *
 * An input that is not valid, or a load or a plan that fails, is no answer yet: an attempt that does nothing else claims the
 * marker first, because the request may have committed before.
 *
 * Guarantee: per (principal, request id) at most one effect, and nobody is told "failed" about a committed one. The marker
 * alone decides; the cache only saves work, and the versions only order different requests.
 */
import { backoffMs, type BackoffOptions } from '../../core/service/backoff.ts'
import type { Clock } from '../../core/service/clock.ts'
import { isWaybillError } from '../../core/errors.ts'
import { seededRandom, type Random } from '../../core/service/random.ts'
import type { SignalBus } from '../../core/signals.ts'
import type { Tokens } from '../../core/event/token.ts'
import type { Tracing } from '../../core/tracing.ts'
import type { Database } from '../../postgres/query/database.ts'
import type { TransactionSettings } from '../../postgres/transaction/transaction.ts'
import { isUnavailable } from '../../postgres/query/sql-state.ts'
import type { Admitted } from './admit.ts'
import type { Aggregate } from '../model/aggregate.ts'
import { runAttempts } from './attempts.ts'
import { cacheKey, type CacheEntry, type CompletedEntry, type PendingEntry } from '../cache/cache.ts'
import type { CacheScope } from '../cache/scope.ts'
import { refusalOf, type CommandGate, type Leave } from './gate.ts'
import type { CommandOutbox } from '../model/command.ts'
import type { CommandTables } from '../model/command.sql.ts'
import { committedOutcome, responseContext } from './committed.ts'
import type { executePlan } from './execute.ts'
import type { GuardedCache } from '../cache/bounded-cache.ts'
import type { MarkerStore } from '../model/markers.ts'
import { failed, type Outcome } from '../model/outcome.ts'
import { isBelieved, tryMarker, whileRenewed } from './pending.ts'
import { aggregatesIn, failedPlan, planCommand, type PlanNode, type PlanRequest } from './plan.ts'
import { keptText, rejectionOf } from '../model/rejection.ts'
import type { ResponseCodec } from '../model/response-codec.ts'

/** What the pipeline works with. Tests replace parts to prove that each is needed. */
export interface Pipeline {
  readonly db: Database
  readonly gate: CommandGate
  readonly schema: string
  readonly tables: CommandTables
  readonly outbox: CommandOutbox
  readonly markers: MarkerStore
  readonly cache: GuardedCache
  readonly cacheScope: CacheScope
  readonly tokens: Tokens
  readonly responses: ResponseCodec
  readonly fingerprint: (command: string, input: unknown) => string
  readonly execute: typeof executePlan
  readonly limits: CommandLimits
  readonly transactions: CommandTransactions
  readonly signals: SignalBus
  readonly tracing: Tracing
  readonly clock: Clock
  readonly random: Random
}

/** How its transactions begin: one with a request id waits for the run of the same request for a short time only. */
export interface CommandTransactions {
  readonly claiming: TransactionSettings
  readonly unclaimed: TransactionSettings
  readonly loading: TransactionSettings
}

export interface CommandLimits {
  readonly markerLockMs: number
  readonly lockTimeoutMs: number
  readonly retries: number
  readonly retryBackoff: BackoffOptions
  readonly maxResponseBytes: number
}

/** Between two looks at a run that is under way: soon for the short ones, and cheap for the long. */
const winnerBackoff: BackoffOptions = { firstMs: 40, maxMs: 500, factor: 1.5 }

/** Runs an admitted request to its end; waits for a winner as long as the request says. */
export async function runPipeline(pipeline: Pipeline, asked: Admitted): Promise<Outcome> {
  const { clock, random } = pipeline
  const deadline = clock.monotonicMs() + asked.waitForWinnerMs
  const planOnce = once(() => plan(pipeline, asked))
  for (let looks = 1; ; looks += 1) {
    const outcome = await runOnce(pipeline, asked, planOnce).catch(refusedByGate)
    const isBeaten = outcome.status === 'failed' && outcome.code === 'IN_PROGRESS'
    const leftMs = deadline - clock.monotonicMs()
    if (!isBeaten || leftMs <= 0) return outcome
    await clock.sleep(Math.min(leftMs, backoffMs(winnerBackoff, looks, random)), asked.passage.signal)
    if (asked.passage.signal?.aborted === true) return outcome
  }
}

/** What the gate refused has done nothing; an earlier run of the same request may have, so a repeat is told to ask again. */
function refusedByGate(error: unknown): Outcome {
  const refusal = refusalOf(error)
  if (refusal === undefined) throw error
  return failed(refusal.code as 'OVERLOADED' | 'ABORTED' | 'IN_PROGRESS', refusal.message, { cause: error })
}

async function runOnce(pipeline: Pipeline, asked: Admitted, planOnce: () => Promise<PlanNode>): Promise<Outcome> {
  const key = await keyInCache(pipeline, asked)
  if (key === undefined) return await decide(pipeline, asked, planOnce).catch((error: unknown) => unchanged(error, planOnce))
  const { cache, random, clock } = pipeline
  const { fingerprint } = asked
  const pending: PendingEntry = { state: 'pending', fingerprint, token: newToken(random), aliveAtMs: clock.nowMs() }
  const found = await cache.claim(key, pending)
  if (typeof found === 'object') return await answerFromCache(pipeline, asked, { key, found, planOnce })
  let completed: CompletedEntry | undefined
  try {
    const outcome = await decide(pipeline, asked, planOnce, (ready) => whileRenewed(pipeline, { key, pending }, ready))
    completed = await completedEntry(pipeline, asked, outcome)
    return outcome
  } catch (error) {
    return await unchanged(error, planOnce)
  } finally {
    // Only now, after COMMIT: a repeat must not be told of an effect that may still be rolled back.
    await (completed === undefined ? cache.release(key, pending) : cache.complete(key, pending, completed))
  }
}

/** Where the cache has the request; undefined if it is not to be asked. */
async function keyInCache({ cache, cacheScope }: Pipeline, asked: Admitted): Promise<string | undefined> {
  const { principal, requestId, definition } = asked
  if (requestId === undefined || (definition.sensitive && !cache.isProved)) return undefined
  const scope = await cacheScope()
  return scope === undefined ? undefined : cacheKey(scope, { principal, requestId })
}

interface InCache {
  readonly key: string
  readonly found: CacheEntry
  readonly planOnce: () => Promise<PlanNode>
}

/** A run that is pending is believed, unless the database knows better; one that is dead leaves the request to this one. */
async function answerFromCache(pipeline: Pipeline, asked: Admitted, { key, found, planOnce }: InCache): Promise<Outcome> {
  if (found.state === 'completed') return await answerCompleted(pipeline, asked, found)
  try {
    const told = await lookBehind(pipeline, asked, found)
    if (told !== undefined) return told
  } catch (error) {
    if (!isOutage(error)) throw error
    return failed('UNAVAILABLE', 'The database cannot be reached. Send the same request again.', { cause: error })
  }
  const outcome = await decide(pipeline, asked, planOnce).catch((error: unknown) => unchanged(error, planOnce))
  const completed = await completedEntry(pipeline, asked, outcome)
  if (completed !== undefined) await pipeline.cache.complete(key, found, completed)
  return outcome
}

/** The database is asked only for the token of what was committed without a response. */
async function answerCompleted(pipeline: Pipeline, asked: Admitted, found: CompletedEntry): Promise<Outcome> {
  const answer = (): Promise<Outcome> => committedOutcome(pipeline, asked, { ...found, from: 'cache' })
  return found.response === undefined ? await throughGate(pipeline, asked, answer) : await answer()
}

/** What the database says of a run that is pending; `undefined` if the run is dead, and has changed nothing. */
async function lookBehind(pipeline: Pipeline, asked: Admitted, found: PendingEntry): Promise<Outcome | undefined> {
  const { db, markers, gate } = pipeline
  if (gate.isUnderWay(asked.passage)) return inProgress()
  return await throughGate(pipeline, asked, async () => {
    const marker = await markers.find(db, { principal: asked.principal, requestId: asked.requestId ?? '' })
    if (marker !== undefined) return await committedOutcome(pipeline, asked, { ...marker, from: 'marker' })
    if (!isBelieved(pipeline, found)) return await tryMarker(pipeline, asked, toPlan(pipeline, asked))
    return inProgress()
  })
}

function inProgress(): Outcome {
  return failed('IN_PROGRESS', 'The same request is being executed right now. Send it again to learn its outcome.')
}

/** Looks with a place of the principal: a look waits for no aggregate. */
async function throughGate<Result>(pipeline: Pipeline, asked: Admitted, look: () => Promise<Result>): Promise<Result> {
  const leave = await pipeline.gate.enter(asked.passage, [])
  try {
    return await look()
  } finally {
    leave()
  }
}

interface Ready {
  readonly node: PlanNode
  readonly leave: Leave
}

/** Plans, and takes the places that the attempts need. */
async function getReady(pipeline: Pipeline, asked: Admitted, planOnce: () => Promise<PlanNode>): Promise<Ready> {
  const node = await planOnce()
  const { failure } = node
  if (failure !== undefined && (asked.requestId === undefined || refusalOf(failure.error) !== undefined)) throw failure.error
  return { node, leave: await pipeline.gate.begin(asked.passage, aggregatesIn(node)) }
}

/** Plans and executes. Throws what the command's own code threw, rejections included: nothing was committed. */
async function decide(
  pipeline: Pipeline,
  asked: Admitted,
  planOnce: () => Promise<PlanNode>,
  whileReadied: (ready: Promise<Ready>) => Promise<Ready> = async (ready) => await ready,
): Promise<Outcome> {
  try {
    const { node, leave } = await whileReadied(getReady(pipeline, asked, planOnce))
    try {
      return await runAttempts(pipeline, asked, node)
    } finally {
      leave()
    }
  } catch (error) {
    const { failure } = await planOnce()
    // What a command asks of its children follows from its own input.
    if (error !== failure?.error || !isWaybillError(error, 'INVALID_INPUT')) throw error
    return failed('INVALID_INPUT', error.message, { cause: error })
  }
}

/** The outcome of a run that changed nothing. What is neither a rejection nor an outage is thrown on. */
async function unchanged(error: unknown, planOnce: () => Promise<PlanNode>): Promise<Outcome> {
  const rejection = rejectionOf(error)
  if (rejection !== undefined) return { status: 'rejected', ...rejection, replayed: false }
  // A plan has no database to lose: what looks like that is of a call elsewhere, and its own. In load and execute nobody can tell.
  const { failure } = await planOnce()
  const isOfPlan = failure !== undefined && error === failure.error && !failure.isOfLoad && !isWaybillError(error)
  if (isOfPlan || !isOutage(error)) throw error
  return failed('UNAVAILABLE', 'It cannot be done now, and nothing was changed. Send the same request again.', { cause: error })
}

/** A COMMIT whose end is not known can here only be that of a load, which changed nothing. */
function isOutage(error: unknown): boolean {
  if (isWaybillError(error)) return error.code === 'UNAVAILABLE' || error.code === 'COMMIT_UNKNOWN'
  return isUnavailable(error)
}

async function plan(pipeline: Pipeline, asked: Admitted): Promise<PlanNode> {
  const { db, random, transactions, gate } = pipeline
  const seeded = seededRandom(newToken(random))
  const what = toPlan(pipeline, asked)
  if (asked.invalid !== undefined) return failedPlan(what, asked.invalid)
  const enter = (aggregates: readonly Aggregate[]): ReturnType<CommandGate['enter']> => gate.enter(asked.passage, aggregates)
  return await planCommand({ db, random: seeded, loading: transactions.loading, enter }, what).catch((error: unknown) =>
    failedPlan(what, error),
  )
}

function toPlan({ clock }: Pipeline, { definition, input, principal, requestId, token }: Admitted): PlanRequest {
  return { definition, input, request: { principal, requestId, now: new Date(clock.nowMs()), token, metadata: undefined } }
}

/** What repeats may be told from the cache; undefined if the run left nothing behind. */
async function completedEntry(pipeline: Pipeline, asked: Admitted, outcome: Outcome): Promise<CompletedEntry | undefined> {
  const entry = plainEntry(pipeline, asked, outcome)
  if (entry?.response === undefined) return entry
  try {
    return { ...entry, response: await pipeline.responses.encode(entry.response, responseContext(asked)) }
  } catch {
    // It has committed: the marker answers repeats.
    return undefined
  }
}

function plainEntry({ limits }: Pipeline, asked: Admitted, outcome: Outcome): CompletedEntry | undefined {
  const { fingerprint, definition } = asked
  if (outcome.status === 'executed' || outcome.status === 'replayed') {
    const response = JSON.stringify(outcome.response) ?? ''
    const token = outcome.token === undefined ? {} : { token: outcome.token }
    const isSmall = Buffer.byteLength(response) <= limits.maxResponseBytes
    return { state: 'completed', fingerprint, rejected: false, ...(isSmall ? { response } : {}), ...token }
  }
  if (outcome.status === 'rejected') {
    if (!definition.storeRejections) return undefined
    return { state: 'completed', fingerprint, rejected: true, response: keptText(outcome, limits.maxResponseBytes).text }
  }
  if (outcome.code === 'ALREADY_COMMITTED') return { state: 'completed', fingerprint, rejected: false }
  return undefined
}

function once<Result>(work: () => Promise<Result>): () => Promise<Result> {
  let started: Promise<Result> | undefined
  return () => (started ??= work())
}

function newToken(random: Random): string {
  return Buffer.from(random.fill(new Uint8Array(16))).toString('base64url')
}
