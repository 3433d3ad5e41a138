/**
 * What the databases themselves remember of a history, read in pages. Only for tests and drills: some of it scans whole tables.
 */
import type { Scope } from '../../consumer/tables/inbox.sql.ts'
import type { OutboxTables } from '../../outbox/tables/outbox.sql.ts'
import { joined, name, part, sql, type Statement } from '../../postgres/query/sql.ts'
import type { Projection } from '../../projection/projection.ts'

export interface CommittedRow {
  readonly id: string
  readonly aggregate_type: string
  readonly aggregate_id: string
  readonly version: string
  readonly event_type: string
  readonly topic: string
  readonly is_published: boolean
}

/**
 * The events behind a place in the order of aggregates and versions, and whether a relay has a receipt for each; without
 * receipts, whether it is out of the line. Indexes: the unique key of outbox, outbox_receipt_event_id_idx.
 */
export function readCommitted(
  { outbox, receipt, dispatch }: OutboxTables,
  after: Pick<CommittedRow, 'aggregate_type' | 'aggregate_id' | 'version'>,
  { limit, receipts }: { readonly limit: number; readonly receipts: boolean },
): Statement<CommittedRow> {
  return sql`
    select o.id::text, o.aggregate_type, o.aggregate_id, o.version::text, o.event_type, o.topic,
           case when ${receipts}::boolean then exists (select from ${receipt} r where r.event_id = o.id)
                else not exists (select from ${dispatch} d where d.event_id = o.id) end as is_published
      from ${outbox} o
     where (o.aggregate_type, o.aggregate_id, o.version) > (${after.aggregate_type}::text, ${after.aggregate_id}::text, ${after.version}::text::bigint)
     order by o.aggregate_type, o.aggregate_id, o.version
     limit ${limit}::int`
}

/** How many rows wait in the outbox, by state. */
export function countDispatch({ dispatch }: OutboxTables): Statement<{ state: number; count: number }> {
  return sql`select d.state::int as state, count(*)::int as count from ${dispatch} d group by 1 order by 1`
}

/** How far the owner is with each aggregate of a type. Index: the primary key of aggregate_version. */
export function readVersions({ version }: OutboxTables, aggregateType: string): Statement<{ id: string; version: string }> {
  return sql`
    select v.aggregate_id as id, v.version::text from ${version} v
     where v.aggregate_type = ${aggregateType}::text and v.version > 0 order by 1`
}

/** The events behind an id that the consumer has applied. Index: the primary key of inbox. */
export function readApplied(
  { tables, consumer, generation }: Scope,
  { after, limit }: { readonly after: string; readonly limit: number },
): Statement<{ event: string }> {
  return sql`
    select i.event_id::text as event from ${tables.inbox} i
     where i.consumer = ${consumer}::text and i.generation = ${generation}::int and i.event_id > ${after}::text::uuid
     order by i.event_id
     limit ${limit}::int`
}

/** The events that the consumer gave up, and was not told to apply after all; dead are those that nobody has seen to. */
export function readGivenUp({
  tables,
  consumer,
  generation,
}: Scope): Statement<{ event: string; why: string; is_dead: boolean }> {
  return sql`
    select d.event_id::text as event, 'dead letter: ' || d.reason as why, d.state = 'dead' as is_dead from ${tables.deadLetter} d
     where d.consumer = ${consumer}::text and d.generation = ${generation}::int and d.state <> 'redriven'
     order by d.id`
}

/** How many messages the consumer has stored and not applied. */
export function countStored({ tables, consumer, generation }: Scope): Statement<{ count: number }> {
  return sql`
    select count(*)::int as count from ${tables.message} m
     where m.consumer = ${consumer}::text and m.generation = ${generation}::int`
}

/** The version of every row of a projection, by its key as a JSON array of texts. */
export function readProjected({ table, keyColumns, versionColumn }: Projection): Statement<{ key: string; version: string }> {
  const key = keyColumns.map((column) => part`p.${name(column)}::text`)
  return sql`select json_build_array(${joined(key, ', ')})::text as key, p.${name(versionColumn)}::text as version from ${table} p`
}
