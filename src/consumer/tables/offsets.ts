/**
 * Offsets in the transaction of the effects: what makes a delivery's place in the log enough to apply it once.
 *
 * A batch moves a partition's offset from where it stands to behind the batch, and never over something that it does not
 * have. So of two instances that have the same partition in hand, each offset is done by one of them: what another did is a
 * duplicate, and who comes with a later stretch than the next in turn is refused, however sure it is of its partition. So is who
 * comes with a stretch of another topic of the name, unless it was told of the one that is stored and begins anew.
 */
import { execute, rows, type Queryable, type Tx } from '../../postgres/query/database.ts'
import { isAnother } from '../../transport/port/topic-id.ts'
import { LostClaimError, placeOf, type UnreadItem } from '../model/batch-item.ts'
import type { Scope } from './inbox.sql.ts'
import { beginOffsets, identifyOffsets, moveOffsets, readOffsets, type MovedRow, type OffsetRun } from './offsets.sql.ts'
import { lineOfPlace, type PartitionOrderOptions, type Place, type StoredOffset } from '../model/partition-order.ts'

/** Where these partitions go on, as far as it is stored, and of which topic that is. */
export async function storedOffsets(
  db: Queryable,
  scope: Scope,
  { topic, partitions, topicId }: Parameters<PartitionOrderOptions['resumeFrom']>[0],
): Promise<ReadonlyMap<string, StoredOffset>> {
  const found = await rows(db, readOffsets(scope, topic, partitions))
  // It is believed to be of this topic, so it must be of no later one.
  if (topicId !== undefined && found.some(({ topic_id }) => topic_id === null))
    await execute(db, identifyOffsets(scope, { topic, topicId, partitions }))
  return new Map(
    found.map(({ partition, next_offset, topic_id }) => [partition, { next: BigInt(next_offset), topicId: topic_id ?? topicId }]),
  )
}

/** Moves the offsets behind these items, which come in the order of the log; returns those that are not done yet. */
export async function takeOffsets<Each extends Pick<UnreadItem, 'origin'>>(
  tx: Tx,
  scope: Scope,
  items: readonly Each[],
): Promise<readonly Each[]> {
  const places = items.map(placeOf).filter((place) => place !== undefined)
  if (places.length === 0) return items
  const done = await moveOver(tx, scope, places)
  return items.filter((item) => {
    const place = placeOf(item)
    return place === undefined || place.offset >= (done.get(lineOfPlace(place)) ?? 0n)
  })
}

/** Moves the offsets behind these places. Returns, by line, what was done before. Throws LostClaimError if something is left out. */
export async function moveOver(tx: Tx, scope: Scope, places: readonly Place[]): Promise<ReadonlyMap<string, bigint>> {
  const runs = runsOf(scope.consumer, places)
  const beginning = runs.filter(({ begins }) => begins)
  if (beginning.length > 0) await execute(tx, beginOffsets(scope, beginning))
  const moved = new Map<string, MovedRow>((await rows(tx, moveOffsets(scope, runs))).map((row) => [lineOfPlace(row), row]))
  for (const run of runs) if (moved.get(lineOfPlace(run))?.contiguous !== true) throw leftOut(scope.consumer, run)
  return new Map([...moved].map(([line, { done }]) => [line, BigInt(done)]))
}

function runsOf(consumer: string, places: readonly Place[]): readonly OffsetRun[] {
  const runs = new Map<string, OffsetRun>()
  for (const place of places) {
    const { topic, partition, offset, from, begins, topicId, replaces } = place
    const open = runs.get(lineOfPlace(place))
    // What waited of a topic that is gone, and what came of the one that has its name: no stretch has both. The first is lost and
    // does not come again, so the others come alone.
    if (isAnother(open?.topicId, topicId)) throw leftOut(consumer, place)
    // What a batch does not have between two of its items must be done, and then so is the first of them: one that was given back and
    // handed out twice. It is a duplicate, and no reason to refuse the others for ever.
    const run = open === undefined || from > open.next ? { topic, partition, from, begins, topicId, replaces } : open
    runs.set(lineOfPlace(place), { ...run, next: offset + 1n })
  }
  return [...runs.values()]
}

function leftOut(consumer: string, { topic, partition, from }: Pick<OffsetRun, 'topic' | 'partition' | 'from'>): LostClaimError {
  return new LostClaimError(
    `Consumer ${consumer} is not at offset ${from} of ${topic}, partition ${partition}: what is before that is not done, another instance has the partition, or the topic was made again.`,
  )
}
