/**
 * Whose turn it is: which events of a batch are applied, which wait, and which are too late. Pure.
 *
 * An aggregate that is not sequential takes every event that is new; one with an ordering key behind all that waits. A
 * sequential one takes version after version: a delta, a void or an ignored event only directly behind its predecessor; a
 * handled state or tombstone at once, because it stands for everything before it. Behind a dead letter that holds its
 * aggregate everything waits.
 *
 * A redriven dead letter takes its turn as a delivery does: one that is ahead of it waits. Applied where it is, it would be
 * behind a gap that its predecessors close without it, and everything after it would wait for ever. One that the aggregate
 * has passed is applied late. Once it is settled, the next letter of its aggregate that is being redriven holds that: what comes
 * behind them all waits until the last one is.
 */
import { voidEventType } from '../../core/event/event.ts'
import type { Version } from '../../core/event/version.ts'
import type { AggregateName } from '../../projection/reads.sql.ts'
import { batchVersions, type ClaimRow } from '../tables/claim.sql.ts'
import type { PositionChange } from '../tables/inbox.sql.ts'
import { isOrdered, type Item } from '../model/batch-item.ts'
import { aggregateKey } from '../model/received-event.ts'
import { standsForAll } from '../model/routes.ts'

/** An aggregate that needs a second look. */
export interface AggregateState extends AggregateName {
  version: Version
  readonly waiting: number
  heldBy: string | undefined
  /** Another letter of it that is being redriven: it holds the aggregate once the one that does is settled. */
  nextHolder: NextHolder | undefined
  /** The versions that were taken, each under an id that the inbox has, as far as that is known. */
  taken: { readonly from: Version; readonly to: Version } | undefined
  moved: boolean
  released: boolean
}

export interface NextHolder {
  readonly eventId: string
  readonly version: Version
}

export interface TurnOptions {
  /** Where a sequential aggregate begins: at version 1, or at whatever comes first. */
  readonly deltaStart: 'first' | 'any'
  /** The streams with handlers of a consumer without an inbox: an event that a handler gets must be newer than the last one. */
  readonly byVersion: readonly string[]
}

export interface Turns {
  readonly apply: readonly Item[]
  /** Not stored yet, and not their turn. */
  readonly wait: readonly Item[]
  /** Their turn comes when nothing waits any more: with this batch, if all that waits is applied with it. */
  readonly behind: readonly Item[]
  /** New to the inbox, yet without effect: older than a state that stands for it, or given up already. */
  readonly skip: readonly Item[]
  /** In the inbox already. */
  readonly seen: readonly Item[]
  /** Those of `apply` and `skip` whose version was taken under another id. */
  readonly forks: readonly Item[]
}

/** What a claim found. */
export interface Claimed {
  /** The duplicates. */
  readonly seen: ReadonlySet<string>
  /** Events with an open dead letter, which is locked. */
  readonly letters: Set<string>
  readonly aggregates: Map<string, AggregateState>
  /** Where aggregates were that the batch moves too far. */
  readonly jumpedFrom: ReadonlyMap<string, Version>
}

export function readClaim(found: readonly ClaimRow[]): Claimed {
  const seen = new Set<string>()
  const letters = new Set<string>()
  const aggregates = new Map<string, AggregateState>()
  const jumpedFrom = new Map<string, Version>()
  for (const row of found) {
    if (row.id !== null) {
      seen.add(row.id)
      continue
    }
    if (row.letter_of !== null) {
      letters.add(row.letter_of)
      continue
    }
    const at = { aggregateType: row.aggregate_type ?? '', aggregateId: row.aggregate_id ?? '' }
    const key = aggregateKey(at)
    if (row.jumped_from !== null) jumpedFrom.set(key, BigInt(row.jumped_from))
    if (row.version === null) continue
    aggregates.set(key, {
      ...at,
      version: BigInt(row.version),
      waiting: row.waiting ?? 0,
      heldBy: row.held_by ?? undefined,
      nextHolder: undefined,
      taken:
        row.taken_from === null || row.taken_to === null ? undefined : { from: BigInt(row.taken_from), to: BigInt(row.taken_to) },
      moved: false,
      released: false,
    })
  }
  return { seen, letters, aggregates, jumpedFrom }
}

