/**
 * The statements on offsets that are kept beside the effects. A partition's row is locked before anything else of a batch,
 * in the order of topic and partition.
 */
import { sql, sqlArray, type Statement } from '../postgres/sql.ts'
import type { Scope } from './inbox.sql.ts'

/** A stretch of a partition's log, without holes: from an offset to one before `next`. */
export interface OffsetRun {
  readonly topic: string
  readonly partition: string
  readonly from: bigint
  readonly next: bigint
  /** Nothing was stored of this partition when the broker began with it. */
  readonly begins: boolean
}

/** Where to go on with these partitions; one that is not returned has not begun. Index: primary key. */
export function readOffsets(
  { tables, consumer, generation }: Scope,
  topic: string,
  partitions: readonly string[],
): Statement<{ partition: string; next_offset: string }> {
  return sql`
    select o.partition, o.next_offset::text as next_offset from ${tables.offset} o
     where o.consumer = ${consumer}::text and o.generation = ${generation}::int and o.topic = ${topic}::text
       and o.partition = any (${sqlArray(partitions)}::text::text[])`
}

/** Enters partitions where they begin, unless another instance did. */
export function beginOffsets({ tables, consumer, generation }: Scope, runs: readonly OffsetRun[]): Statement {
  return sql`
    insert into ${tables.offset} (consumer, generation, topic, partition, next_offset)
    select ${consumer}::text, ${generation}::int, r.topic, r.partition, r.from_offset
      from unnest(${topics(runs)}::text::text[], ${partitionsOf(runs)}::text::text[], ${froms(runs)}::text::bigint[]) as r (topic, partition, from_offset)
     order by r.topic, r.partition
    on conflict do nothing`
}

/** What was done of a run before: everything below `done`. `contiguous` is false if something before the run is not done. */
export interface MovedRow {
  readonly topic: string
  readonly partition: string
  readonly done: string
  readonly contiguous: boolean
}

/**
 * Locks the partitions' rows and moves them behind these runs, as far as nothing is left out. One that is not returned has
 * no row. The rows are read after they were locked, whatever this statement's snapshot says. Index: primary key.
 */
export function moveOffsets({ tables, consumer, generation }: Scope, runs: readonly OffsetRun[]): Statement<MovedRow> {
  return sql`
    with stored as materialized (
      select o.topic, o.partition, o.next_offset as done, r.from_offset, r.next_offset
        from ${tables.offset} o
        join unnest(${topics(runs)}::text::text[], ${partitionsOf(runs)}::text::text[], ${froms(runs)}::text::bigint[],
                    ${sqlArray(runs.map(({ next }) => next))}::text::bigint[]) as r (topic, partition, from_offset, next_offset)
          on r.topic = o.topic and r.partition = o.partition
       where o.consumer = ${consumer}::text and o.generation = ${generation}::int
       order by o.topic, o.partition
         for update of o
    ), moved as (
      update ${tables.offset} o set next_offset = s.next_offset, updated_at = clock_timestamp()
        from stored s
       where o.consumer = ${consumer}::text and o.generation = ${generation}::int and o.topic = s.topic and o.partition = s.partition
         and s.from_offset <= s.done and s.done < s.next_offset
    )
    select s.topic, s.partition, s.done::text as done, s.from_offset <= s.done as contiguous from stored s`
}

function topics(runs: readonly OffsetRun[]): string {
  return sqlArray(runs.map(({ topic }) => topic))
}

function partitionsOf(runs: readonly OffsetRun[]): string {
  return sqlArray(runs.map(({ partition }) => partition))
}

function froms(runs: readonly OffsetRun[]): string {
  return sqlArray(runs.map(({ from }) => from))
}
