/**
 * The statements on positions, on the messages that wait, and on the register. What a batch begins with is in claim.sql.ts;
 * dead letters and attempts are in files beside it.
 *
 * Positions are locked behind inbox rows, in the order of aggregates.
 */
import { aggregateKey } from '../../postgres/lanes/lanes.sql.ts'
import { name, part, sql, sqlArray, sqlBytesArray, type Name, type Part, type Statement } from '../../postgres/query/sql.ts'
import { storableMoment, storableText } from '../../postgres/query/storable.ts'
import type { AggregateName } from '../../projection/reads.sql.ts'
import type { Item } from '../model/batch-item.ts'
import type { StoredRow } from '../model/received-event.ts'
import { aggregateIds, aggregateTypes, ids, versions } from './item-arrays.ts'

export interface InboxTables {
  readonly schema: string
  readonly consumer: Name
  readonly inbox: Name
  readonly position: Name
  readonly offset: Name
  readonly attempt: Name
  readonly message: Name
  readonly archive: Name
  readonly deadLetter: Name
  readonly refused: Name
  readonly lane: Name
  readonly reader: Name
}

export function inboxTables(schema: string): InboxTables {
  return {
    schema,
    consumer: name(schema, 'consumer'),
    inbox: name(schema, 'inbox'),
    position: name(schema, 'consumer_position'),
    offset: name(schema, 'consumer_offset'),
    attempt: name(schema, 'delivery_attempt'),
    message: name(schema, 'inbox_message'),
    archive: name(schema, 'inbox_archive'),
    deadLetter: name(schema, 'dead_letter'),
    refused: name(schema, 'refused_message'),
    lane: name(schema, 'inbox_lane'),
    reader: name(schema, 'consumer_reader'),
  }
}

/** Whose rows: one consumer in one of its lives. */
export interface Scope {
  readonly tables: InboxTables
  readonly consumer: string
  readonly generation: number
}

/** What holds a paused aggregate, in place of a dead letter. No event has this id. */
export const pauseId = '00000000-0000-8000-8000-000000000001'

/** Where an aggregate is after the batch. */
export interface PositionChange extends AggregateName {
  readonly version: bigint
  /** What is known to be taken, by ids that the inbox has; `undefined` leaves it as it is. */
  readonly taken: { readonly from: bigint; readonly to: bigint } | undefined
  /** The dead letter that held it was applied. */
  readonly release: boolean
}

/**
 * How far what was seen of these items' aggregates goes: what is applied, or the newest that waits, or the dead letter behind which it
 * would. An aggregate that the consumer has not seen is not returned. One that nothing waits for costs no more than its position.
 * Indexes: the primary key, inbox_message_waiting_idx, the unique one on a letter's event.
 */
export function readVersions(
  scope: Scope,
  items: readonly Pick<Item, 'event'>[],
): Statement<{ aggregate_type: string; aggregate_id: string; version: string }> {
  const { tables } = scope
  return sql`
    select p.aggregate_type, p.aggregate_id,
           greatest(p.version, case when p.waiting > 0 then (
             select m.version from ${tables.message} m
              where m.consumer = p.consumer and m.generation = p.generation and m.state = 4 and m.aggregate_type = p.aggregate_type and m.aggregate_id = p.aggregate_id
              order by m.consumer desc, m.generation desc, m.aggregate_type desc, m.aggregate_id desc, m.version desc limit 1)
           end, case when p.held_by is not null then (
             select d.version from ${tables.deadLetter} d
              where d.consumer = p.consumer and d.generation = p.generation and d.event_id = p.held_by)
           end)::text as version
      from (select distinct i.* from unnest(${aggregateTypes(items)}::text::text[], ${aggregateIds(items)}::text::text[]) as i (aggregate_type, aggregate_id)) i
     cross join ${positionOf(scope, 'i')} p`
}

