/**
 * Works a batch to its end: applied and acknowledged, or split until the event that is to blame stands alone.
 *
 *   batch ──commit──▶ ack all
 *     │ an event failed, or nothing says which: parts of the batch (see split.ts)
 *     ├ an event failed alone: settled by its failure policy
 *     ├ outage, deadlock: the same again after a while; not counted
 *     ├ statement time-out, lock time-out: the same again, at most twice in a row; then it is split
 *     └ the process gives up its work: all that is left is given back; not counted
 *
 * An event that fails alone is counted and given back with a growing delay, and the later ones of its aggregate with it; at
 * the end of its attempts it becomes a dead letter, or is redelivered until an operator acts, with `onPoison: 'stop'`. All others are committed at the
 * first delivery.
 */
import { redactedMessage } from '../../core/redact.ts'
import { execute, rows } from '../../postgres/query/database.ts'
import {
  isOrdered,
  ItemFailure,
  LostClaimError,
  orderKey,
  type Applied,
  type Item,
  type UnreadItem,
} from '../model/batch-item.ts'
import { readItems } from '../model/decode.ts'
import type { BatchEvents } from '../model/observer.ts'
import type { CrashSuspects } from '../failure/crash-suspects.ts'
import type { Failure, Untried } from '../failure/failure-policy.ts'
import type { OutageBackoff } from '../failure/outage-backoff.ts'
import { reportConflicts, reportForks, reportJumps, reportWaiting } from '../failure/report.ts'
import { isInterrupted, retryOutages } from '../failure/retry-outages.ts'
import {
  ackItems,
  inOwnTransaction,
  returnAll,
  returnFollower,
  settleFailed,
  settleUntried,
  type FailureDeps,
} from '../failure/settle.ts'
import { readAttempts, releaseAttempts, startAttempts, type AttemptRow } from '../tables/dead-letter.sql.ts'
import { applyBatch, type ApplyDeps } from './apply-batch.ts'
import { batchSpan, recordProjected } from './batch-tracing.ts'
import { findVersionJumps, Jumped } from './max-version-jump.ts'
import { findUnknown, putAside, type UnknownDeps } from './put-aside.ts'
import { isolate, isOutOfTime, isTimeout, retryLimitOf, splitDuplicates, splitFailed, splitRuns, splitSuspects } from './split.ts'

export interface BatchDeps extends ApplyDeps, FailureDeps, Pick<UnknownDeps, 'readers'> {
  readonly suspects: Pick<CrashSuspects, 'isSuspect' | 'isSlow'>
  readonly events: BatchEvents
  /** Delays of rounds that are given up for an unforeseen reason, so that they do not go round and round. */
  readonly roundBackoff: OutageBackoff
}

/** A part of a batch that has no event twice, and what is known of earlier attempts. */
interface Round {
  readonly marks: ReadonlyMap<string, AttemptRow>
  /** Marks that were made in this round. */
  readonly started: Set<string>
  /** The lines in which an event failed, in this round or an earlier one: later events of the batch in these lines are redelivered. */
  readonly failed: Set<string>
  /** A part of it was too much for the time of a statement, or met a lock: the next that is or does, is halved at once. */
  isSlow: boolean
}

/** Settles every item; never rejects. Items of one aggregate come in the order of versions. */
export async function processBatch(deps: BatchDeps, items: readonly UnreadItem[]): Promise<void> {
  await processRounds(deps, new Set(), items)
}

async function processRounds(deps: BatchDeps, failed: Set<string>, items: readonly UnreadItem[]): Promise<void> {
  if (items.length === 0) return
  if (deps.aborting.aborted) return giveUp(deps, items, 'The process is stopping.')
  const { first, again } = splitDuplicates(items)
  try {
    await processRound(deps, failed, first)
    await processRounds(deps, failed, again)
  } catch (error) {
    // Nothing was acknowledged that is not committed, so all of it may simply come again.
    const isFree = error instanceof LostClaimError || deps.stopping.aborted || deps.aborting.aborted
    const delayMs = isFree ? 0 : deps.roundBackoff()
    giveUp(deps, items, error, delayMs)
    // What is in a table would be found again at once.
    if (items.some(({ origin }) => origin.kind !== 'delivery')) await deps.settings.clock.sleep(delayMs, deps.stopping)
  }
}