/** Decides for the items of a batch, which come in the order of their versions. Aggregates that move are changed in place. */
export function decideOrder(
  items: readonly Item[],
  { seen, aggregates }: Pick<Claimed, 'seen' | 'aggregates'>,
  options: TurnOptions,
): Turns {
  const turns = { ...noTurns(), behind: [] as Item[], seen: [] as Item[] }
  for (const item of items) {
    const aggregate = aggregates.get(item.key)
    if (seen.has(item.event.id)) {
      turns.seen.push(item)
      releaseBehind(item, aggregate)
      continue
    }
    // Asked before its turn is taken: that makes its version one that was.
    const isFork = isTakenAlready(item, aggregate)
    const turn = turnOf(item, aggregate, options)
    turns[turn].push(item)
    if (isFork && (turn === 'apply' || turn === 'skip')) turns.forks.push(item)
  }
  return turns
}

/** Decides for those that come behind what waits, of which the batch has taken some. */
export function decideFollowers(
  items: readonly Item[],
  aggregates: ReadonlyMap<string, AggregateState>,
  taken: readonly Item[],
): Pick<Turns, 'apply' | 'wait' | 'forks'> {
  const turns = noTurns()
  const left = new Map([...aggregates].map(([key, { waiting }]) => [key, waiting]))
  for (const { key } of taken) left.set(key, (left.get(key) ?? 0) - 1)
  for (const item of items) {
    const aggregate = aggregates.get(item.key)
    const isNext = (left.get(item.key) ?? 0) <= 0
    if (isNext && isTakenAlready(item, aggregate)) turns.forks.push(item)
    turns[isNext ? take(item, aggregate) : 'wait'].push(item)
  }
  return turns
}

/**
 * Whether a newer version than an item's was seen before this batch. Asked before turns are taken: they move the aggregates.
 * A position that the batch itself has moved is that of its newest; then only its duplicates tell, and there is no gap.
 */
export function latenessOf(
  items: readonly Item[],
  { seen, aggregates }: Pick<Claimed, 'seen' | 'aggregates'>,
  { byVersion }: TurnOptions,
): (item: Item) => boolean {
  if (seen.size === 0 && aggregates.size === 0) return () => false
  const ahead = new Map<string, Version>()
  for (const { key, event } of items) {
    if (seen.has(event.id) && event.version > (ahead.get(key) ?? 0n)) ahead.set(key, event.version)
  }
  for (const [key, { newest, hasGap, hasTwins, sequential }] of batchVersions(items)) {
    const aggregate = aggregates.get(key)
    if (aggregate === undefined) continue
    const isBlocked = aggregate.waiting > 0 || aggregate.heldBy !== undefined
    const isUnmoved = sequential || hasGap || hasTwins || isBlocked || byVersion.includes(newest.aggregateType)
    const isBefore = isUnmoved || aggregate.version > newest.version
    if (isBefore && aggregate.version > (ahead.get(key) ?? 0n)) ahead.set(key, aggregate.version)
  }
  return ({ key, route, event }) => route?.kind !== 'delta' && (ahead.get(key) ?? 0n) > event.version
}

/**
 * Decides for stored messages of one or more aggregates, in the order of their versions. An aggregate stops at its first gap
 * and at the first that cannot be read, and begins with the first of them or not at all.
 */
export function decideStored(
  items: readonly Item[],
  aggregates: ReadonlyMap<string, AggregateState>,
  options: TurnOptions,
): Pick<Turns, 'apply' | 'skip' | 'forks'> {
  const turns = noTurns()
  const begun = new Set<string>()
  const stopped = new Set<string>()
  for (const item of items) {
    // A refused one fails alone, at its own turn, and what is behind it comes behind it.
    if (item.refusal !== undefined) stopped.add(item.key)
    if (stopped.has(item.key)) continue
    const aggregate = aggregates.get(item.key)
    const deltaStart = begun.has(item.key) ? 'first' : options.deltaStart
    begun.add(item.key)
    const isFork = isTakenAlready(item, aggregate)
    const turn = turnOf(item, aggregate, { ...options, deltaStart })
    // What is not in turn now is decided again when its turn comes.
    if (turn === 'wait' || turn === 'behind') continue
    turns[turn].push(item)
    if (isFork) turns.forks.push(item)
  }
  return turns
}

/** The aggregates that were released, and are held by the next letter from now on. */
export function transferredHolds(
  aggregates: ReadonlyMap<string, AggregateState>,
): readonly (AggregateName & { readonly heldBy: string })[] {
  return [...aggregates.values()].flatMap(({ aggregateType, aggregateId, released, heldBy }) =>
    released && heldBy !== undefined ? [{ aggregateType, aggregateId, heldBy }] : [],
  )
}

