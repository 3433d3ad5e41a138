/** The statements that find gaps at a consumer, and the events that close them in the owner's outbox. */
import type { Scope } from '../../consumer/tables/inbox.sql.ts'
import { name, sql, type Statement } from '../../postgres/query/sql.ts'
import { isSkipped } from '../rebuild/replay.sql.ts'

export interface GapRow {
  readonly aggregate_type: string
  readonly aggregate_id: string
  readonly position: string
  readonly next: string
  readonly waiting: number
  readonly age_ms: string
}

/**
 * Aggregates whose stored messages wait for a version that has not come for this long. Those that a dead letter or an
 * operator holds are not gaps. Indexes: consumer_position_waiting_idx, inbox_message_waiting_idx.
 */
export function selectGaps(
  { tables, consumer, generation }: Scope,
  { olderThanMs, limit }: { readonly olderThanMs: number; readonly limit: number },
): Statement<GapRow> {
  return sql`
    select p.aggregate_type, p.aggregate_id, p.version::text as position, w.version::text as next, p.waiting,
           (extract(epoch from clock_timestamp() - w.since) * 1000)::bigint::text as age_ms
      from ${tables.position} p cross join lateral (
        select min(m.version) as version, min(m.received_at) as since from ${tables.message} m
         where m.consumer = p.consumer and m.generation = p.generation and m.state = 4 and m.aggregate_type = p.aggregate_type and m.aggregate_id = p.aggregate_id) w
     where p.consumer = ${consumer}::text and p.generation = ${generation}::int and p.waiting > 0 and p.held_by is null
       and w.version > p.version + 1 and w.since <= clock_timestamp() - ${olderThanMs}::float8 * interval '1 millisecond'
     order by w.since
     limit ${limit}::int`
}

export interface OwnedEventRow {
  readonly event_id: string
  readonly topic: string
  readonly version: string
  readonly event_type: string
  readonly schema_version: number
  readonly content_type: string
  readonly payload: Uint8Array
  readonly headers: string
  readonly occurred_at: string
  readonly void: boolean
}

/** The owner's events of one aggregate between two versions. Index: the outbox's unique key. */
export function selectOwned(
  schema: string,
  gap: Pick<GapRow, 'aggregate_type' | 'aggregate_id' | 'position' | 'next'>,
  limit: number,
): Statement<OwnedEventRow> {
  return sql`
    select o.id::text as event_id, o.topic, o.version::text, o.event_type, o.schema_version, o.content_type, o.payload, o.headers::text,
           to_char(o.occurred_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as occurred_at,
           ${isSkipped(schema)} as void
      from ${name(schema, 'outbox')} o
     where o.aggregate_type = ${gap.aggregate_type}::text and o.aggregate_id = ${gap.aggregate_id}::text
       and o.version > ${gap.position}::text::bigint and o.version < ${gap.next}::text::bigint
     order by o.version limit ${limit}::int`
}
