/**
 * The statements of a rebuild on our own tables: the register, and how far the new generation is.
 */
import type { InboxTables } from '../../consumer/tables/inbox.sql.ts'
import { operationTable } from '../../postgres/operation.sql.ts'
import { sql, sqlArray, type Name, type Statement } from '../../postgres/query/sql.ts'

/** A rebuild of one consumer: the generation that readers see, and the one that is being built. */
export interface RebuildScope {
  readonly tables: InboxTables
  readonly consumer: string
  readonly generation: number
  readonly next: number
  /** The aggregate types that are projected. */
  readonly types: readonly string[]
}

export interface RegisterRow {
  readonly generation: number
  readonly next_generation: number | null
  /** A number that no rebuild of this consumer has had. */
  readonly unused: number
}

/** Locks the consumer's row of the register: one rebuild begins, swaps or ends at a time. */
export function lockRegister(tables: InboxTables, consumer: string): Statement<RegisterRow> {
  return sql`
    select c.generation, c.next_generation,
           greatest(c.generation, (select max((o.arguments->>'generation')::int) from ${operationTable(tables.schema)} o
                                    where o.kind = 'rebuild' and o.arguments->>'consumer' = c.name)) + 1 as unused
      from ${tables.consumer} c where c.name = ${consumer}::text for update of c`
}

export function setNextGeneration(tables: InboxTables, consumer: string, next: number | null): Statement {
  return sql`update ${tables.consumer} set next_generation = ${next}::int where name = ${consumer}::text`
}

/** A rebuild that is swapped in is complete. */
export function endGeneration(tables: InboxTables, consumer: string): Statement {
  return sql`
    update ${tables.consumer} set next_generation = null, ready_at = coalesce(ready_at, clock_timestamp()) where name = ${consumer}::text`
}

export interface ReachedRow {
  readonly total: number
  readonly reached: number
  /** Behind, and not only since a moment ago. */
  readonly missing: number
}

/**
 * How many aggregates the live generation knows, with how many of them the new one is as far, and how many it is behind with
 * although the live one has had them for longer than `freshMs`: under live traffic some are always on their way. One that is
 * held since before its first event is at version 0: with that one nobody can be behind.
 *
 * Grouped instead of joined: without statistics of the new generation's rows, a join may be planned as a loop over all of
 * them for each. Index: the primary key of consumer_position.
 */
export function countReached(scope: RebuildScope, freshMs: number): Statement<ReachedRow> {
  const { tables, consumer, generation, next, types } = scope
  return sql`
    select count(*)::int as total, (count(*) filter (where coalesce(built, 0) >= live))::int as reached,
           (count(*) filter (where live > coalesce(built, 0)
                               and since < clock_timestamp() - ${freshMs}::int * interval '1 millisecond'))::int as missing
      from (select max(p.version) filter (where p.generation = ${generation}::int) as live,
                   max(p.updated_at) filter (where p.generation = ${generation}::int) as since,
                   max(p.version) filter (where p.generation = ${next}::int) as built
              from ${tables.position} p
             where p.consumer = ${consumer}::text and p.generation in (${generation}::int, ${next}::int)
               and p.aggregate_type = any (${sqlArray(types)}::text::text[])
             group by p.aggregate_type, p.aggregate_id) a
     where live is not null`
}

export interface BehindRow {
  readonly aggregate_type: string
  readonly aggregate_id: string
  /** The version that the new generation has, and the one that the live one has. */
  readonly built: string
  readonly live: string
}

/** Aggregates with which the new generation is behind the live one, after the given one. Grouped for the same reason. */
export function findBehind(
  scope: RebuildScope,
  after: { readonly type: string; readonly id: string },
  limit: number,
): Statement<BehindRow> {
  const { tables, consumer, generation, next, types } = scope
  return sql`
    select aggregate_type, aggregate_id, coalesce(built, 0)::text as built, live::text as live
      from (select p.aggregate_type, p.aggregate_id, max(p.version) filter (where p.generation = ${generation}::int) as live,
                   max(p.version) filter (where p.generation = ${next}::int) as built
              from ${tables.position} p
             where p.consumer = ${consumer}::text and p.generation in (${generation}::int, ${next}::int)
               and p.aggregate_type = any (${sqlArray(types)}::text::text[])
               and (p.aggregate_type, p.aggregate_id) > (${after.type}::text, ${after.id}::text)
             group by p.aggregate_type, p.aggregate_id) a
     where live > coalesce(built, 0)
     order by aggregate_type, aggregate_id limit ${limit}::int`
}

/** How long each statement of this transaction may wait for a lock from now on. */
export function limitLockWaits(mostMs: number): Statement {
  return sql`select set_config('lock_timeout', ${String(mostMs)}::text, true)`
}

export interface AggregateRow {
  readonly aggregate_id: string
}

/** The ids of a type's aggregates that the live generation knows, after the given one. Index: the primary key of consumer_position. */
export function readAggregates(
  { tables, consumer, generation }: RebuildScope,
  type: string,
  { after, limit }: { readonly after: string; readonly limit: number },
): Statement<AggregateRow> {
  return sql`
    select p.aggregate_id from ${tables.position} p
     where p.consumer = ${consumer}::text and p.generation = ${generation}::int and p.aggregate_type = ${type}::text and p.aggregate_id > ${after}::text
     order by p.aggregate_id limit ${limit}::int`
}

/** Events that the new generation gave up and the live one has applied, at once or by a redrive. Index: dead_letter's unique key. */
export function countNewlyDead({
  tables,
  consumer,
  generation,
  next,
}: RebuildScope): Statement<{ count: number; error: string | null }> {
  return sql`
    select count(*)::int as count, min(d.event_type || ' ' || coalesce(d.aggregate_id, '') || ': ' || d.error) as error
      from ${tables.deadLetter} d
     where d.consumer = ${consumer}::text and d.generation = ${next}::int and d.state = 'dead'
       and not exists (select from ${tables.deadLetter} l
                        where l.consumer = d.consumer and l.generation = ${generation}::int and l.event_id = d.event_id
                          and l.state <> 'redriven')`
}

/** Those of the events that were discarded in the live generation. Index: dead_letter's unique key. */
export function findDiscarded(
  { tables, consumer, generation }: RebuildScope,
  eventIds: readonly string[],
): Statement<{ id: string }> {
  return sql`
    select d.event_id::text as id from ${tables.deadLetter} d
     where d.consumer = ${consumer}::text and d.generation = ${generation}::int and d.event_id = any (${sqlArray(eventIds)}::text::uuid[])
       and d.state = 'discarded'`
}

export const leftoverBatch = 10_000

/** Deletes a batch of what earlier rebuilds left: of every generation that is neither live nor being built. */
export function deleteLeftovers(table: Name, register: Name, consumer: string): Statement {
  return sql`
    delete from ${table}
     where ctid = any (array(
       select t.ctid from ${table} t join ${register} c on c.name = t.consumer
        where t.consumer = ${consumer}::text and t.generation > c.generation and t.generation is distinct from c.next_generation
        limit ${leftoverBatch}::int))`
}
