/**
 * The statements that remove old rows from the inbox and beside it, those that say how far back it remembers, and the archive.
 *
 * Stored mode copies its messages to the archive before it removes them, in the same transaction.
 */
import { sql, sqlArray, type Statement } from '../../postgres/query/sql.ts'
import type { InboxTables, Scope } from './inbox.sql.ts'
import { askedRows, type StoredPlace } from './stored.sql.ts'

interface Expiry {
  readonly ageMs: number
  readonly batchSize: number
}

/** Blocks of a table, the last one not included. */
export interface Stretch {
  readonly from: number
  readonly to: number
}

export interface StretchExpiry extends Expiry {
  readonly stretch: Stretch
}

export interface ExpiredStretch {
  readonly removed: number
  /** What the whole table has. */
  readonly blocks: number
}

/**
 * Removes old inbox rows of a stretch, and writes down in the same transaction that they may be missing from now on. Rows that
 * another instance removes are left to it. Index: none, the stretch is read as it lies.
 */
export function expireInbox(tables: InboxTables, { ageMs, batchSize, stretch }: StretchExpiry): Statement<ExpiredStretch> {
  return sql`
    with edge as materialized (
      select clock_timestamp() - ${ageMs}::float8 * interval '1 millisecond' as at
    ), old as materialized (
      select i.ctid from ${tables.inbox} i
       where i.ctid >= ${firstOf(stretch.from)}::text::tid and i.ctid < ${firstOf(stretch.to)}::text::tid and i.processed_at < (select at from edge)
       limit ${batchSize}::int for update skip locked
    ), noted as (
      update ${tables.consumer} c set forgotten_before = (select at from edge)
       where exists (select from old) and (c.forgotten_before is null or c.forgotten_before < (select at from edge))
    ), gone as (
      delete from ${tables.inbox} i where i.ctid = any (array(select ctid from old)) returning 1
    )
    select count(*)::int as removed, pg_relation_size(${tables.inbox.quoted}::text::regclass)::float8 / current_setting('block_size')::int as blocks from gone`
}

/**
 * Removes what is known of attempts that nobody ever finished, and what was written of an event after its effect had committed: a
 * charge of an instance that lost the race for it. Index: the primary key of inbox; the stretch is read as it lies.
 */
export function expireAttempts(tables: InboxTables, { ageMs, batchSize, stretch }: StretchExpiry): Statement<ExpiredStretch> {
  return sql`
    with old as materialized (
      select a.ctid from ${tables.attempt} a
       where a.ctid >= ${firstOf(stretch.from)}::text::tid and a.ctid < ${firstOf(stretch.to)}::text::tid
         and (a.first_at < (select clock_timestamp() - ${ageMs}::float8 * interval '1 millisecond')
              or exists (select from ${tables.inbox} i where i.consumer = a.consumer and i.generation = a.generation and i.event_id = a.event_id))
       limit ${batchSize}::int for update skip locked
    ), gone as (
      delete from ${tables.attempt} a where a.ctid = any (array(select ctid from old)) returning 1
    )
    select count(*)::int as removed, pg_relation_size(${tables.attempt.quoted}::text::regclass)::float8 / current_setting('block_size')::int as blocks from gone`
}

/**
 * Removes letters that were redriven or discarded, long after that: a rebuild asks what was discarded. One that is dead still waits
 * for somebody. Index: dead_letter_dead_at_idx, for none is settled before it died.
 */
export function expireDeadLetters(tables: InboxTables, { ageMs, batchSize }: Expiry): Statement<{ removed: number }> {
  return sql`
    with edge as materialized (
      select clock_timestamp() - ${ageMs}::float8 * interval '1 millisecond' as at
    ), old as materialized (
      select d.id from ${tables.deadLetter} d
       where d.dead_at < (select at from edge) and d.state in ('redriven', 'discarded')
         and coalesce((d.history -> -1 ->> 'at')::timestamptz, d.dead_at) < (select at from edge)
       limit ${batchSize}::int for update skip locked
    ), gone as (
      delete from ${tables.deadLetter} d where d.id in (select id from old) returning 1
    )
    select count(*)::int as removed from gone`
}

/** How far back a consumer's inbox remembers; null if nothing was ever removed from it. */
export function selectMemory(tables: InboxTables, consumer: string): Statement<{ forgotten_before_ms: string | null }> {
  return sql`
    select (extract(epoch from c.forgotten_before) * 1000)::bigint::text as forgotten_before_ms from ${tables.consumer} c where c.name = ${consumer}::text`
}

