/**
 * What an operator sees at a glance, as statements that stay quick however much there is: they follow indexes, stop counting
 * at a bound, and take the server's own estimates for the sizes of tables. They only read.
 */
import { pauseId, type InboxTables, type Scope } from '../../consumer/tables/inbox.sql.ts'
import { lateRows, lateSince } from '../../outbox/tables/backlog.sql.ts'
import type { OutboxTables } from '../../outbox/tables/outbox.sql.ts'
import { name, sql, type Statement } from '../../postgres/query/sql.ts'

export interface BacklogRow {
  readonly due: number
  readonly retrying: number
  readonly held: number
  readonly parked: number
  readonly estimated: boolean
  readonly oldest_due_ms: number | null
  readonly oldest_ms: number | null
  readonly highest_attempts: number
}

/**
 * What waits in each state: counted lane by lane, up to `bound` rows a lane. Beyond that, a lane is taken to have its share of
 * the numbers between its first row and its last. The oldest of each lane and state stands first in the primary key; attempts
 * are kept by heads only. Counted in order and up to a bound that the planner cannot see, the
 * rows are read from the index one by one, also from a table without statistics.
 * Indexes: the primary key, outbox_dispatch_head_idx, outbox_dispatch_retry_idx.
 */
export function selectBacklog(tables: OutboxTables, bound: number): Statement<BacklogRow> {
  return sql`
    with part as materialized (
      select l.lane, s.state, c.rows, f.event_id,
             case when c.rows < ${bound}::int then c.rows
                  else greatest(c.rows, (e.seq - f.seq) / (select count(*) from ${tables.lane})) end as estimate
        from ${tables.lane} l cross join (values (0), (1), (2), (3)) as s (state)
       cross join lateral (select count(*) as rows from (
               select from ${tables.dispatch} d where d.lane = l.lane and d.state = s.state order by d.seq limit (select ${bound}::int)) d) c
        left join lateral (select d.seq, d.event_id from ${tables.dispatch} d
                            where d.lane = l.lane and d.state = s.state order by d.seq limit 1) f on true
        left join lateral (select d.seq from ${tables.dispatch} d
                            where d.lane = l.lane and d.state = s.state order by d.seq desc limit 1) e on true
    ), late as materialized (${lateRows(tables)}
    )
    select coalesce(sum(p.estimate) filter (where p.state = 0), 0)::float8 as due,
           coalesce(sum(p.estimate) filter (where p.state = 1), 0)::float8 as retrying,
           coalesce(sum(p.estimate) filter (where p.state = 2), 0)::float8 as held,
           coalesce(sum(p.estimate) filter (where p.state = 3), 0)::float8 as parked,
           bool_or(p.rows >= ${bound}::int) as estimated,
           (extract(epoch from clock_timestamp() - (select min(${lateSince}) from late d join ${tables.outbox} o on o.id = d.event_id)) * 1000)::float8 as oldest_due_ms,
           (extract(epoch from clock_timestamp() - min(o.occurred_at)) * 1000)::float8 as oldest_ms,
           (select coalesce(max(h.publish_attempts), 0)::int from (
              select d.publish_attempts from ${tables.dispatch} d where d.state in (1, 3) limit 10000) h) as highest_attempts
      from part p left join ${tables.outbox} o on o.id = p.event_id`
}

export interface LeaseRow {
  readonly lanes: number
  readonly owned: number
  readonly unowned: number
  readonly expiring: number
}

/** How the lanes are leased. A lease with less than `lateMs` left has missed a renewal. */
export function selectLeases(tables: OutboxTables, lateMs: number): Statement<LeaseRow> {
  return sql`
    select count(*)::int as lanes, (count(*) filter (where l.lock_expires_at > clock_timestamp()))::int as owned,
           (count(*) filter (where l.lock_token is null or l.lock_expires_at <= clock_timestamp()))::int as unowned,
           (count(*) filter (where l.lock_expires_at > clock_timestamp()
                               and l.lock_expires_at < clock_timestamp() + ${lateMs}::int * interval '1 millisecond'))::int as expiring
      from ${tables.lane} l`
}

export interface HeadRow {
  readonly event_id: string
  readonly aggregate_type: string | null
  readonly aggregate_id: string | null
  readonly version: string | null
  readonly state: 'PARKED' | 'RELEASED'
  readonly attempts: number
  readonly next_retry_at: string | null
  readonly error: string | null
  readonly behind: number
}

