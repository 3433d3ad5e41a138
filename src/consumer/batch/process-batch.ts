/**
 * Works a batch to its end: applied and acknowledged, or split until the one that is to blame stands alone.
 *
 *   batch ──commit──▶ ack all
 *     │ an item failed: those before it, itself alone, those after it
 *     │ the time of an item was over: those before it, those after it; it is charged at once, and its neighbours wait for it no longer
 *     │ nobody knows which: halves
 *     ├ outage, deadlock: the same again after a while; nobody is charged
 *     ├ statement time-out, lock time-out: the same again, at most twice in a row; then nobody knows which
 *     └ the process gives up its work: all that is left is given back; nobody is charged
 *
 * An item that fails alone is charged and given back with a growing delay, and the later ones of its aggregate with it; at
 * the end of its attempts it becomes a dead letter, or comes again and again with `onPoison: 'stop'`. One that alone finds a row
 * locked is given back uncharged: somebody else has it. Everybody else is committed at the first delivery. Slow ones, whose time was
 * over before, are tried alone, behind the others of the batch.
 */
import { isWaybillError } from '../../core/errors.ts'
import { redactedMessage } from '../../core/redact.ts'
import { execute, rows } from '../../postgres/query/database.ts'
import { isLockTimeout, isStatementTimeout } from '../../postgres/query/sql-state.ts'
import { applyBatch, type ApplyDeps } from './apply-batch.ts'
import { cutOut, runsOf, splitTwins } from './parts.ts'
import { batchSpan, recordProjected } from './batch-tracing.ts'
import { counting, type Undertaker } from '../failure/settle.ts'
import { readAttempts, releaseAttempts, startAttempts, type AttemptRow } from '../tables/dead-letter.sql.ts'
import { readItems } from '../model/decode.ts'
import { Fenced, ItemFailure, keepsLine, lineOf, type Applied, type Item, type UnreadItem } from '../model/batch-item.ts'
import { reportForks } from '../failure/forks.ts'
import { findUnknown, putAside, type UnknownDeps } from './put-aside.ts'
import type { Patience } from '../failure/outage-backoff.ts'
import { suspectsLast } from '../model/places.ts'
import { settleUntried } from '../failure/settle-untried.ts'
import { isInterrupted, throughOutages } from '../failure/retry-outages.ts'
import { findJumps, Jumped, reportJumps } from './max-version-jump.ts'

export interface WorkerDeps extends ApplyDeps, Pick<UnknownDeps, 'readers'> {
  readonly undertaker: Undertaker
  readonly stopping: AbortSignal
  /** With what nobody foresaw: a round that is given up comes again after a while, so that it does not go round and round. */
  readonly patience: Patience
  /** Whether an earlier delivery of this item may have ended a process, or has attempts written down. */
  readonly isSuspect: (item: UnreadItem) => boolean
  /** Whether its time was over before. */
  readonly isSlow: (item: UnreadItem) => boolean
  /** Told of an item whose time is over. */
  readonly onTimedOut: (item: UnreadItem) => void
  /** Told of items whose effects are committed. */
  readonly onCommitted: (items: readonly Item[], applied: Applied) => void
  /** Takes over an ack under way: the next batch need not wait for the broker's answer. It never rejects. */
  readonly onAcking: (acked: Promise<void>) => void
}

/** A part of a batch that has no event twice, and what is known of earlier attempts. */
interface Round {
  readonly marks: ReadonlyMap<string, AttemptRow>
  /** Marks that were made in this round. */
  readonly started: Set<string>
  /** The lines in which one failed, in this round or in one before it: all of the batch that is behind it comes again. */
  readonly failed: Set<string>
  /** A part of it was too much for the time of a statement, or met a lock: the next that is or does, is halved at once. */
  isSlow: boolean
}

/**
 * After so many outages in a row that came out of one handler, the handler is to blame; after so many statement time-outs, the
 * batch is too much for the time, or one of it is; after so many lock time-outs, the lock of one of it may last. One that an operator
 * cancelled, or a slow moment, does not come so often.
 */
const blamedOutages = 3

/** Settles every item; never rejects. Items of one aggregate come in the order of versions. */
export async function workBatch(deps: WorkerDeps, items: readonly UnreadItem[]): Promise<void> {
  await workRounds(deps, new Set(), items)
}