function giveUp(deps: BatchDeps, items: readonly UnreadItem[], error: unknown, delayMs = 0): void {
  const { settings, scope } = deps
  returnAll(deps, items, delayMs)
  settings.signals.emit('consumer.retried', {
    consumer: scope.consumer,
    count: items.length,
    delayMs,
    error: redactedMessage(error),
  })
}

async function processRound(deps: BatchDeps, failed: Set<string>, items: readonly UnreadItem[]): Promise<void> {
  const marks = await readMarks(deps, items)
  const round: Round = { marks, started: new Set(), failed, isSlow: false }
  try {
    const unknown = await retryOutages(deps, items.length, () => findUnknown(deps, items))
    for (const run of splitRuns(items, (item) => unknown.has(item))) {
      const isUnknown = run.some((item) => unknown.has(item))
      if (isUnknown) await restUnknown(deps, round, run)
      else await processKnown(deps, round, run)
    }
  } catch (error) {
    await releaseMarks(deps, round)
    throw error
  }
}

/** Those that another version of this consumer knows, in one go. */
async function restUnknown(deps: BatchDeps, round: Round, run: readonly UnreadItem[]): Promise<void> {
  const items = await withoutFollowers(deps, round, run)
  if (items.length === 0) return
  await retryOutages(deps, items.length, () => putAside(deps, items))
  await ackItems(deps, items)
}

async function processKnown(deps: BatchDeps, round: Round, items: readonly UnreadItem[]): Promise<void> {
  const { isSlow } = deps.suspects
  const crashesOf = ({ event }: UnreadItem): number => round.marks.get(event.id)?.unfinished ?? 0
  for (const cut of splitSuspects(items, { isSlow, hasCrashed: (item) => crashesOf(item) > 0 })) {
    const part = await withoutFollowers(deps, round, cut)
    const [only] = part
    if (only === undefined) continue
    const crashes = crashesOf(only)
    if (await settlePoison(deps, round, { item: only, isJump: false, crashes })) continue
    await markStart(deps, round, part)
    // Not before: data may end the process as soon as it is decoded.
    const read = await readItems(part, deps.routes)
    // What is drained with a suspect would end the process in its name.
    for (const items of isolate(read, isRefused)) await processPart(deps, round, { items, drain: crashes === 0 })
  }
}

/** Settles an item that must not be tried; returns false if it is to be tried. */
async function settlePoison(deps: BatchDeps, { failed }: Round, untried: Untried): Promise<boolean> {
  const outcome = await settleUntried(deps, untried)
  if (outcome === 'returned') failed.add(orderKey(untried.item))
  return outcome !== 'try'
}

/** What became of earlier attempts of the suspects among the items. */
async function readMarks(deps: BatchDeps, items: readonly UnreadItem[]): Promise<ReadonlyMap<string, AttemptRow>> {
  const suspects = items.filter(deps.suspects.isSuspect).map(({ event }) => event.id)
  if (suspects.length === 0) return new Map()
  const found = await retryOutages(deps, items.length, () => rows(deps.settings.db, readAttempts(deps.scope, suspects)))
  const rowOf = new Map(found.map((row) => [row.id, row]))
  return new Map(suspects.map((id) => [id, rowOf.get(id) ?? { id, attempts: 0, unfinished: 0 }]))
}

/** Marks those that begin now, and no others: an event that is only in line when the process ends had no part in it. */
async function markStart(deps: BatchDeps, { marks, started }: Round, items: readonly UnreadItem[]): Promise<void> {
  const starting = items.map(({ event }) => event.id).filter((id) => marks.has(id))
  if (starting.length === 0) return
  for (const id of starting) started.add(id)
  await retryOutages(deps, starting.length, () =>
    inOwnTransaction(deps.settings, (tx) => execute(tx, startAttempts(deps.scope, starting))),
  )
}

/** A round that is given up must not look like the death of this process. Without a database it does, once. */
async function releaseMarks({ settings, scope }: BatchDeps, { started }: Round): Promise<void> {
  if (started.size === 0) return
  await execute(settings.db, releaseAttempts(scope, [...started])).catch(() => undefined)
}

interface Part {
  readonly items: readonly Item[]
  /** Stored events whose turn comes are applied with it. */
  readonly drain: boolean
  /** See `ApplyOptions`. */
  readonly measured?: boolean | undefined
}