/**
 * The row of consumer_position that `asked` is about: one look in the primary key each, whatever the planner believes of the table. A
 * table without statistics it would read from where the consumer's rows begin to where they end. Whoever takes the row by its `place`
 * has it locked already.
 */
export function positionOf({ tables: { position }, consumer, generation }: Scope, asked: 'c' | 'h' | 's' | 'i'): Part {
  return part`lateral (
        select p.*, p.ctid as place from ${position} p
         where p.consumer = ${consumer}::text and p.generation = ${generation}::int
           and p.aggregate_type = ${name(asked)}.aggregate_type and p.aggregate_id = ${name(asked)}.aggregate_id limit 1)`
}

/**
 * How rows of a table are found by (consumer, generation, …) where they are not locked. The scope comes with what is asked for, out of
 * the planner's sight: it would believe that one consumer has few rows, and read all of them.
 */
export const positionAsked: Part = part`
  p.consumer = a.consumer and p.generation = a.generation and p.aggregate_type = a.aggregate_type and p.aggregate_id = a.aggregate_id`

/** Moves sequential and held aggregates forward; their rows are locked by `claim` already. */
export function movePositions(scope: Scope, changes: readonly PositionChange[]): Statement {
  return sql`
    update ${scope.tables.position} p
       set version = greatest(p.version, c.version), held_by = case when c.release then null else p.held_by end, updated_at = clock_timestamp(),
           taken_from = coalesce(c.taken_from, p.taken_from), taken_to = coalesce(c.taken_to, p.taken_to)
      from (select c.*, p.place from unnest(${sqlArray(changes.map((c) => c.aggregateType))}::text::text[], ${sqlArray(changes.map((c) => c.aggregateId))}::text::text[],
                  ${sqlArray(changes.map((c) => c.version))}::text::bigint[], ${sqlArray(changes.map((c) => c.release))}::text::boolean[],
                  ${sqlArray(changes.map((c) => c.taken?.from))}::text::bigint[], ${sqlArray(changes.map((c) => c.taken?.to))}::text::bigint[])
             as c (aggregate_type, aggregate_id, version, release, taken_from, taken_to) cross join ${positionOf(scope, 'c')} p) c
     where p.ctid = c.place`
}

/**
 * Stores messages until their turn comes, and counts them at their aggregates. One that is stored already is left as it is.
 * The key is made as the outbox makes it: the first 8 bytes of the SHA-256 of type and id.
 */
export function storeWaiting(
  { tables, consumer, generation }: Scope,
  items: readonly Pick<Item, 'event' | 'message'>[],
): Statement {
  return sql`
    with stored as (
      insert into ${tables.message} (key, lane, state, consumer, generation, event_id, aggregate_type, aggregate_id, version,
                                     topic, ordering_key, message_id, attributes, body, published_at)
      select k.key, (k.key & 63)::smallint, 4, ${consumer}::text, ${generation}::int, i.event_id, i.aggregate_type, i.aggregate_id, i.version,
             i.topic, i.ordering_key, i.message_id, i.attributes, i.body, i.published_at
        from unnest(${ids(items)}::text::uuid[], ${aggregateTypes(items)}::text::text[], ${aggregateIds(items)}::text::text[], ${versions(items)}::text::bigint[],
                    ${sqlArray(items.map(({ message }) => message.topic))}::text::text[],
                    ${sqlArray(items.map(({ message }) => storableKey(message.orderingKey)))}::text::text[],
                    ${sqlArray(items.map(({ message }) => message.messageId))}::text::text[],
                    ${sqlArray(items.map(({ message }) => attributesJson(message.attributes)))}::text::jsonb[],
                    ${sqlBytesArray(items.map(({ message }) => message.body))}::text::bytea[],
                    ${sqlArray(items.map(({ message }) => storableMoment(message.publishedAtMs)))}::text::timestamptz[])
               as i (event_id, aggregate_type, aggregate_id, version, topic, ordering_key, message_id, attributes, body, published_at),
             lateral (select ${aggregateKey('i')} as key) k
       order by i.event_id
      on conflict (consumer, generation, event_id) do nothing
      returning consumer, generation, aggregate_type, aggregate_id
    )
    update ${tables.position} p set waiting = p.waiting + a.count
      from (select consumer, generation, aggregate_type, aggregate_id, count(*)::int as count from stored group by 1, 2, 3, 4) a
     where ${positionAsked}`
}

