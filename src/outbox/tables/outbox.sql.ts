/**
 * The statement that adds events, and the names of the outbox's tables. No other file may name them.
 */
import { jsonText } from '../../core/encoding/canonical.ts'
import { name, sql, sqlArray, sqlBytesArray, type Name, type Statement } from '../../postgres/query/sql.ts'
import type { LaneTables } from '../../postgres/lanes/lanes.sql.ts'

export interface OutboxTables extends LaneTables {
  readonly schema: string
  readonly outbox: Name
  readonly dispatch: Name
  readonly receipt: Name
  readonly source: Name
  readonly pause: Name
  readonly status: Name
  readonly version: Name
  readonly addEvent: Name
  readonly addEvents: Name
  readonly addFacts: Name
  readonly read: Name
  readonly settle: Name
  readonly changeLanes: Name
  readonly setDispatching: Name
  readonly dispatching: Name
}

/** The outbox of a schema. A second outbox is a second schema. */
export function outboxTables(schema: string): OutboxTables {
  return {
    schema,
    outbox: name(schema, 'outbox'),
    dispatch: name(schema, 'outbox_dispatch'),
    lane: name(schema, 'outbox_lane'),
    worker: name(schema, 'outbox_relay'),
    receipt: name(schema, 'outbox_receipt'),
    source: name(schema, 'outbox_source'),
    pause: name(schema, 'outbox_pause'),
    status: name(schema, 'outbox_status'),
    version: name(schema, 'aggregate_version'),
    addEvent: name(schema, 'add_event'),
    addEvents: name(schema, 'add_events'),
    addFacts: name(schema, 'add_facts'),
    read: name(schema, 'outbox_read'),
    settle: name(schema, 'outbox_settle'),
    changeLanes: name(schema, 'outbox_change_lanes'),
    setDispatching: name(schema, 'outbox_set_dispatching'),
    dispatching: name(schema, 'outbox_dispatching'),
  }
}

/** An event, encoded and checked, as it goes into the outbox. */
export interface EncodedEvent {
  readonly id: string
  readonly topic: string
  readonly aggregateType: string
  readonly aggregateId: string
  readonly eventType: string
  readonly payload: Uint8Array
  readonly schemaVersion: number
  readonly contentType: string
  readonly headers: Readonly<Record<string, string>>
  readonly version: bigint | undefined
  readonly notBefore: Date | undefined
  readonly source: EventSource | undefined
  readonly columns: Readonly<Record<string, unknown>> | undefined
}

/** What made a consumer emit an event: it is emitted once, however often the source is handled again. */
export interface EventSource {
  readonly name: string
  readonly eventId: string
  readonly ordinal: number
  /** Of a fact: the hash of its content, 32 hexadecimal digits. Facts and other events are not added together. */
  readonly contentHash?: string
}

export interface AddedEvent {
  readonly id: string
  readonly version: string | null
  readonly added: boolean
  readonly conflict?: boolean
}

/** One event as most are: three small statements in one call, without the arrays. */
export function addEvent(tables: OutboxTables, event: EncodedEvent): Statement<{ version: string }> {
  return sql`
    select ${tables.addEvent}(
      ${event.topic}, ${event.aggregateType}, ${event.aggregateId}, ${event.eventType}, ${event.payload}::bytea, ${event.id}::text::uuid,
      ${event.version === undefined ? null : String(event.version)}::text::bigint, ${event.schemaVersion}::int, ${event.contentType},
      ${JSON.stringify(event.headers)}::text::jsonb, ${event.notBefore?.toISOString() ?? null}::text::timestamptz)::text as version`
}

/** Takes versions and writes events with their dispatch rows, all in one call. Rarely used arguments go as null. */
export function addEvents(tables: OutboxTables, events: readonly EncodedEvent[]): Statement<AddedEvent> {
  const column = (value: (event: EncodedEvent) => string | number | bigint | null | undefined): string =>
    sqlArray(events.map(value))
  const optional = (value: (event: EncodedEvent) => string | number | bigint | null | undefined): string | null =>
    events.some((event) => (value(event) ?? null) !== null) ? column(value) : null
  return sql`
    select id::text, version::text, added from ${tables.addEvents}(
      ${column((e) => e.id)}::text::uuid[],
      ${column((e) => e.topic)}::text::text[],
      ${column((e) => e.aggregateType)}::text::text[],
      ${column((e) => e.aggregateId)}::text::text[],
      ${column((e) => e.eventType)}::text::text[],
      ${sqlBytesArray(events.map((e) => e.payload))}::text::bytea[],
      ${optional((e) => e.version)}::text::bigint[],
      ${column((e) => e.schemaVersion)}::text::int[],
      ${column((e) => e.contentType)}::text::text[],
      ${column((e) => JSON.stringify(e.headers))}::text::jsonb[],
      ${optional((e) => e.notBefore?.toISOString())}::text::timestamptz[],
      ${optional((e) => e.source?.name)}::text::text[],
      ${optional((e) => e.source?.eventId)}::text::uuid[],
      ${optional((e) => e.source?.ordinal)}::text::int[],
      ${optional((e) => (e.columns === undefined ? null : jsonText(e.columns, { what: `${e.eventType}: columns`, bigint: 'text' })))}::text::jsonb[])`
}

/** The same for facts, which tells a repeat from another fact under the same key. */
export function addFacts(tables: OutboxTables, facts: readonly EncodedEvent[]): Statement<AddedEvent> {
  const column = (value: (fact: EncodedEvent) => string | number | bigint | null | undefined): string =>
    sqlArray(facts.map(value))
  return sql`
    select id::text, version::text, added, conflict from ${tables.addFacts}(
      ${column((e) => e.id)}::text::uuid[],
      ${column((e) => e.topic)}::text::text[],
      ${column((e) => e.aggregateType)}::text::text[],
      ${column((e) => e.aggregateId)}::text::text[],
      ${column((e) => e.eventType)}::text::text[],
      ${sqlBytesArray(facts.map((e) => e.payload))}::text::bytea[],
      ${column((e) => e.version)}::text::bigint[],
      ${column((e) => e.schemaVersion)}::text::int[],
      ${column((e) => e.contentType)}::text::text[],
      ${column((e) => JSON.stringify(e.headers))}::text::jsonb[],
      ${column((e) => e.source?.name)}::text::text[],
      ${column((e) => e.source?.eventId)}::text::uuid[],
      ${column((e) => e.source?.ordinal)}::text::int[],
      ${sqlBytesArray(facts.map((e) => Buffer.from(e.source?.contentHash ?? '', 'hex')))}::text::bytea[])`
}

/** Outside any business transaction: within one, NOTIFY makes all commits of the server queue. */
export function notifyChannel(channel: string, payload: string): Statement {
  return sql`select pg_notify(${channel}, ${payload})`
}