async function workRounds(deps: WorkerDeps, failed: Set<string>, items: readonly UnreadItem[]): Promise<void> {
  if (items.length === 0) return
  if (deps.aborting.aborted) return giveUp(deps, items, 'The process is stopping.')
  const { first, again } = splitTwins(items)
  try {
    await workRound(deps, failed, first)
    await workRounds(deps, failed, again)
  } catch (error) {
    // Nothing was acknowledged that is not committed, so all of it may simply come again.
    const isFree = error instanceof Fenced || deps.stopping.aborted || deps.aborting.aborted
    const delayMs = isFree ? 0 : deps.patience()
    giveUp(deps, items, error, delayMs)
    // What is in a table would be found again at once.
    if (items.some(({ origin }) => origin.kind !== 'delivery')) await deps.settings.clock.sleep(delayMs, deps.stopping)
  }
}

function giveUp(
  { undertaker, settings, scope }: Pick<WorkerDeps, 'undertaker' | 'settings' | 'scope'>,
  items: readonly UnreadItem[],
  error: unknown,
  delayMs = 0,
): void {
  undertaker.giveUp(items, delayMs)
  settings.signals.emit('consumer.retried', {
    consumer: scope.consumer,
    count: items.length,
    delayMs,
    error: redactedMessage(error),
  })
}

async function workRound(deps: WorkerDeps, failed: Set<string>, items: readonly UnreadItem[]): Promise<void> {
  const marks = await readMarks(deps, items)
  const round: Round = { marks, started: new Set(), failed, isSlow: false }
  try {
    const unknown = await throughOutages(deps, items.length, () => findUnknown(deps, items))
    for (const run of unknown.size === 0 ? [items] : runsOf(items, (item) => unknown.has(item))) {
      if (run.some((item) => unknown.has(item))) await restUnknown(deps, round, run)
      else await workParts(deps, round, run)
    }
  } catch (error) {
    await releaseMarks(deps, round)
    throw error
  }
}

/** Those that another version of this consumer knows, in one go. */
async function restUnknown(deps: WorkerDeps, round: Round, run: readonly UnreadItem[]): Promise<void> {
  const items = await withoutFollowers(deps, round, run)
  if (items.length === 0) return
  await throughOutages(deps, items.length, () => putAside(deps, items))
  await deps.undertaker.ack(items)
}

async function workParts(deps: WorkerDeps, round: Round, items: readonly UnreadItem[]): Promise<void> {
  const { marks } = round
  const crashesOf = ({ event }: UnreadItem): number => marks.get(event.id)?.unfinished ?? 0
  const isAlone = (item: UnreadItem): boolean => crashesOf(item) > 0 || deps.isSlow(item)
  const { others, suspects } = suspectsLast(items, deps.isSlow, lineOf)
  for (const cut of [...cutOut(others, isAlone), ...cutOut(suspects, isAlone)]) {
    const part = await withoutFollowers(deps, round, cut)
    const [only] = part
    if (only === undefined) continue
    const crashes = crashesOf(only)
    if (await settleUntried(deps, { item: only, isJump: false, crashes, failed: round.failed })) continue
    await markStart(deps, round, part)
    // Not before: data may end the process as soon as it is decoded.
    const read = await readItems(part, deps.routes)
    // What is drained with a suspect would end the process in its name.
    for (const items of cutOut(read, isRefused)) await workPart(deps, round, { items, drain: crashes === 0 })
  }
}

/** What became of earlier attempts of the suspects among the items. */
async function readMarks(deps: WorkerDeps, items: readonly UnreadItem[]): Promise<ReadonlyMap<string, AttemptRow>> {
  const suspects = items.filter(deps.isSuspect).map(({ event }) => event.id)
  if (suspects.length === 0) return new Map()
  const found = await throughOutages(deps, items.length, () => rows(deps.settings.db, readAttempts(deps.scope, suspects)))
  const rowOf = new Map(found.map((row) => [row.id, row]))
  return new Map(suspects.map((id) => [id, rowOf.get(id) ?? { id, attempts: 0, unfinished: 0 }]))
}

/** Marks those that begin now, and no others: who is only in line when the process ends had no part in it. */
async function markStart(deps: WorkerDeps, { marks, started }: Round, items: readonly UnreadItem[]): Promise<void> {
  const starting = items.map(({ event }) => event.id).filter((id) => marks.has(id))
  if (starting.length === 0) return
  for (const id of starting) started.add(id)
  await throughOutages(deps, starting.length, () =>
    counting(deps.settings, (tx) => execute(tx, startAttempts(deps.scope, starting))),
  )
}

