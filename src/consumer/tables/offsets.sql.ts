/**
 * The statements on offsets that are kept beside the effects. A partition's row is locked before anything else of a batch,
 * in the order of topic and partition.
 */
import { sql, sqlArray, type Statement } from '../../postgres/query/sql.ts'
import type { Scope } from './inbox.sql.ts'
import type { Place } from '../model/partition-order.ts'

/** A stretch of a partition's log, without holes: from an offset to one before `next`. */
export interface OffsetRun {
  readonly topic: string
  readonly partition: string
  readonly from: bigint
  readonly next: bigint
  /** Nothing was stored of this partition when the broker began with it. */
  readonly begins: boolean
  /** The topic that the log is of, where the broker tells topics of one name apart. */
  readonly topicId?: string | undefined
  /** What was stored was of this topic, and the run begins with another. */
  readonly replaces?: string | undefined
}

/** Where to go on with these partitions; one that is not returned has not begun. Index: primary key. */
export function readOffsets(
  { tables, consumer, generation }: Scope,
  topic: string,
  partitions: readonly string[],
): Statement<{ partition: string; next_offset: string; topic_id: string | null }> {
  return sql`
    select o.partition, o.next_offset::text as next_offset, o.topic_id from ${tables.offset} o
     where o.consumer = ${consumer}::text and o.generation = ${generation}::int and o.topic = ${topic}::text
       and o.partition = any (${sqlArray(partitions)}::text::text[])`
}

/** Whether a place is done. Who moves the offset over it waits until the end of this transaction. Index: primary key. */
export function holdOffset(
  { tables, consumer, generation }: Scope,
  { topic, partition, offset }: Place,
): Statement<{ is_done: boolean }> {
  return sql`
    select o.next_offset > ${String(offset)}::text::bigint as is_done from ${tables.offset} o
     where o.consumer = ${consumer}::text and o.generation = ${generation}::int and o.topic = ${topic}::text and o.partition = ${partition}::text
       for share`
}

/** Says of these partitions which topic they are of, where that is not known. One that is at work says so itself. Index: primary key. */
export function identifyOffsets(
  { tables, consumer, generation }: Scope,
  { topic, topicId, partitions }: { readonly topic: string; readonly topicId: string; readonly partitions: readonly string[] },
): Statement {
  return sql`
    with unknown as materialized (
      select o.partition from ${tables.offset} o
       where o.consumer = ${consumer}::text and o.generation = ${generation}::int and o.topic = ${topic}::text
         and o.partition = any (${sqlArray(partitions)}::text::text[]) and o.topic_id is null
         for update skip locked
    )
    update ${tables.offset} o set topic_id = ${topicId}::text
      from unknown u
     where o.consumer = ${consumer}::text and o.generation = ${generation}::int and o.topic = ${topic}::text and o.partition = u.partition`
}

/** Enters partitions where they begin, unless another instance did. */
export function beginOffsets({ tables, consumer, generation }: Scope, runs: readonly OffsetRun[]): Statement {
  return sql`
    insert into ${tables.offset} (consumer, generation, topic, partition, next_offset, topic_id)
    select ${consumer}::text, ${generation}::int, r.topic, r.partition, r.from_offset, r.topic_id
      from unnest(${topics(runs)}::text::text[], ${partitionsOf(runs)}::text::text[], ${froms(runs)}::text::bigint[],
                  ${topicIds(runs)}::text::text[]) as r (topic, partition, from_offset, topic_id)
     order by r.topic, r.partition
    on conflict do nothing`
}

/**
 * What was done of a run before: everything below `done`. `contiguous` is false if something before the run is not done, or what is
 * stored is of another topic.
 */
export interface MovedRow {
  readonly topic: string
  readonly partition: string
  readonly done: string
  readonly contiguous: boolean
}

/**
 * Locks the partitions' rows and moves them behind these runs, as far as nothing is left out. One that is not returned has
 * no row. One of the topic that the run replaces counts as standing where the run begins. The rows are read after they were
 * locked, whatever this statement's snapshot says. Index: primary key.
 */
export function moveOffsets({ tables, consumer, generation }: Scope, runs: readonly OffsetRun[]): Statement<MovedRow> {
  return sql`
    with stored as materialized (
      select o.topic, o.partition, r.from_offset, r.next_offset, coalesce(r.topic_id, o.topic_id) as topic_id,
             case when o.topic_id = r.replaces then r.from_offset else o.next_offset end as done,
             o.topic_id is null or r.topic_id is null or o.topic_id = r.topic_id or o.topic_id is not distinct from r.replaces as is_same
        from ${tables.offset} o
        join unnest(${topics(runs)}::text::text[], ${partitionsOf(runs)}::text::text[], ${froms(runs)}::text::bigint[],
                    ${sqlArray(runs.map(({ next }) => next))}::text::bigint[], ${topicIds(runs)}::text::text[],
                    ${sqlArray(runs.map(({ replaces }) => replaces))}::text::text[])
               as r (topic, partition, from_offset, next_offset, topic_id, replaces)
          on r.topic = o.topic and r.partition = o.partition
       where o.consumer = ${consumer}::text and o.generation = ${generation}::int
       order by o.topic, o.partition
         for update of o
    ), moved as (
      update ${tables.offset} o set next_offset = s.next_offset, topic_id = s.topic_id, updated_at = clock_timestamp()
        from stored s
       where o.consumer = ${consumer}::text and o.generation = ${generation}::int and o.topic = s.topic and o.partition = s.partition
         and s.is_same and s.from_offset <= s.done and s.done < s.next_offset
    )
    select s.topic, s.partition, s.done::text as done, s.is_same and s.from_offset <= s.done as contiguous from stored s`
}

function topics(runs: readonly OffsetRun[]): string {
  return sqlArray(runs.map(({ topic }) => topic))
}

function partitionsOf(runs: readonly OffsetRun[]): string {
  return sqlArray(runs.map(({ partition }) => partition))
}

function topicIds(runs: readonly OffsetRun[]): string {
  return sqlArray(runs.map(({ topicId }) => topicId))
}

function froms(runs: readonly OffsetRun[]): string {
  return sqlArray(runs.map(({ from }) => from))
}