/**
 * What waits for these aggregates, in the order of versions, up to one that rests after a failure. Of two of one version the
 * later goes first: a letter that was redriven, and behind it the void that stood in for it. Of each aggregate no more than
 * `limit` are looked at, however much waits. Index: inbox_message_waiting_idx.
 */
export function readWaiting(
  { tables, consumer, generation }: Scope,
  aggregates: readonly AggregateName[],
  bounds: BatchBounds,
): Statement<StoredRow> {
  return sql`
    with found as (
      select m.aggregate_type, m.aggregate_id, m.version, m.seq, m.topic, m.ordering_key, m.message_id, m.attributes, m.body, m.published_at
        from unnest(${sqlArray(aggregates.map((a) => a.aggregateType))}::text::text[], ${sqlArray(aggregates.map((a) => a.aggregateId))}::text::text[]) as a (type, id)
       cross join lateral (
         select m.*, bool_or(coalesce(m.attempts > 0 and m.next_attempt_at > (select clock_timestamp()), false)) over (order by m.version) as behind from (
           select m.* from ${tables.message} m
            where m.consumer = ${consumer}::text and m.generation = ${generation}::int and m.state = 4 and m.aggregate_type = a.type and m.aggregate_id = a.id
            order by m.version, m.seq desc limit ${lookLimit}::int) m) m
       where not m.behind
       order by m.aggregate_type, m.aggregate_id, m.version, m.seq desc limit ${bounds.batchSize}::int
    )
    ${foundInLine}
     where f.bytes_before < ${bounds.batchBytes}::int
     order by f.aggregate_type, f.aggregate_id, f.version, f.seq desc`
}

/** What one transaction takes. */
export interface BatchBounds {
  readonly batchSize: number
  readonly batchBytes: number
}

/** How far into the line of an aggregate is looked for the one whose turn it is. */
const lookLimit = 500

/**
 * The rows of `found` as messages, and the bytes of those before each in line. A body that is kept out of line is measured, not
 * read: only what is taken is.
 */
export const foundInLine: Part = part`
    select f.seq::text, f.topic, f.ordering_key, f.message_id, f.attributes::text, f.body, (extract(epoch from f.published_at) * 1000)::bigint::text as published_at_ms
      from (select found.*, sum(octet_length(body)) over (order by aggregate_type, aggregate_id, version, seq desc) - octet_length(body) as bytes_before from found) f`

/** What decides whose turn it is among those that wait. */
export interface WaitingLine {
  /** The streams that the consumer reads. */
  readonly types: readonly string[]
  readonly sequentialTypes: readonly string[]
  /** The events of sequential streams that close the gap before them. */
  readonly standing: readonly { readonly aggregateType: string; readonly eventType: string }[]
  /** What this process reads. */
  readonly known: readonly { readonly aggregateType: string; readonly eventType: string }[]
  readonly deltaStart: 'first' | 'any'
}

/**
 * What waits although its turn has come: nothing holds its aggregate, and it is next, or closes the gap before it, or its
 * stream is not sequential. An aggregate that may begin with any version begins with the first that waits, and only that one
 * is returned. Nothing before the rest is over of one that failed, nor what is behind that one; nor of one that was put aside
 * because its type was not known, by who does not know it either. What waits behind a gap costs one look at the first of it, however much it is; where an event could close the gap, at the first 500 of it.
 * Indexes: consumer_position_waiting_idx, inbox_message_waiting_idx.
 */
