/**
 * Versions that are too far ahead to be believed.
 *
 * Whoever may publish to a topic may write any version into a message, and a broken writer writes any. One message with a version that no
 * writer will ever reach makes every true event of its aggregate stale for good. The statement that begins a batch says where it found
 * aggregates that jump, so looking for that costs no statement; an aggregate that is met for the first time may begin anywhere.
 *
 * A jump is signalled and takes its turn, or, with `onVersionJump: 'dead-letter'`, the batch is rolled back and the jump put aside;
 * its aggregate neither moves nor waits because of it. Only then it is measured against more than the position: against what waits behind
 * a rest, a pause or a dead letter, and in a rebuild, which begins with nothing, against what the live generation has come to.
 */
import { first, rows, type Queryable } from '../../postgres/query/database.ts'
import type { Version } from '../../core/event/version.ts'
import type { ConsumerSettings } from '../model/consumer-options.ts'
import { readConsumer, readVersions, type Scope } from '../tables/inbox.sql.ts'
import type { Item, UnreadItem } from '../model/batch-item.ts'
import { aggregateKey } from '../model/received-event.ts'
import type { Claimed } from './ordering.ts'

/** A batch has events that jump, and they are not to be applied. */
export class Jumped extends Error {
  override readonly name: string = 'Jumped'
}

export interface Jump {
  readonly item: Item
  /** The last version that was seen before it. */
  readonly from: Version
}

/** Those of a batch's new events that jump, by what its claim says; throws Jumped if they are to be put aside. */
export function settleJumps(
  items: readonly Item[],
  { seen, aggregates, jumpedFrom }: Pick<Claimed, 'seen' | 'aggregates' | 'jumpedFrom'>,
  { maxVersionJump, onVersionJump }: Pick<ConsumerSettings, 'maxVersionJump' | 'onVersionJump'>,
): readonly Jump[] {
  if (aggregates.size === 0 && jumpedFrom.size === 0) return []
  const known = new Map(jumpedFrom)
  // Where the position was moved already, it is at the newest of the batch, and no jump is found.
  for (const [key, { version }] of aggregates) if (version > 0n && !known.has(key)) known.set(key, version)
  const measured = items.filter(({ key, event }) => known.has(key) && !seen.has(event.id))
  const jumps = jumpsOf(measured, known, BigInt(maxVersionJump))
  if (jumps.size > 0 && onVersionJump === 'dead-letter') throw new Jumped('Versions are too far ahead.')
  return [...jumps].map((item) => ({ item, from: known.get(item.key) ?? 0n }))
}

/** Those of the items that are further ahead of all that is known of their aggregates than the settings allow. */
export async function findVersionJumps(
  { db, maxVersionJump }: Pick<ConsumerSettings, 'db' | 'maxVersionJump'>,
  scope: Scope,
  items: readonly UnreadItem[],
): Promise<ReadonlySet<UnreadItem>> {
  const limit = BigInt(maxVersionJump)
  const known = await readKnown(db, scope, items)
  const jumps = jumpsOf(items, known, limit)
  if (jumps.size === 0) return none
  const generation = (await first(db, readConsumer(scope)))?.generation ?? scope.generation
  if (generation === scope.generation) return jumps
  const live = await readKnown(db, { ...scope, generation }, items)
  return jumpsOf(items, furthest(known, live), limit)
}

const none: ReadonlySet<UnreadItem> = new Set()

async function readKnown(db: Queryable, scope: Scope, items: readonly UnreadItem[]): Promise<ReadonlyMap<string, Version>> {
  const found = await rows(db, readVersions(scope, items))
  const known = found.map(
    ({ aggregate_type: aggregateType, aggregate_id: aggregateId, version }) =>
      [aggregateKey({ aggregateType, aggregateId }), BigInt(version)] as const,
  )
  return new Map(known)
}

function furthest(a: ReadonlyMap<string, Version>, b: ReadonlyMap<string, Version>): ReadonlyMap<string, Version> {
  const both = new Map(a)
  for (const [key, version] of b) if (version > (both.get(key) ?? 0n)) both.set(key, version)
  return both
}

/**
 * Items of one aggregate come in the order of versions: each that is believed carries the next, and so does the first of an aggregate
 * that nothing is known of. A redriven one has an operator's word that it is true, and waits for its turn.
 */
export function jumpsOf<Each extends Pick<UnreadItem, 'key' | 'event' | 'origin'>>(
  items: readonly Each[],
  known: ReadonlyMap<string, Version>,
  limit: bigint,
): ReadonlySet<Each> {
  const reached = new Map(known)
  const jumps = new Set<Each>()
  for (const item of items) {
    const { key, event, origin } = item
    const last = reached.get(key)
    if (last !== undefined && origin.kind !== 'dead' && event.version > last + limit) jumps.add(item)
    else if (last === undefined || event.version > last) reached.set(key, event.version)
  }
  return jumps
}
