/**
 * What is known of one request or event in one service's schema, as statements. They only read, and no payload.
 */
import type { CommandTables } from '../../command/model/command.sql.ts'
import type { InboxTables } from '../../consumer/tables/inbox.sql.ts'
import type { OutboxTables } from '../../outbox/tables/outbox.sql.ts'
import { name, sql, sqlArray, type Statement } from '../../postgres/query/sql.ts'
import type { Projection } from '../../projection/projection.ts'

export interface TracedMarkerRow {
  readonly principal: string
  readonly request_id: string
  readonly command: string
  readonly rejected: boolean
  readonly created_at: string
}

/** The marker of a request, by a definer function: a role that may not read who asked for what may ask for one that it names. */
export function selectTracedMarker(
  tables: CommandTables,
  key: { readonly principal: string; readonly requestId: string },
): Statement<TracedMarkerRow> {
  return sql`
    select ${key.principal}::text as principal, ${key.requestId}::text as request_id, command, rejected,
           to_char(created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as created_at
      from ${tables.traceMarker}(${key.principal}::text, ${key.requestId}::text)`
}

/** The markers of a request id, whoever's it is. There is no index for that: it reads the table, so bound its time. */
export function scanTracedMarkers(tables: CommandTables, requestId: string, limit: number): Statement<TracedMarkerRow> {
  return sql`
    select principal, request_id, command, rejected, to_char(created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as created_at
      from ${tables.marker} where request_id = ${requestId}::text limit ${limit}::int`
}

/**
 * The marker of the request that an event names, among those written in the time before it: the marker is the first thing
 * that its transaction wrote. The id is made as the command pipeline makes it. Index: command_marker_created_at_idx.
 */
export function selectMarkerOfEvent(
  tables: CommandTables,
  event: { readonly commandId: string; readonly occurredAt: string },
  windowMs: number,
): Statement<TracedMarkerRow> {
  return sql`
    select principal, request_id, command, rejected, to_char(created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as created_at
      from ${tables.marker}
     where created_at <= ${event.occurredAt}::text::timestamptz
       and created_at > ${event.occurredAt}::text::timestamptz - ${windowMs}::int * interval '1 millisecond'
       and substring(encode(sha256(convert_to(principal || chr(10) || request_id, 'UTF8')), 'hex') from 1 for 32) = ${event.commandId}::text
     limit 1`
}

/** The events of a request, in the time after its marker was written. Index: outbox_occurred_at_idx. */
export function selectEventsOfCommand(
  tables: OutboxTables,
  request: { readonly commandId: string; readonly since: string },
  windowMs: number,
): Statement<{ id: string }> {
  return sql`
    select o.id::text as id from ${tables.outbox} o
     where o.occurred_at >= ${request.since}::text::timestamptz
       and o.occurred_at < ${request.since}::text::timestamptz + ${windowMs}::int * interval '1 millisecond'
       and o.headers ->> 'command_id' = ${request.commandId}::text
     order by o.occurred_at, o.id limit 1000`
}

/** The same when nobody knows the time any more: it reads the table, so bound its time. */
export function scanEventsOfCommand(tables: OutboxTables, commandId: string): Statement<{ id: string }> {
  return sql`
    select o.id::text as id from ${tables.outbox} o
     where o.headers ->> 'command_id' = ${commandId}::text
     order by o.occurred_at, o.id limit 1000`
}

export interface TracedEventRow {
  readonly id: string
  readonly topic: string
  readonly aggregate_type: string
  readonly aggregate_id: string
  readonly version: string
  readonly event_type: string
  readonly state: string
  readonly occurred_at: string
  readonly attempts: number
  readonly next_retry_at: string | null
  readonly parked_at: string | null
  readonly last_error: string | null
  readonly lane: number | null
  readonly relay: string | null
  readonly command_id: string | null
}

/** Events that the outbox has, with where they are on their way to the broker. Index: the outbox's primary key. */
export function selectTracedEvents(tables: OutboxTables, ids: readonly string[]): Statement<TracedEventRow> {
  return sql`
    select s.id::text as id, s.topic, s.aggregate_type, s.aggregate_id, s.version::text as version, s.event_type, s.state,
           to_char(s.occurred_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as occurred_at, s.publish_attempts as attempts,
           to_char(s.next_retry_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as next_retry_at,
           to_char(s.parked_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as parked_at, s.last_error, s.lane,
           (select l.locked_by from ${tables.lane} l where l.lane = s.lane and l.lock_expires_at > clock_timestamp()) as relay,
           (select o.headers ->> 'command_id' from ${tables.outbox} o where o.id = s.id) as command_id
      from ${tables.status} s
     where s.id = any (${sqlArray(ids)}::text::uuid[])
     order by s.occurred_at, s.id`
}