export function readReleased(
  { tables, consumer, generation }: Scope,
  { types, sequentialTypes, standing, known, deltaStart }: WaitingLine,
  bounds: BatchBounds,
): Statement<StoredRow> {
  const namesOf = (events: WaitingLine['known']): Part =>
    part`select * from unnest(${sqlArray(events.map((each) => each.aggregateType))}::text::text[], ${sqlArray(events.map((each) => each.eventType))}::text::text[])`
  return sql`
    with line as materialized (
      select p.*, l.sequential, g.first, l.sequential and ${deltaStart === 'any'}::boolean and p.version = 0 as unbegun
        from ${tables.position} p
       cross join lateral (select p.aggregate_type = any (${sqlArray(sequentialTypes)}::text::text[]) as sequential) l
       cross join lateral (
         select min(f.version) as first from ${tables.message} f
          where f.consumer = p.consumer and f.generation = p.generation and f.state = 4 and f.aggregate_type = p.aggregate_type and f.aggregate_id = p.aggregate_id) g
       where p.consumer = ${consumer}::text and p.generation = ${generation}::int and p.waiting > 0 and p.held_by is null
         and p.aggregate_type = any (${sqlArray(types)}::text::text[])
    ), standing as materialized (
      ${namesOf(standing)} as s (aggregate_type, event_type)
    ), known as materialized (
      ${namesOf(known)} as k (aggregate_type, event_type)
    ), found as (
      select m.aggregate_type, m.aggregate_id, m.version, m.seq, m.topic, m.ordering_key, m.message_id, m.attributes, m.body, m.published_at
        from line p
       cross join lateral (
         select m.*, row_number() over (order by m.version, m.seq desc) as place,
                bool_or(coalesce(m.next_attempt_at > (select clock_timestamp()), false)
                        or (m.unknown is not distinct from 'type' and (m.aggregate_type, m.attributes ->> 'event_type') not in (select k.aggregate_type, k.event_type from known k)))
                  over (order by m.version) as behind from (
           select m.* from ${tables.message} m
            where m.consumer = p.consumer and m.generation = p.generation and m.state = 4 and m.aggregate_type = p.aggregate_type and m.aggregate_id = p.aggregate_id
            order by m.version, m.seq desc limit ${lookLimit}::int) m) m
       where not m.behind
         and (not p.sequential or p.unbegun or p.first <= p.version + 1 or p.aggregate_type in (select s.aggregate_type from standing s))
         and case when not p.sequential then true
                  when p.unbegun then m.place = 1
                  when p.first <= p.version + 1 then m.version <= p.version + m.place
                  else (m.aggregate_type, m.attributes ->> 'event_type') in (select s.aggregate_type, s.event_type from standing s) end
       order by m.aggregate_type, m.aggregate_id, m.version, m.seq desc limit ${bounds.batchSize}::int
    )
    ${foundInLine}
     where f.bytes_before < ${bounds.batchBytes}::int
     order by f.aggregate_type, f.aggregate_id, f.version, f.seq desc`
}

/**
 * Removes stored messages that were applied, or are not needed any more, and their attempts. Indexes: the unique one on the event,
 * the primary key of delivery_attempt.
 */
export function removeStored({ tables, consumer, generation }: Scope, eventIds: readonly string[]): Statement {
  return sql`
    with gone as (
      delete from ${tables.message} m
       where m.consumer = ${consumer}::text and m.generation = ${generation}::int and m.event_id = any (${sqlArray(eventIds)}::text::uuid[]) and m.state = 4
      returning m.event_id, m.consumer, m.generation, m.aggregate_type, m.aggregate_id
    ), forgotten as (
      delete from ${tables.attempt} a
       where a.consumer = ${consumer}::text and a.generation = ${generation}::int and a.event_id = any (array(select event_id from gone))
    )
    update ${tables.position} p set waiting = p.waiting - a.count
      from (select consumer, generation, aggregate_type, aggregate_id, count(*)::int as count from gone group by 1, 2, 3, 4) a
     where ${positionAsked}`
}