/**
 * Since when a consumer has forgotten events of these streams that it has read; no row if it remembers all that it read, or read
 * none. One that is younger than the memory of its inbox has forgotten nothing. What was read within the last hour tells nothing: another
 * instance may have begun with the topic a moment ago, or this one before it crashed, and the broker not know of it yet. No broker forgets
 * so soon. Indexes: the primary keys of consumer_position and inbox; a stream of which nothing is found costs a look at all that
 * the inbox has of the consumer.
 */
export function selectForgotten(
  { tables, consumer, generation }: Scope,
  aggregateTypes: readonly string[],
): Statement<{ forgotten_before: string }> {
  const types = sqlArray(aggregateTypes)
  return sql`
    select to_char(c.forgotten_before at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as forgotten_before from ${tables.consumer} c
     where c.name = ${consumer}::text and c.forgotten_before > c.created_at
       and (exists (select from ${tables.position} p
                     where p.consumer = c.name and p.generation = ${generation}::int and p.aggregate_type = any (${types}::text::text[])
                       and p.updated_at < clock_timestamp() - interval '1 hour')
            or exists (select from ${tables.inbox} i
                        where i.consumer = c.name and i.generation = ${generation}::int and i.source = any (${types}::text::text[])
                          and i.processed_at < clock_timestamp() - interval '1 hour'))`
}

/** Whether a consumer keeps offsets beside its effects. Index: the primary key of consumer_offset. */
export function selectKeepsOffsets(tables: InboxTables, consumer: string): Statement<{ keeps: boolean }> {
  return sql`
    select exists (
      select from ${tables.offset} o
       where o.consumer = c.name and o.generation = c.generation) as keeps from ${tables.consumer} c where c.name = ${consumer}::text`
}

/** The moment, by the database's clock. Index: none. */
export function selectMoment(): Statement<{ at_ms: string }> {
  return sql`select floor(extract(epoch from clock_timestamp()) * 1000)::bigint::text as at_ms`
}

/** The place before every row of a block. */
export function firstOf(block: number): string {
  return `(${block},0)`
}

/** Keeps messages of our lanes. One that was applied before is there already. Index: the primary key of inbox_message. */
export function archiveReceived({ tables, consumer, generation }: Scope, places: readonly StoredPlace[]): Statement {
  return sql`
    insert into ${tables.archive} (consumer, generation, event_id, aggregate_type, aggregate_id, version, topic, ordering_key, message_id,
                                   attributes, body, published_at, received_at)
    select m.consumer, m.generation, m.event_id, m.aggregate_type, m.aggregate_id, m.version, m.topic, m.ordering_key, m.message_id,
           m.attributes, m.body, m.published_at, m.received_at
      from ${tables.message} m where m.ctid = any (array(
        with asked as materialized (
          select ${consumer}::text as consumer, ${generation}::int as generation, p.lane, p.seq, p.state
            from unnest(${sqlArray(places.map(({ lane }) => lane))}::text::smallint[], ${sqlArray(places.map(({ seq }) => seq))}::text::bigint[],
                        ${sqlArray(places.map(({ state }) => state))}::text::smallint[]) as p (lane, seq, state)
        ) select f.place from (${askedRows(tables)}) f))
     order by m.event_id
    on conflict do nothing`
}

/** Keeps messages that waited for their turn. Index: the unique one on the event. */
export function archiveWaiting({ tables, consumer, generation }: Scope, eventIds: readonly string[]): Statement {
  return sql`
    insert into ${tables.archive} (consumer, generation, event_id, aggregate_type, aggregate_id, version, topic, ordering_key, message_id,
                                   attributes, body, published_at, received_at)
    select m.consumer, m.generation, m.event_id, m.aggregate_type, m.aggregate_id, m.version, m.topic, m.ordering_key, m.message_id,
           m.attributes, m.body, m.published_at, m.received_at
      from ${tables.message} m
     where m.consumer = ${consumer}::text and m.generation = ${generation}::int and m.event_id = any (${sqlArray(eventIds)}::text::uuid[]) and m.state = 4
     order by m.event_id
    on conflict do nothing`
}

/** Removes what was kept for long enough. Index: none, the stretch is read as it lies. */
export function expireArchive(tables: InboxTables, { ageMs, batchSize, stretch }: StretchExpiry): Statement<ExpiredStretch> {
  return sql`
    with old as materialized (
      select a.ctid from ${tables.archive} a
       where a.ctid >= ${firstOf(stretch.from)}::text::tid and a.ctid < ${firstOf(stretch.to)}::text::tid
         and a.archived_at < (select clock_timestamp() - ${ageMs}::float8 * interval '1 millisecond')
       limit ${batchSize}::int for update skip locked
    ), gone as (
      delete from ${tables.archive} a where a.ctid = any (array(select ctid from old)) returning 1
    )
    select count(*)::int as removed, pg_relation_size(${tables.archive.quoted}::text::regclass)::float8 / current_setting('block_size')::int as blocks from gone`
}