/** Events that stop their key, parked ones and those with the most attempts first. Indexes: outbox_dispatch_head_idx, …_held_idx. */
export function selectHeads(tables: OutboxTables, limit: number): Statement<HeadRow> {
  return sql`
    select h.event_id::text as event_id, o.aggregate_type, o.aggregate_id, o.version::text as version,
           case h.state when 3 then 'PARKED' else 'RELEASED' end as state, h.publish_attempts as attempts,
           to_char(h.next_retry_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as next_retry_at, h.last_error as error,
           (select count(*)::int from (select from ${tables.dispatch} b where b.lane = h.lane and b.key = h.key and b.state = 2 limit 100000) b) as behind
      from (select * from (select * from ${tables.dispatch} d where d.state in (1, 3) limit 10000) d
             order by d.state desc, d.publish_attempts desc, d.seq limit ${limit}::int) h
      left join ${tables.outbox} o on o.id = h.event_id
     order by h.state desc, h.publish_attempts desc, h.seq`
}

export interface PublishDelayRow {
  readonly sample: number
  readonly p50_ms: number | null
  readonly p95_ms: number | null
  readonly last_ms: number | null
}

/**
 * How long the newest published events had waited: those with time-ordered ids, below the id that one of tomorrow would have;
 * ids made from business keys stand mostly above it. `last_ms` is the time since the last publish.
 * Index: outbox_receipt_event_id_idx.
 */
export function selectPublishDelay(tables: OutboxTables, sample: number): Statement<PublishDelayRow> {
  return sql`
    with newest as materialized (
      select r.event_id, r.published_at from ${tables.receipt} r
       where r.event_id < (select (lpad(to_hex(((extract(epoch from clock_timestamp()) + 86400) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid) order by r.event_id desc limit ${sample}::int
    ), recent as (
      select n.published_at, extract(epoch from n.published_at - o.occurred_at) * 1000 as delay_ms
        from newest n left join ${tables.outbox} o on o.id = n.event_id
    )
    select count(delay_ms)::int as sample,
           (percentile_cont(0.5) within group (order by greatest(0, delay_ms)) filter (where delay_ms is not null))::float8 as p50_ms,
           (percentile_cont(0.95) within group (order by greatest(0, delay_ms)) filter (where delay_ms is not null))::float8 as p95_ms,
           (extract(epoch from clock_timestamp() - max(published_at)) * 1000)::float8 as last_ms
      from recent`
}

export interface ConsumerRow {
  readonly name: string
  readonly generation: number
  readonly rebuilding: boolean
  readonly complete: boolean
  readonly paused_by: string | null
  readonly paused_at: string | null
  readonly paused: boolean
}

export function selectConsumers(tables: InboxTables): Statement<ConsumerRow> {
  return sql`
    select c.name, c.generation, c.next_generation is not null as rebuilding, c.ready_at is not null as complete, c.paused, c.paused_by,
           to_char(c.paused_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as paused_at
      from ${tables.consumer} c order by c.name`
}

export interface AppliedRow {
  readonly sample: number
  readonly p50_ms: number | null
  readonly p95_ms: number | null
  readonly last_ms: number | null
}

/**
 * How old the newest applied events were when they were applied, by the time that their ids carry. Those whose ids carry none
 * are left out. Index: the inbox's primary key.
 */
export function selectApplied({ tables, consumer, generation }: Scope, sample: number): Statement<AppliedRow> {
  return sql`
    with newest as materialized (
      select i.event_id, i.processed_at from ${tables.inbox} i
       where i.consumer = ${consumer}::text and i.generation = ${generation}::int and i.event_id < (select (lpad(to_hex(((extract(epoch from clock_timestamp()) + 86400) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid)
       order by i.event_id desc limit ${sample}::int
    ), recent as (
      select n.processed_at, case when substring(n.event_id::text from 15 for 1) = '7' then
               extract(epoch from n.processed_at) * 1000 - ('x' || translate(substring(n.event_id::text from 1 for 13), '-', ''))::bit(48)::bigint end as delay_ms
        from newest n
    )
    select count(delay_ms)::int as sample,
           (percentile_cont(0.5) within group (order by greatest(0, delay_ms)) filter (where delay_ms is not null))::float8 as p50_ms,
           (percentile_cont(0.95) within group (order by greatest(0, delay_ms)) filter (where delay_ms is not null))::float8 as p95_ms,
           (extract(epoch from clock_timestamp() - max(processed_at)) * 1000)::float8 as last_ms
      from recent`
}

