/**
 * What tests ask of the databases: which events are there, what still moves, and what became of an event at a consumer.
 */
import type { Scope } from '../../consumer/tables/inbox.sql.ts'
import type { OutboxTables } from '../../outbox/tables/outbox.sql.ts'
import { sql, sqlArray, type Statement } from '../../postgres/query/sql.ts'

export interface OutboxEventRow {
  readonly id: string
  readonly aggregate_id: string
  readonly version: string
  readonly schema_version: number
  readonly payload: Uint8Array
  readonly headers: string
  readonly state: string
}

/** The events of one type in the order in which they were added, with the state of each. */
export function readEvents(
  { outbox, status }: OutboxTables,
  type: { readonly aggregateType: string; readonly name: string },
): Statement<OutboxEventRow> {
  return sql`
    select o.id::text, o.aggregate_id, o.version::text, o.schema_version, o.payload, o.headers::text, s.state
      from ${outbox} o join ${status} s on s.id = o.id
     where o.aggregate_type = ${type.aggregateType}::text and o.event_type = ${type.name}::text
     order by o.occurred_at, o.aggregate_id, o.version`
}

export interface Moving {
  /** Rows that could go out now. */
  readonly due: number
  /** Rows that are tried again within the time given. */
  readonly soon: number
  /** Rows that are tried again later than that. */
  readonly later: number
  readonly held: number
  readonly parked: number
}

/** What the outbox still has to do, seen from a moment at which somebody waits for it at most `withinMs`. */
export function readMoving({ dispatch }: OutboxTables, withinMs: number): Statement<Moving> {
  return sql`
    select count(*) filter (where d.state = 0 or (d.state = 1 and d.next_retry_at <= clock_timestamp()))::int as due,
           count(*) filter (where d.state = 1 and d.next_retry_at > clock_timestamp() and d.next_retry_at <= clock_timestamp() + ${withinMs}::float8 * interval '1 millisecond')::int as soon,
           count(*) filter (where d.state = 1 and d.next_retry_at > clock_timestamp() + ${withinMs}::float8 * interval '1 millisecond')::int as later,
           count(*) filter (where d.state = 2)::int as held,
           count(*) filter (where d.state = 3)::int as parked
      from ${dispatch} d`
}

/** Grows with every event that is added, whatever becomes of it. */
export function readWritten({ version }: OutboxTables): Statement<{ versions: string }> {
  return sql`select coalesce(sum(v.version), 0)::text as versions from ${version} v`
}

export interface PublishedRow {
  readonly id: string
  readonly aggregate_type: string
  readonly aggregate_id: string
  readonly version: string
}

/** The events of these types that have left the outbox. */
export function readPublished({ outbox, dispatch }: OutboxTables, aggregateTypes: readonly string[]): Statement<PublishedRow> {
  return sql`
    select o.id::text, o.aggregate_type, o.aggregate_id, o.version::text from ${outbox} o
     where o.aggregate_type = any (${sqlArray(aggregateTypes)}::text::text[])
       and not exists (select from ${dispatch} d where d.event_id = o.id)
     order by o.aggregate_type, o.aggregate_id, o.version`
}

/** Every event that has left the outbox. */
export function readGone({ outbox, dispatch }: OutboxTables): Statement<{ id: string }> {
  return sql`select o.id::text from ${outbox} o where not exists (select from ${dispatch} d where d.event_id = o.id)`
}

export interface UnsettledRow {
  /** Counted from 1. */
  readonly place: number
  /** Whether it waits behind a gap or a dead letter: it does not move by itself, but will when that is settled. */
  readonly is_resting: boolean
}

/** Which of these events the consumer still has to deal with: not applied, not given up, not passed over by a later state. */
export function readUnsettled(
  { tables, consumer, generation }: Scope,
  events: readonly PublishedRow[],
  /** Types for which an event at or below the position is settled. */
  positionedTypes: readonly string[],
): Statement<UnsettledRow> {
  return sql`
    select i.place::int as place,
           coalesce((m.state = 4 and (p.held_by is not null or m.version > coalesce(p.version, 0) + 1))
                 or (m.state = 2 and exists (select from ${tables.message} h
                        where h.consumer = ${consumer}::text and h.generation = ${generation}::int and h.lane = m.lane and h.key = m.key and h.state = 3)), false) as is_resting
      from unnest(${sqlArray(events.map(({ id }) => id))}::text::uuid[], ${sqlArray(events.map((each) => each.aggregate_type))}::text::text[],
                  ${sqlArray(events.map((each) => each.aggregate_id))}::text::text[], ${sqlArray(events.map(({ version }) => version))}::text::bigint[])
             with ordinality as i (event_id, aggregate_type, aggregate_id, version, place)
      left join ${tables.position} p on p.consumer = ${consumer}::text and p.generation = ${generation}::int
                                    and p.aggregate_type = i.aggregate_type and p.aggregate_id = i.aggregate_id
      left join ${tables.message} m on m.consumer = ${consumer}::text and m.generation = ${generation}::int and m.event_id = i.event_id
     where not exists (select from ${tables.inbox} x where x.consumer = ${consumer}::text and x.generation = ${generation}::int and x.event_id = i.event_id)
       and not exists (select from ${tables.deadLetter} d
                        where d.consumer = ${consumer}::text and d.generation = ${generation}::int and d.event_id = i.event_id and d.state <> 'redriving'
                          and (d.state <> 'redriven' or m.event_id is null))
       and not (i.aggregate_type = any (${sqlArray(positionedTypes)}::text::text[]) and coalesce(p.version, 0) >= i.version and m.event_id is null)
     order by i.place`
}

export interface Fate {
  readonly id: string
  readonly is_applied: boolean
  /** `dead: failed: the error`, if it was given up. */
  readonly dead: string | null
  /** The state of its stored message, if it waits. */
  readonly stored: number | null
}

/** What became of these events at a consumer. */
export function readFates({ tables, consumer, generation }: Scope, ids: readonly string[]): Statement<Fate> {
  return sql`
    select i.event_id::text as id, x.event_id is not null as is_applied,
           d.state || ': ' || d.reason || ': ' || d.error as dead, m.state::int as stored
      from unnest(${sqlArray(ids)}::text::uuid[]) with ordinality as i (event_id, place)
      left join ${tables.inbox} x on x.consumer = ${consumer}::text and x.generation = ${generation}::int and x.event_id = i.event_id
      left join ${tables.deadLetter} d on d.consumer = ${consumer}::text and d.generation = ${generation}::int and d.event_id = i.event_id
      left join ${tables.message} m on m.consumer = ${consumer}::text and m.generation = ${generation}::int and m.event_id = i.event_id
     order by i.place`
}

/** What a consumer has in store that does not move by itself. A copy of what it has applied does: it is about to be thrown away. */
export function countResting({ tables, consumer, generation }: Scope): Statement<{ deadLetters: number; waiting: number }> {
  return sql`
    select (select count(*) from ${tables.deadLetter} d
             where d.consumer = ${consumer}::text and d.generation = ${generation}::int and d.state = 'dead')::int as "deadLetters",
           (select count(*) from ${tables.message} m
             where m.consumer = ${consumer}::text and m.generation = ${generation}::int and m.state <> 3
               and not exists (select from ${tables.inbox} x
                                where x.consumer = ${consumer}::text and x.generation = ${generation}::int and x.event_id = m.event_id))::int as waiting`
}
