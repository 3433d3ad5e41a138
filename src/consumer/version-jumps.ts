/**
 * Versions that are too far ahead to be believed.
 *
 * Whoever may publish to a topic may write any version into a message. One message with a version that no writer will ever
 * reach would make every true event of its aggregate stale for good. A consumer that sets `maxVersionJump` puts such a message
 * aside as a dead letter, and its aggregate neither moves nor waits because of it.
 *
 * What waits behind a rest, a pause or a dead letter was measured when it came: the next one is measured against that, for the position
 * stays where it is meanwhile.
 *
 * A rebuild begins with nothing, and what is retained may begin with any version. What the live generation has come to is
 * believed there: it was measured when it came.
 */
import { first, rows, type Queryable } from '../postgres/database.ts'
import type { Version } from '../core/version.ts'
import type { ConsumerSettings } from './consumer-options.ts'
import { readConsumer, readVersions, type Scope } from './inbox.sql.ts'
import type { UnreadItem } from './item.ts'
import { aggregateKey } from './received-event.ts'

/** Those of the items that are further ahead of what is known of their aggregates than the settings allow. */
export async function findJumps(
  { db, maxVersionJump }: Pick<ConsumerSettings, 'db' | 'maxVersionJump'>,
  scope: Scope,
  items: readonly UnreadItem[],
): Promise<ReadonlySet<UnreadItem>> {
  if (maxVersionJump === undefined) return none
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

/** Items of one aggregate come in the order of versions: each that is believed carries the next. A redriven one has an operator's word that it is true, and waits for its turn. */
export function jumpsOf<Each extends Pick<UnreadItem, 'key' | 'event' | 'origin'>>(
  items: readonly Each[],
  known: ReadonlyMap<string, Version>,
  limit: bigint,
): ReadonlySet<Each> {
  const reached = new Map(known)
  const jumps = new Set<Each>()
  for (const item of items) {
    const { key, event, origin } = item
    const last = reached.get(key) ?? 0n
    if (origin.kind !== 'dead' && event.version > last + limit) jumps.add(item)
    else if (event.version > last) reached.set(key, event.version)
  }
  return jumps
}
