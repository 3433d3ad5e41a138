/** Statements that pause and resume a consumer or one aggregate of it. */
import { sql, type Statement } from '../postgres/sql.ts'
import { pauseId, type Scope } from './inbox.sql.ts'

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

/** Holds the aggregate back. One that a dead letter holds stays with that letter. Index: primary key. */
export function pauseAggregate(
  { tables, consumer, generation }: Scope,
  aggregate: { readonly type: string; readonly id: string },
): Statement {
  return sql`
    insert into ${tables.position} as p (consumer, generation, aggregate_type, aggregate_id, version, held_by)
    values (${consumer}::text, ${generation}::int, ${aggregate.type}::text, ${aggregate.id}::text, 0, ${pauseId}::text::uuid)
    on conflict (consumer, generation, aggregate_type, aggregate_id) do update set held_by = excluded.held_by, updated_at = clock_timestamp()
      where p.held_by is null`
}

/** Lets it go. What waits is found by the next look at what is stored. Index: primary key. */
export function resumeAggregate(
  { tables, consumer, generation }: Scope,
  aggregate: { readonly type: string; readonly id: string },
): Statement {
  return sql`
    update ${tables.position} p set held_by = null, updated_at = clock_timestamp()
     where p.consumer = ${consumer}::text and p.generation = ${generation}::int and p.aggregate_type = ${aggregate.type}::text
       and p.aggregate_id = ${aggregate.id}::text and p.held_by = ${pauseId}::text::uuid`
}