/** A stored message failed: it rests. */
export function restStored(
  { tables, consumer, generation }: Scope,
  item: Pick<Item, 'event'>,
  rest: { readonly delayMs: number; readonly error: string },
): Statement {
  return sql`
    update ${tables.message} m
       set attempts = m.attempts + 1, next_attempt_at = clock_timestamp() + ${rest.delayMs}::float8 * interval '1 millisecond',
           started_at = clock_timestamp(), error = ${rest.error}::text
     where m.consumer = ${consumer}::text and m.generation = ${generation}::int and m.event_id = ${item.event.id}::text::uuid and m.state = 4`
}

/**
 * How many messages wait, of how many aggregates, and how long the oldest has. What stands behind a pause waits for an operator:
 * it is counted, and does not age. Indexes: consumer_position_waiting_idx, inbox_message_waiting_idx.
 */
export function countWaiting({
  tables,
  consumer,
  generation,
}: Scope): Statement<{ messages: number; aggregates: number; held: number; oldest_ms: string | null }> {
  return sql`
    select coalesce(sum(p.waiting), 0)::int as messages, count(*)::int as aggregates, count(p.held_by)::int as held,
           (select (extract(epoch from clock_timestamp() - min(m.received_at)) * 1000)::bigint::text from ${tables.message} m
             where m.consumer = ${consumer}::text and m.generation = ${generation}::int and m.state = 4
               and (m.aggregate_type, m.aggregate_id) not in (
                 select h.aggregate_type, h.aggregate_id from ${tables.position} h
                  where h.consumer = ${consumer}::text and h.generation = ${generation}::int and h.waiting > 0 and h.held_by = ${pauseId}::text::uuid)) as oldest_ms
      from ${tables.position} p
     where p.consumer = ${consumer}::text and p.generation = ${generation}::int and p.waiting > 0`
}

/** Enters the consumer in the register; returns how it stands. */
export function registerConsumer({
  tables,
  consumer,
}: Omit<Scope, 'generation'>): Statement<{ generation: number; paused: boolean }> {
  return sql`
    insert into ${tables.consumer} as c (name) values (${consumer}::text)
    on conflict (name) do update set name = excluded.name
    returning c.generation, c.paused`
}

export function readConsumer({
  tables,
  consumer,
}: Omit<Scope, 'generation'>): Statement<{ generation: number; paused: boolean }> {
  return sql`select c.generation, c.paused from ${tables.consumer} c where c.name = ${consumer}::text`
}

/** An event that the consumer's current generation has processed. Index: the inbox's primary key. */
export function selectProcessed(
  tables: InboxTables,
  { consumer, eventId }: { readonly consumer: string; readonly eventId: string },
): Statement<{ conflict: boolean }> {
  return sql`
    select i.conflicted_at is not null as conflict
      from ${tables.inbox} i join ${tables.consumer} c on c.name = i.consumer and c.generation = i.generation
     where i.consumer = ${consumer}::text and i.event_id = ${eventId}::text::uuid`
}

/** Attributes as jsonb takes them, whoever wrote them. What looks unfit is looked at closely: an escape may be part of a text. */
export function attributesJson(attributes: Readonly<Record<string, string>>): string {
  const json = JSON.stringify(attributes)
  if (!/\\u(?:0000|d[89a-f])/.test(json)) return json
  const fit = Object.entries(attributes).map(([name, value]) => [storableText(name), storableText(value)])
  return JSON.stringify(Object.fromEntries(fit))
}

/** A key as text takes it; other clients send bytes. */
export function storableKey(orderingKey: string | undefined): string | null {
  return orderingKey === undefined ? null : storableText(orderingKey)
}