/** A round that is given up must not look like the death of this process. Without a database it does, once. */
async function releaseMarks({ settings, scope }: WorkerDeps, { started }: Round): Promise<void> {
  if (started.size === 0) return
  await execute(settings.db, releaseAttempts(scope, [...started])).catch(() => undefined)
}

interface Part {
  readonly items: readonly Item[]
  readonly drain: boolean
  /** See `ApplyOptions`. */
  readonly measured?: boolean | undefined
}

async function workPart(deps: WorkerDeps, round: Round, part: Part): Promise<void> {
  const items = await withoutFollowers(deps, round, part.items)
  if (items.length === 0) return
  try {
    await applyAndAck(deps, round, { ...part, items })
  } catch (error) {
    if (error instanceof Jumped) await withoutJumps(deps, round, { ...part, items })
    else await workFailed(deps, round, { ...part, items, error })
  }
}

/** Puts aside what is too far ahead of all that is known, and works the rest. */
async function withoutJumps(deps: WorkerDeps, round: Round, { items, drain }: Part): Promise<void> {
  const jumps = await throughOutages(deps, items.length, () => findJumps(deps.settings, deps.scope, items))
  for (const part of cutOut(items, (item) => jumps.has(item))) {
    const isJump = part.some((item) => jumps.has(item))
    if (!isJump) await workPart(deps, round, { items: part, drain, measured: true })
    for (const item of isJump ? await withoutFollowers(deps, round, part) : [])
      await settleUntried(deps, { item, isJump, crashes: 0, failed: round.failed })
  }
}

/** Gives back those whose predecessor comes again, so that they do behind it; returns the others. */
async function withoutFollowers<Each extends UnreadItem>(
  deps: WorkerDeps,
  { failed, started }: Round,
  items: readonly Each[],
): Promise<readonly Each[]> {
  // Without an ordering key there is nothing to wait for.
  const follows = (item: Each): boolean => failed.has(lineOf(item)) && keepsLine(item)
  for (const item of items)
    if (follows(item)) await throughOutages(deps, 1, () => deps.undertaker.follow(item, started.has(item.event.id)))
  return items.filter((item) => !follows(item))
}

type Failed = Part & { readonly error: unknown }

async function workFailed(deps: WorkerDeps, round: Round, { items, drain, measured, error }: Failed): Promise<void> {
  if (error instanceof Fenced || isInterrupted(deps, error)) throw error
  const culprit = error instanceof ItemFailure ? items.indexOf(error.item) : undefined
  round.isSlow ||= culprit === undefined && isTimeout(error)
  // A stored one, whose turn came with this batch, fails by itself another time.
  if (culprit === -1 && drain) return await workPart(deps, round, { items, drain: false, measured })
  const [only] = items
  if (items.length === 1 && only !== undefined) {
    // Rows and emitted events are written for all at once, so it may have been a stored one as well.
    if (drain && culprit === undefined) return await workPart(deps, round, { items, drain: false, measured })
    return await settleAlone(deps, round, { item: only, error })
  }
  if (culprit !== undefined && isOutOfTime(error))
    return await workAround(deps, round, { items, drain, measured, error, culprit })
  const middle = culprit ?? Math.ceil(items.length / 2)
  const parts =
    culprit === undefined
      ? [items.slice(0, middle), items.slice(middle)]
      : [items.slice(0, middle), items.slice(middle, middle + 1), items.slice(middle + 1)]
  for (const each of parts) await workPart(deps, round, { items: each, drain, measured })
}

/** Charges one whose time is over where it is found. It had its time to itself, and another would be taken from its neighbours. */
async function workAround(
  deps: WorkerDeps,
  round: Round,
  { items, drain, measured, error, culprit }: Failed & { readonly culprit: number },
): Promise<void> {
  await workPart(deps, round, { items: items.slice(0, culprit), drain, measured })
  const [item] = await withoutFollowers(deps, round, items.slice(culprit, culprit + 1))
  if (item !== undefined) await settleAlone(deps, round, { item, error })
  await workPart(deps, round, { items: items.slice(culprit + 1), drain, measured })
}

