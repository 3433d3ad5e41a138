/**
 * The statements that keep what stored mode has applied. They run before the messages are removed, in the same transaction.
 */
import { sql, sqlArray, type Statement } from '../../../postgres/query/sql.ts'
import { firstOf, type ExpiredStretch, type StretchExpiry } from './retention.sql.ts'
import type { InboxTables, Scope } from '../inbox.sql.ts'
import { askedRows, type StoredPlace } from '../stored.sql.ts'

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