export interface StoredCountRow {
  readonly due: number
  readonly retrying: number
  readonly held: number
  readonly estimated: boolean
  readonly oldest_ms: number | null
}

/** What stored mode has stored and not applied, counted as the outbox is. What is dead is a letter. Index: the primary key. */
export function selectStoredCounts({ tables, consumer, generation }: Scope, bound: number): Statement<StoredCountRow> {
  return sql`
    with part as materialized (
      select l.lane, s.state, c.rows, f.received_at
        from ${tables.lane} l cross join (values (0), (1), (2)) as s (state)
       cross join lateral (select count(*) as rows from (
               select from ${tables.message} m
                where m.consumer = ${consumer}::text and m.generation = ${generation}::int and m.lane = l.lane and m.state = s.state
                order by m.seq limit (select ${bound}::int)) m) c
        left join lateral (select m.received_at from ${tables.message} m
                            where m.consumer = ${consumer}::text and m.generation = ${generation}::int and m.lane = l.lane and m.state = s.state
                            order by m.seq limit 1) f on true
       where l.consumer = ${consumer}::text
    )
    select coalesce(sum(p.rows) filter (where p.state = 0), 0)::float8 as due, coalesce(sum(p.rows) filter (where p.state = 1), 0)::float8 as retrying,
           coalesce(sum(p.rows) filter (where p.state = 2), 0)::float8 as held,
           coalesce(bool_or(p.rows >= ${bound}::int), false) as estimated,
           (extract(epoch from clock_timestamp() - min(p.received_at) filter (where p.state in (0, 1))) * 1000)::float8 as oldest_ms
      from part p`
}

/** Dead letters that nobody has settled, by consumer and reason, up to `bound` of them. Index: dead_letter_group_idx. */
export function selectDeadCounts(
  tables: InboxTables,
  bound: number,
): Statement<{ consumer: string; reason: string; count: number }> {
  return sql`
    select d.consumer, d.reason, count(*)::int as count
      from (select d.consumer, d.reason from ${tables.deadLetter} d where d.state = 'dead' limit ${bound}::int) d
     group by 1, 2 order by 1, 2`
}

export interface HeldAggregateRow {
  readonly aggregate_type: string
  readonly aggregate_id: string
  readonly version: string
  readonly waiting: number
  readonly held_by: string | null
}

/** Aggregates that a consumer has stopped for or waits with, those with the most behind them first. Index: consumer_position_waiting_idx. */
export function selectHeldAggregates({ tables, consumer, generation }: Scope, limit: number): Statement<HeldAggregateRow> {
  return sql`
    select p.aggregate_type, p.aggregate_id, p.version::text as version, p.waiting, p.held_by::text as held_by
      from (select * from ${tables.position} p
             where p.consumer = ${consumer}::text and p.generation = ${generation}::int and (p.waiting > 0 or p.held_by is not null) limit 10000) p
     order by p.held_by is not distinct from ${pauseId}::text::uuid desc, p.waiting desc, p.aggregate_type, p.aggregate_id limit ${limit}::int`
}

export interface SizeRow {
  readonly table: string
  readonly rows: number
  readonly bytes: number
}

/** About how many rows the tables have, by the server's own statistics, and how much room they take with their indexes. */
export function selectSizes(schema: string): Statement<SizeRow> {
  return sql`
    select c.relname::text as table, coalesce(nullif(pg_stat_get_live_tuples(c.oid), 0), greatest(0, c.reltuples))::float8 as rows,
           pg_total_relation_size(c.oid)::float8 as bytes
      from pg_class c
     where c.relnamespace = ${schema}::text::regnamespace and c.relkind = 'r'
       and c.relname in ('outbox', 'outbox_dispatch', 'outbox_receipt', 'outbox_source', 'aggregate_version', 'command_marker', 'inbox',
                         'inbox_message', 'consumer_position', 'delivery_attempt', 'dead_letter')
     order by 1`
}

/** Whose schema it is, and what time the database has. */
export function selectWhere(schema: string): Statement<{ service: string; at: string }> {
  return sql`
    select d.service, to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as at from ${name(schema, 'deployment')} d`
}