async function processPart(deps: BatchDeps, round: Round, part: Part): Promise<void> {
  const items = await withoutFollowers(deps, round, part.items)
  if (items.length === 0) return
  try {
    await applyAndAck(deps, round, { ...part, items })
  } catch (error) {
    if (error instanceof Jumped) await withoutJumps(deps, round, { ...part, items })
    else await processFailed(deps, round, { ...part, items, error })
  }
}

/** Puts aside what is too far ahead of all that is known, and works the rest. */
async function withoutJumps(deps: BatchDeps, round: Round, { items, drain }: Part): Promise<void> {
  const jumps = await retryOutages(deps, items.length, () => findVersionJumps(deps.settings, deps.scope, items))
  for (const part of isolate(items, (item) => jumps.has(item))) {
    const isJump = part.some((item) => jumps.has(item))
    if (!isJump) await processPart(deps, round, { items: part, drain, measured: true })
    for (const item of isJump ? await withoutFollowers(deps, round, part) : [])
      await settlePoison(deps, round, { item, isJump, crashes: 0 })
  }
}

/** Returns items whose predecessor was returned, so that they follow it; the others are the result. */
async function withoutFollowers<Each extends UnreadItem>(
  deps: BatchDeps,
  { failed, started }: Round,
  items: readonly Each[],
): Promise<readonly Each[]> {
  // Without an ordering key there is nothing to wait for.
  const follows = (item: Each): boolean => failed.has(orderKey(item)) && isOrdered(item)
  for (const item of items)
    if (follows(item)) await retryOutages(deps, 1, () => returnFollower(deps, item, started.has(item.event.id)))
  return items.filter((item) => !follows(item))
}

async function processFailed(
  deps: BatchDeps,
  round: Round,
  { error, ...part }: Part & { readonly error: unknown },
): Promise<void> {
  if (error instanceof LostClaimError || isInterrupted(deps, error)) throw error
  round.isSlow ||= !(error instanceof ItemFailure) && isTimeout(error)
  const next = splitFailed({ ...part, error })
  if (next.kind === 'without stored') return await processPart(deps, round, { ...part, drain: false })
  if (next.kind === 'parts') {
    for (const items of next.parts) await processPart(deps, round, { ...part, items })
    return
  }
  await processPart(deps, round, { ...part, items: next.before })
  for (const item of await withoutFollowers(deps, round, [next.item])) await settleAlone(deps, round, { item, error })
  await processPart(deps, round, { ...part, items: next.after })
}

async function settleAlone(deps: BatchDeps, { failed }: Round, failure: Failure): Promise<void> {
  if (isOutOfTime(failure.error)) deps.events.timedOut(failure.item)
  const comesAgain = await settleFailed(deps, failure)
  if (comesAgain) failed.add(orderKey(failure.item))
}

async function applyAndAck(deps: BatchDeps, { marks, isSlow }: Round, { items, drain, measured }: Part): Promise<void> {
  const { settings, scope, events } = deps
  const { clock, tracing } = settings
  const marked = items.filter(({ event }) => marks.has(event.id)).map(({ event }) => event.id)
  const attempts = new Map(marked.map((id) => [id, marks.get(id)?.attempts ?? 0]))
  const spans = { consumer: scope.consumer, tracing }
  const [startedAt, startedAtMs] = [clock.monotonicMs(), clock.nowMs()]
  const done = await retryOutages(
    deps,
    items.length,
    () => batchSpan(spans, items, () => applyBatch(deps, items, { drain, attempts, measured })),
    (error) => retryLimitOf(error, { isSlow, count: items.length }),
  )
  events.committed(items, done)
  const [committedAt, endedAtMs] = [clock.monotonicMs(), clock.nowMs()]
  if (tracing.isOn) recordProjected(spans, done.effects, { startedAtMs, endedAtMs })
  reportWaiting(deps, done.waiting)
  reportConflicts(deps, done.conflicts)
  reportForks(deps, done.forks)
  reportJumps(deps, done.jumps)
  events.acking(acknowledge(deps, items, { done, startedAt, committedAt }))
}

async function acknowledge(
  deps: BatchDeps,
  items: readonly Item[],
  { done, startedAt, committedAt }: { readonly done: Applied; readonly startedAt: number; readonly committedAt: number },
): Promise<void> {
  const { settings, scope } = deps
  const { clock, signals } = settings
  try {
    await ackItems(deps, items)
  } catch (error) {
    return giveUp(deps, items, error)
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

function isRefused({ refusal }: Item): boolean {
  return refusal !== undefined
}
