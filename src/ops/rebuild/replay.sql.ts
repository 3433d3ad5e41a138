/**
 * Reads the owner's retained events again, in the order of aggregates and versions.
 * Index of both statements: the outbox's unique key (aggregate_type, aggregate_id, version).
 */
import type { OutboxTables } from '../../outbox/tables/outbox.sql.ts'
import { name, part, sql, sqlArray, type Part, type Statement } from '../../postgres/query/sql.ts'

type Outbox = Pick<OutboxTables, 'outbox' | 'dispatch' | 'schema'>

export interface ReplayRow {
  readonly event_id: string
  readonly topic: string
  readonly aggregate_type: string
  readonly aggregate_id: string
  readonly version: string
  readonly event_type: string
  readonly schema_version: number
  readonly content_type: string
  readonly payload: Uint8Array
  readonly headers: string
  readonly occurred_at: string
  readonly occurred_at_ms: string
  readonly void: boolean
}

export interface RetainedRow extends ReplayRow {
  /** Nothing of it waits for a relay. */
  readonly published: boolean
}

/** Behind which event to go on. */
export interface ReplayCursor {
  readonly type: string
  readonly id: string
  readonly version: string
}

/**
 * The next events of these aggregate types. What is published and what is skipped are seen at one moment: an event is skipped
 * while it waits. The dispatch rows, which have no index on the event, are read once a page; usually there are few.
 */
export function readRetained(
  { outbox, dispatch, schema }: Outbox,
  types: readonly string[],
  { after, limit }: { readonly after: ReplayCursor; readonly limit: number },
): Statement<RetainedRow> {
  return sql`
    with page as materialized (
      select o.* from ${outbox} o
       where o.aggregate_type = any (${sqlArray(types)}::text::text[])
         and (o.aggregate_type, o.aggregate_id, o.version) > (${after.type}::text, ${after.id}::text, ${after.version}::text::bigint)
       order by o.aggregate_type, o.aggregate_id, o.version limit ${limit}::int
    ), waiting as materialized (
      select d.event_id from ${dispatch} d where d.event_id in (select o.id from page o)
    )
    select ${columns}, ${isSkipped(schema)} as void, o.id not in (select w.event_id from waiting w) as published from page o
     order by o.aggregate_type, o.aggregate_id, o.version`
}

/** Some versions of an aggregate: behind the one that is there, up to the one that is wanted. */
export interface VersionSpan {
  readonly aggregate_type: string
  readonly aggregate_id: string
  readonly built: string
  readonly live: string
}

/** The events of these versions. */
export function readBehind(
  { outbox, schema }: Pick<Outbox, 'outbox' | 'schema'>,
  aggregates: readonly VersionSpan[],
  limit: number,
): Statement<ReplayRow> {
  return sql`
    select ${columns}, ${isSkipped(schema)} as void
      from unnest(${sqlArray(aggregates.map((each) => each.aggregate_type))}::text::text[], ${sqlArray(aggregates.map((each) => each.aggregate_id))}::text::text[],
                  ${sqlArray(aggregates.map((each) => each.built))}::text::bigint[], ${sqlArray(aggregates.map((each) => each.live))}::text::bigint[])
             as a (aggregate_type, aggregate_id, built, live)
      join ${outbox} o on o.aggregate_type = a.aggregate_type and o.aggregate_id = a.aggregate_id and o.version > a.built and o.version <= a.live
     order by o.aggregate_type, o.aggregate_id, o.version limit ${limit}::int`
}

/**
 * Whether an operator skipped the event `o`, so that a marker was published in its place. Once that is done nothing but the audit
 * log tells of it. If the marker was refused as well, and then the event redriven, the last word counts.
 */
export function isSkipped(schema: string): Part {
  return part`
    (o.id::text in (select e #>> '{}' from ${name(schema, 'audit_log')} a, jsonb_path_query(a.details, '$.events[*].eventId') e
                     where a.action in ('outbox.skip', 'outbox.redrive')
                     group by 1 having (array_agg(a.action order by a.id desc))[1] = 'outbox.skip'))`
}

const columns: Part = part`
  o.id::text as event_id, o.topic, o.aggregate_type, o.aggregate_id, o.version::text as version, o.event_type, o.schema_version, o.content_type,
  o.payload, o.headers::text as headers, to_char(o.occurred_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as occurred_at,
  (extract(epoch from o.occurred_at) * 1000)::bigint::text as occurred_at_ms`