/** What is to be written of the aggregates that moved. */
export function positionChanges(aggregates: ReadonlyMap<string, AggregateState>): PositionChange[] {
  return [...aggregates.values()]
    .filter(({ moved, released }) => moved || released)
    .map(({ aggregateType, aggregateId, version, taken, released }) => ({
      aggregateType,
      aggregateId,
      version,
      taken,
      release: released,
    }))
}

function noTurns(): Record<'apply' | 'wait' | 'skip' | 'forks', Item[]> {
  return { apply: [], wait: [], skip: [], forks: [] }
}

/**
 * Whether the version of an event that is new to the inbox was taken under another id. A letter was given up under its own, and so was the
 * one that holds its aggregate. A marker that waits is the consumer's own: it stands in for a letter.
 */
function isTakenAlready(item: Item, aggregate: AggregateState | undefined): boolean {
  const { event, origin } = item
  if (aggregate?.taken === undefined || aggregate.heldBy === event.id || origin.kind === 'dead' || isOwnMarker(item)) return false
  return event.version >= aggregate.taken.from && event.version <= aggregate.taken.to
}

function isOwnMarker({ event, origin }: Item): boolean {
  return origin.kind === 'waiting' && event.type === voidEventType
}

function turnOf(item: Item, aggregate: AggregateState | undefined, options: TurnOptions): Exclude<keyof Turns, 'seen'> {
  if (aggregate === undefined) return 'apply'
  const { id, version } = item.event
  const isRedriven = item.origin.kind === 'dead'
  const isHolder = aggregate.heldBy === id
  if (aggregate.heldBy !== undefined && !isRedriven) return isHolder ? 'skip' : 'wait'
  if (isHolder) release(aggregate)
  const isByVersion = options.byVersion.includes(item.event.aggregateType)
  if (isByVersion && !item.sequential && comesBehind(item, aggregate)) return 'wait'
  const isInTurn = item.sequential || (isByVersion && item.route?.handler !== undefined)
  if (!isInTurn) return comesBehind(item, aggregate) && isOrdered(item) ? 'behind' : take(item, aggregate)
  if (version <= aggregate.version) return isRedriven ? 'apply' : 'skip'
  if (!item.sequential || version === aggregate.version + 1n) return take(item, aggregate)
  const isBeforeNextHolder = isHolder && version < (aggregate.nextHolder?.version ?? 0n)
  if (aggregate.heldBy !== undefined && !isBeforeNextHolder) return 'wait'
  const begins = options.deltaStart === 'any' && aggregate.version === 0n && (isHolder || isFirst(item, aggregate))
  const closesGap = item.route !== undefined && standsForAll(item.route)
  return begins || closesGap ? take(item, aggregate) : 'wait'
}

/** Applied before what waits, it would make that look like something older. A redriven one may be the older one itself. */
function comesBehind({ origin }: Item, { waiting }: AggregateState): boolean {
  return waiting > 0 && origin.kind !== 'waiting' && origin.kind !== 'dead'
}

/** A delivery comes behind what waits. Of what waits only the first is offered to an aggregate that has not begun. */
function isFirst({ origin }: Item, { waiting }: AggregateState): boolean {
  return waiting === 0 || origin.kind === 'waiting'
}

function take(item: Item, aggregate: AggregateState | undefined): 'apply' {
  if (aggregate !== undefined && item.event.version > aggregate.version) move(aggregate, item)
  return 'apply'
}

/** What was seen to its end holds nobody, and the next one need not wait for it. */
function releaseBehind(item: Item, aggregate: AggregateState | undefined): void {
  if (aggregate === undefined) return
  const { event, sequential } = item
  if (aggregate.heldBy === event.id) release(aggregate)
  const isNext = sequential ? event.version === aggregate.version + 1n : event.version > aggregate.version
  if (isNext && (sequential || aggregate.heldBy === undefined)) move(aggregate, item)
}

function move(aggregate: AggregateState, item: Item): void {
  const { version, taken } = aggregate
  const to = item.event.version
  const isNext = taken?.to === version && to === version + 1n
  // Behind a marker of ours nothing is known: the letter that it stands in for is not in the inbox.
  if (!isOwnMarker(item)) aggregate.taken = { from: isNext ? taken.from : to, to }
  aggregate.version = to
  aggregate.moved = true
}

function release(aggregate: AggregateState): void {
  aggregate.heldBy = aggregate.nextHolder?.eventId
  aggregate.released = true
}