export interface PublishRow {
  readonly event_id: string
  readonly published_at: string
  readonly attempts: number
  readonly relay: string
  readonly message_id: string
}

/** Every confirmed publish of these events: a replay adds another. Index: outbox_receipt_event_id_idx. */
export function selectPublishes(tables: OutboxTables, ids: readonly string[]): Statement<PublishRow> {
  return sql`
    select r.event_id::text as event_id, to_char(r.published_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as published_at,
           r.attempts, r.relay, r.message_id
      from ${tables.receipt} r where r.event_id = any (${sqlArray(ids)}::text::uuid[])
     order by r.published_at`
}

/** What consumers of this schema emitted because of these events. Index: the primary key of outbox_source. */
export function selectEmitted(
  tables: OutboxTables,
  ids: readonly string[],
): Statement<{ event_id: string; source_event_id: string; source: string }> {
  return sql`
    select s.event_id::text as event_id, s.source_event_id::text as source_event_id, s.source
      from ${tables.source} s where s.source_event_id = any (${sqlArray(ids)}::text::uuid[])
     order by s.source_event_id, s.source, s.ordinal`
}

/** An event as far as it is known: consumers may remember one that the outbox has forgotten. */
export interface TracedName {
  readonly id: string
  readonly aggregateType: string | undefined
  readonly aggregateId: string | undefined
}

export interface DeliveryRow {
  readonly event_id: string
  readonly consumer: string
  readonly processed_at: string | null
  readonly attempts: number | null
  readonly attempt_error: string | null
  readonly failed_at: string | null
  readonly stored_state: number | null
  readonly stored_attempts: number | null
  readonly stored_error: string | null
  readonly received_at: string | null
  readonly next_attempt_at: string | null
  readonly letter: string | null
  readonly letter_state: string | null
  readonly letter_reason: string | null
  readonly letter_error: string | null
  readonly letter_attempts: number | null
  readonly dead_at: string | null
  readonly position: string | null
  readonly held_by: string | null
}

/** What each consumer of this schema knows of these events. Indexes: the keys of each table. */
export function selectDeliveries(tables: InboxTables, events: readonly TracedName[]): Statement<DeliveryRow> {
  return sql`
    select e.id::text as event_id, c.name as consumer, to_char(i.processed_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as processed_at,
           a.attempts, a.last_error as attempt_error, to_char(coalesce(a.finished_at, a.first_at) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as failed_at,
           m.state as stored_state, m.attempts as stored_attempts, m.error as stored_error,
           to_char(m.received_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as received_at,
           to_char(m.next_attempt_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as next_attempt_at,
           d.id::text as letter, d.state as letter_state, d.reason as letter_reason, d.error as letter_error, d.attempts as letter_attempts,
           to_char(d.dead_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as dead_at,
           p.version::text as position, p.held_by::text as held_by
      from unnest(${sqlArray(events.map(({ id }) => id))}::text::uuid[],
                  ${sqlArray(events.map(({ aggregateType }) => aggregateType))}::text::text[],
                  ${sqlArray(events.map(({ aggregateId }) => aggregateId))}::text::text[])
             with ordinality as e (id, aggregate_type, aggregate_id, place)
     cross join ${tables.consumer} c
      left join ${tables.inbox} i on i.consumer = c.name and i.generation = c.generation and i.event_id = e.id
      left join ${tables.attempt} a on a.consumer = c.name and a.generation = c.generation and a.event_id = e.id
      left join ${tables.message} m on m.consumer = c.name and m.generation = c.generation and m.event_id = e.id
      left join ${tables.deadLetter} d on d.consumer = c.name and d.generation = c.generation and d.event_id = e.id
      left join ${tables.position} p on p.consumer = c.name and p.generation = c.generation
                                    and p.aggregate_type = e.aggregate_type and p.aggregate_id = e.aggregate_id
     order by e.place, c.name`
}

/** The version that a projection has of one key. Index: the unique one on the key's columns. */
export function selectProjected(
  { table, keyColumns, versionColumn, deletedAtColumn }: Projection,
  key: readonly string[],
): Statement<{ version: string; deleted_at: string | null }> {
  const head = sql`
    select coalesce(t.${name(versionColumn)}, 0)::text as version, t.${name(deletedAtColumn)}::text as deleted_at from ${table} t where true`
  const matches = keyColumns.map((column, i) => ` and t.${name(column).quoted} = $${i + 1}`)
  return { text: head.text + matches.join(''), values: [...key] }
}

/** Whose schema it is. */
export function selectService(schema: string): Statement<{ service: string }> {
  return sql`select service from ${name(schema, 'deployment')}`
}