async function settleAlone(
  deps: WorkerDeps,
  { failed }: Round,
  { item, error }: { readonly item: Item; readonly error: unknown },
): Promise<void> {
  const { undertaker } = deps
  if (isOutOfTime(error)) deps.onTimedOut(item)
  const end = await throughOutages(deps, 1, () => {
    if (error instanceof ItemFailure) return undertaker.charge(item, error.cause)
    return isLockTimeout(error) ? undertaker.putOff(item, error) : undertaker.charge(item, error)
  })
  // What follows is repeated by itself: what is charged stays charged.
  if (end !== 'dead again' && 'burial' in end) return await throughOutages(deps, 1, () => undertaker.bury(item, end.burial))
  failed.add(lineOf(item))
  if (end !== 'dead again') await throughOutages(deps, 1, () => undertaker.giveBack(item, end.rest))
}

async function applyAndAck(deps: WorkerDeps, { marks, isSlow }: Round, { items, drain, measured }: Part): Promise<void> {
  const { settings, scope } = deps
  const marked = items.filter(({ event }) => marks.has(event.id)).map(({ event }) => event.id)
  const attempts = new Map(marked.map((id) => [id, marks.get(id)?.attempts ?? 0]))
  const { clock, tracing } = settings
  const spans = { consumer: scope.consumer, tracing }
  const [startedAt, startedAtMs] = [clock.monotonicMs(), clock.nowMs()]
  const done = await throughOutages(
    deps,
    items.length,
    () => batchSpan(spans, items, () => applyBatch(deps, items, { drain, attempts, measured })),
    (error) => {
      if (error instanceof ItemFailure) return blamedOutages
      if (!isTimeout(error)) return Infinity
      // Who is charged for it in the end is tried again.
      return isSlow && (items.length > 1 || isLockTimeout(error)) ? 1 : blamedOutages
    },
  )
  deps.onCommitted(items, done)
  const [committedAt, endedAtMs] = [clock.monotonicMs(), clock.nowMs()]
  if (tracing.isOn) recordProjected(spans, done.effects, { startedAtMs, endedAtMs })
  reportWaiting(deps, done)
  reportConflicts(deps, done)
  reportForks(deps, done.forks)
  reportJumps(deps, done.jumps)
  deps.onAcking(acknowledge(deps, items, { done, startedAt, committedAt }))
}

async function acknowledge(
  { settings, scope, undertaker }: WorkerDeps,
  items: readonly Item[],
  { done, startedAt, committedAt }: { readonly done: Applied; readonly startedAt: number; readonly committedAt: number },
): Promise<void> {
  const { clock, signals } = settings
  try {
    await undertaker.ack(items)
  } catch (error) {
    return giveUp({ settings, scope, undertaker }, items, error)
  }
  const endedAt = clock.monotonicMs()
  signals.emit('consumer.applied', {
    consumer: scope.consumer,
    count: done.applied + done.drained,
    duplicates: done.duplicates,
    durationMs: endedAt - startedAt,
    ackMs: endedAt - committedAt,
    lagMs: Math.max(0, clock.nowMs() - Math.min(...items.map(({ event }) => event.occurredAtMs))),
  })
}

function reportWaiting({ settings, scope }: WorkerDeps, { waiting }: Applied): void {
  for (const { event } of waiting) {
    settings.signals.emit('consumer.waiting', {
      consumer: scope.consumer,
      eventId: event.id,
      aggregateType: event.aggregateType,
      aggregateId: event.aggregateId,
      version: event.version.toString(),
    })
  }
}

function reportConflicts({ settings, scope }: WorkerDeps, { conflicts }: Applied): void {
  for (const { event } of conflicts) {
    settings.signals.emit(event.contentHash === undefined ? 'consumer.id-reused' : 'consumer.fact-conflict', {
      consumer: scope.consumer,
      eventId: event.id,
      eventType: event.type,
      aggregateType: event.aggregateType,
      aggregateId: event.aggregateId,
    })
  }
}

/** Of our own statements. */
function isTimeout(error: unknown): boolean {
  return isStatementTimeout(error) || isLockTimeout(error)
}

/** Of a handler, or of a statement of it. */
function isOutOfTime(error: unknown): boolean {
  if (!(error instanceof ItemFailure)) return false
  return isWaybillError(error.cause, 'TIMEOUT') || isStatementTimeout(error.cause)
}

function isRefused({ refusal }: Item): boolean {
  return refusal !== undefined
}
