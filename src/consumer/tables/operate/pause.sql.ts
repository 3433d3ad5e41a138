/** Statements that pause and resume a consumer or one aggregate of it. */
import { sql, type Statement } from '../../../postgres/query/sql.ts'
import { holderOf } from './dead-letters.sql.ts'
import { pauseId, type Scope } from '../inbox.sql.ts'

export function setPaused(
  { tables, consumer }: Scope,
  { paused, actor }: { readonly paused: boolean; readonly actor: string },
): Statement {
  return sql`
    update ${tables.consumer} c
       set paused = ${paused}::boolean, paused_by = case when ${paused}::boolean then ${actor}::text end,
           paused_at = case when ${paused}::boolean then clock_timestamp() end
     where c.name = ${consumer}::text and c.paused <> ${paused}::boolean`
}

/** Holds the aggregate back, in place of a dead letter if one holds it. Index: primary key. */
export function pauseAggregate(
  { tables, consumer, generation }: Scope,
  aggregate: { readonly type: string; readonly id: string },
): Statement {
  return sql`
    insert into ${tables.position} as p (consumer, generation, aggregate_type, aggregate_id, version, held_by)
    values (${consumer}::text, ${generation}::int, ${aggregate.type}::text, ${aggregate.id}::text, 0, ${pauseId}::text::uuid)
    on conflict (consumer, generation, aggregate_type, aggregate_id) do update set held_by = excluded.held_by, updated_at = clock_timestamp()
      where p.held_by is distinct from excluded.held_by`
}

/**
 * Locks the aggregate if it is paused. Whoever buries a letter of it has locked it as well, so the next statement sees every
 * letter that was ever meant to hold it. Index: primary key.
 */
export function lockPaused(
  { tables, consumer, generation }: Scope,
  aggregate: { readonly type: string; readonly id: string },
): Statement<{ version: string }> {
  return sql`
    select p.version::text from ${tables.position} p
     where p.consumer = ${consumer}::text and p.generation = ${generation}::int and p.aggregate_type = ${aggregate.type}::text
       and p.aggregate_id = ${aggregate.id}::text and p.held_by = ${pauseId}::text::uuid
       for update`
}

/**
 * Lets it go, or leaves it to the dead letter that holds it. What waits is found by the next look at what is stored.
 * Indexes: primary key, dead_letter_aggregate_idx.
 */
export function resumeAggregate(
  { tables, consumer, generation }: Scope,
  aggregate: { readonly type: string; readonly id: string },
): Statement {
  return sql`
    update ${tables.position} p set held_by = ${holderOf(tables)}, updated_at = clock_timestamp()
     where p.consumer = ${consumer}::text and p.generation = ${generation}::int and p.aggregate_type = ${aggregate.type}::text
       and p.aggregate_id = ${aggregate.id}::text and p.held_by = ${pauseId}::text::uuid`
}
