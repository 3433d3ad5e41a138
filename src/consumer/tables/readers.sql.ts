/**
 * The statements on the register of running instances, and on what was put aside for them.
 *
 * Rows are set aside behind lanes and positions, as everything in inbox_message is.
 */
import { part, sql, sqlArray, type Part, type Statement } from '../../postgres/query/sql.ts'
import type { InboxTables, Scope } from './inbox.sql.ts'
import type { Item } from '../model/batch-item.ts'
import { aggregateIds, aggregateTypes, ids } from './item-arrays.ts'
import type { Unknown } from '../model/routes.ts'

export interface Registration {
  readonly instance: string
  readonly host: string
  /** As JSON. */
  readonly reads: string
  readonly digest: string
  readonly leaseMs: number
}

/** Enters a running instance, or prolongs its entry, and removes those that ended an hour ago. Index: the primary key. */
export function beat({ tables, consumer, generation }: Scope, of: Registration): Statement {
  return sql`
    with gone as (
      delete from ${tables.reader} r where (r.consumer, r.instance) in (
        select o.consumer, o.instance from ${tables.reader} o where o.expires_at < clock_timestamp() - interval '1 hour' for update skip locked)
    )
    insert into ${tables.reader} as r (consumer, instance, generation, host, reads, digest, expires_at)
    values (${consumer}::text, ${of.instance}::text::uuid, ${generation}::int, ${of.host}::text, ${of.reads}::text::jsonb, ${of.digest}::text,
            clock_timestamp() + ${of.leaseMs}::float8 * interval '1 millisecond')
    on conflict (consumer, instance) do update set expires_at = excluded.expires_at`
}

/** A clean end. Index: the primary key. */
export function leave({ tables, consumer }: Scope, instance: string): Statement {
  return sql`delete from ${tables.reader} r where r.consumer = ${consumer}::text and r.instance = ${instance}::text::uuid`
}

/** What the running instances of other versions read, each version once. Index: the primary key. */
export function selectOtherReads({ tables, consumer, generation }: Scope, digest: string): Statement<{ reads: string }> {
  return sql`
    select distinct r.reads::text as reads from ${tables.reader} r
     where r.consumer = ${consumer}::text and r.digest <> ${digest}::text and ${isRunning(part`${generation}::int`)}`
}

/** Of these events, those whose effect is committed. Index: the primary key of inbox. */
export function selectSeen(
  { tables, consumer, generation }: Scope,
  items: readonly Pick<Item, 'event'>[],
): Statement<{ id: string }> {
  return sql`
    select i.event_id::text as id from ${tables.inbox} i
     where i.consumer = ${consumer}::text and i.generation = ${generation}::int and i.event_id = any (${ids(items)}::text::uuid[])`
}

/** Makes the positions of these items' aggregates where there are none, and locks them, in the order of aggregates. */
export function lockPositions({ tables, consumer, generation }: Scope, items: readonly Pick<Item, 'event'>[]): Statement {
  return sql`
    insert into ${tables.position} as p (consumer, generation, aggregate_type, aggregate_id, version)
    select distinct ${consumer}::text, ${generation}::int, i.aggregate_type, i.aggregate_id, 0
      from unnest(${aggregateTypes(items)}::text::text[], ${aggregateIds(items)}::text::text[]) as i (aggregate_type, aggregate_id)
     order by 3, 4
    on conflict (consumer, generation, aggregate_type, aggregate_id) do update set updated_at = p.updated_at`
}

/** Notes what was not known of messages that wait. Index: the unique one on the event. */
export function markUnknown(
  { tables, consumer, generation }: Scope,
  items: readonly Pick<Item, 'event'>[],
  unknown: readonly Unknown[],
): Statement {
  return sql`
    update ${tables.message} m set unknown = i.unknown
      from unnest(${ids(items)}::text::uuid[], ${sqlArray(unknown)}::text::text[]) as i (event_id, unknown)
     where m.consumer = ${consumer}::text and m.generation = ${generation}::int and m.event_id = i.event_id and m.state = 4`
}

export interface ReaderRow {
  readonly consumer: string
  readonly generation: number
  readonly instance: string
  readonly host: string
  readonly reads: string
  readonly digest: string
  readonly started_at: string
}

/** The running instances of all consumers, in the generation that is live. Index: none, there are as many rows as instances. */
export function selectReaders(tables: InboxTables): Statement<ReaderRow> {
  return sql`
    select r.consumer, r.generation, r.instance::text as instance, r.host, r.reads::text as reads, r.digest,
           to_char(r.started_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as started_at
      from ${tables.reader} r join ${tables.consumer} c on c.name = r.consumer
     where ${isRunning(part`c.generation`)}
     order by r.consumer, r.started_at, r.instance`
}

export interface AtRestRow {
  readonly aggregate_type: string
  readonly event_type: string
  readonly messages: number
}

/**
 * What was put aside, by stream and type, as far as no running instance reads it; up to `bound` messages are looked at.
 * Index: inbox_message_waiting_idx.
 */
export function selectAtRest({ tables, consumer, generation }: Scope, bound: number): Statement<AtRestRow> {
  return sql`
    with aside as materialized (
      select m.aggregate_type, m.attributes ->> 'event_type' as event_type, m.unknown from ${tables.message} m
       where m.consumer = ${consumer}::text and m.generation = ${generation}::int and m.state = 4 and m.unknown is not null limit ${bound}::int
    ), grouped as materialized (
      select a.aggregate_type, a.event_type, a.unknown, count(*)::int as messages from aside a group by 1, 2, 3
    )
    select g.aggregate_type, g.event_type, sum(g.messages)::int as messages from grouped g
     where not exists (
       select from ${tables.reader} r
        where r.consumer = ${consumer}::text and ${isRunning(part`${generation}::int`)}
          and case g.unknown when 'stream' then r.reads -> g.aggregate_type is not null
                             else r.reads -> g.aggregate_type @> to_jsonb(g.event_type) end)
     group by 1, 2 order by 1, 2`
}

/** Whether the instance in row `r` runs, and works for this generation. */
function isRunning(generation: Part): Part {
  return part`r.generation = ${generation} and r.expires_at > clock_timestamp()`
}
