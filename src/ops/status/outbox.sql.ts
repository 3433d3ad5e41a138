/**
 * What operators ask about an outbox, and how they hand it over, as statements.
 */
import { isDated } from '../../outbox/tables/dispatch.sql.ts'
import type { OutboxTables } from '../../outbox/tables/outbox.sql.ts'
import { aggregateKey } from '../../postgres/lanes/lanes.sql.ts'
import { name, part, sql, sqlArray, type Part, type Statement } from '../../postgres/query/sql.ts'
import { isSkipped } from '../rebuild/replay.sql.ts'
import type { OutboxState } from './outbox-states.ts'

export interface OutboxEventRow {
  readonly id: string
  readonly topic: string | null
  readonly aggregate_type: string | null
  readonly aggregate_id: string | null
  readonly version: string | null
  readonly event_type: string | null
  readonly state: OutboxState
  readonly occurred_at: string | null
  readonly published_at: string | null
  readonly publish_attempts: number
  readonly next_retry_at: string | null
  readonly last_error: string | null
  readonly message_id: string | null
}

export interface WaitingFilter {
  readonly state: OutboxState | undefined
  readonly aggregateType: string | undefined
  readonly limit: number
}

/**
 * Events that the broker does not have, oldest first. It starts at the dispatch rows: the view would start at the events,
 * of which nearly all are published. Of each lane and state in question it reads the first rows, which stand in order there, and joins
 * the events of those that are shown: neither a few that are parked nor a page of a large backlog cost a walk over all that wait.
 * The filters are such that the planner expects them to be met, and so to find what it needs at the front. Index: primary key.
 */
export function selectWaiting(tables: OutboxTables, { state, aggregateType, limit }: WaitingFilter): Statement<OutboxEventRow> {
  const ofStream = part`(select true from ${tables.outbox} o where o.id = d.event_id and o.aggregate_type = ${aggregateType ?? null}::text)`
  return sql`
    select d.event_id::text as id, o.topic, o.aggregate_type, o.aggregate_id, o.version::text, o.event_type,
           case when d.state = 3 then 'PARKED' when d.state = 2 then 'HELD' when d.in_flight then 'INFLIGHT' when d.state = 1 then 'RELEASED'
                else 'PENDING' end as state,
           ${moment(part`o.occurred_at`)} as occurred_at, null::text as published_at, d.publish_attempts, ${moment(part`d.next_retry_at`)} as next_retry_at, d.last_error,
           null::text as message_id
      from (
        select d.* from ${tables.lane} l cross join unnest(${sqlArray(storedAs(state))}::text::smallint[]) as s (state) cross join lateral (
            select d.*, ${isInFlight} as in_flight from ${tables.dispatch} d
             where d.lane = l.lane and d.state = s.state and ${isShownAs(state)} and (${aggregateType ?? null}::text is null or ${ofStream})
             order by d.seq limit ${limit}::int) d
         order by d.seq limit ${limit}::int) d
      left join ${tables.outbox} o on o.id = d.event_id
     order by d.seq`
}

/** As text that means the same in every session: a plain cast follows its DateStyle, and some of those are read back as another moment. */
function moment(column: Part): Part {
  return part`to_char(${column} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')`
}

const isInFlight: Part = part`(l.lock_token is not null and l.lock_expires_at > clock_timestamp() and d.seq between l.batch_from and l.batch_to)`

/** How the rows are stored that are shown as such. What is published has none. */
function storedAs(state: OutboxState | undefined): readonly number[] {
  if (state === undefined) return [0, 1, 2, 3]
  return { PENDING: [0], INFLIGHT: [0, 1], RELEASED: [1], HELD: [2], PARKED: [3], PUBLISHED: [] }[state]
}

/** Whether a row that is stored so is shown so: what is in a batch goes by that. */
function isShownAs(state: OutboxState | undefined): Part {
  if (state === 'INFLIGHT') return isInFlight
  return state === 'PENDING' || state === 'RELEASED' ? part`${isInFlight} is not true` : part`true`
}

/** The events of one aggregate, or one event, published or not; the newest first. Indexes: outbox's unique ones. */
export function selectHistory(tables: OutboxTables, which: HistoryFilter): Statement<OutboxEventRow> {
  const { eventId = null, aggregateType = null, aggregateId = null, limit } = which
  return sql`
    select s.id::text, s.topic, s.aggregate_type, s.aggregate_id, s.version::text, s.event_type, s.state,
           ${moment(part`s.occurred_at`)} as occurred_at, ${moment(part`s.published_at`)} as published_at, s.publish_attempts,
           ${moment(part`s.next_retry_at`)} as next_retry_at, s.last_error, s.message_id
      from ${tables.status} s
     where (${eventId}::text is null or s.id = ${eventId}::text::uuid)
       and (${aggregateType}::text is null or s.aggregate_type = ${aggregateType}::text)
       and (${aggregateId}::text is null or s.aggregate_id = ${aggregateId}::text)
     order by s.version desc
     limit ${limit}::int`
}

/** An event, or a type and an id of an aggregate. */
export interface HistoryFilter {
  readonly eventId?: string
  readonly aggregateType?: string
  readonly aggregateId?: string
  readonly limit: number
}

export interface LaneRow {
  readonly lane: number
  readonly owner: string | null
  readonly expires_in_ms: number | null
  readonly due: number
  readonly retrying: number
  readonly held: number
  readonly parked: number
}

/** Who works which lane, and what waits in it. Index: primary key of the dispatch rows. */
export function selectLanes(tables: OutboxTables): Statement<LaneRow> {
  return sql`
    select l.lane, l.locked_by as owner, (extract(epoch from l.lock_expires_at - clock_timestamp()) * 1000)::float8 as expires_in_ms,
           coalesce(d.due, 0)::int as due, coalesce(d.retrying, 0)::int as retrying, coalesce(d.held, 0)::int as held, coalesce(d.parked, 0)::int as parked
      from ${tables.lane} l
      left join (select lane, count(*) filter (where state = 0) as due, count(*) filter (where state = 1) as retrying,
                        count(*) filter (where state = 2) as held, count(*) filter (where state = 3) as parked
                   from ${tables.dispatch} group by lane) d on d.lane = l.lane
     order by l.lane`
}

/**
 * The relays that live, with how many lanes each holds: those with a fresh heartbeat, and those with a lease, whose own
 * lease may be longer than `leaseMs` and their heartbeats rarer. Without a heartbeat they were seen when they took a lane, or renewed it.
 */
export function selectRelays(
  tables: OutboxTables,
  leaseMs: number,
): Statement<{ relay: string; lanes: number; seen_ms: number }> {
  return sql`
    select coalesce(w.worker, l.worker) as relay, coalesce(l.lanes, 0) as lanes,
           (extract(epoch from clock_timestamp() - coalesce(w.seen_at, l.taken_at)) * 1000)::float8 as seen_ms
      from ${tables.worker} w
      full join (select locked_by as worker, count(*)::int as lanes, max(locked_at) as taken_at
                   from ${tables.lane} where lock_token is not null and lock_expires_at > clock_timestamp() group by locked_by) l on l.worker = w.worker
     where l.lanes > 0 or w.seen_at > clock_timestamp() - ${leaseMs}::int * interval '1 millisecond'
     order by 1`
}

export function callChangeLanes(tables: OutboxTables, lanes: number): Statement {
  return sql`select ${tables.changeLanes}(${lanes}::int)`
}

export function callSetDispatching(tables: OutboxTables, dispatching: boolean): Statement {
  return sql`select ${tables.setDispatching}(${dispatching}::boolean)`
}

export interface CdcRow {
  readonly wal_level: string
  /** Whether the publication is there. */
  readonly published: boolean
  /** `null` if there is no such slot. */
  readonly plugin: string | null
  /** The server has removed log that its reader had not read. */
  readonly lost: boolean
  /** It has a place in the log from which everything can be read. Until then it is being made. */
  readonly made: boolean
  /** Who makes it or reads it now. */
  readonly pid: number | null
}

/** What a connector needs of the server, as far as it is there. */
export function selectCdc(slot: string, publication: string): Statement<CdcRow> {
  return sql`
    select current_setting('wal_level') as wal_level, exists (select from pg_publication where pubname = ${publication}) as published,
           s.plugin::text, coalesce(s.wal_status = 'lost', false) as lost, s.confirmed_flush_lsn is not null as made, s.active_pid as pid
      from (select) here
      left join pg_replication_slots s on s.slot_name = ${slot} and s.database = current_database()`
}

/** When a connector took over for the last time, and by which slot. */
export function selectSwitchedOn({ schema }: OutboxTables): Statement<{ at: string; slot: string }> {
  return sql`
    select ${moment(part`a.at`)} as at, coalesce(a.details ->> 'slot', '') as slot
      from ${name(schema, 'audit_log')} a
     where a.action = 'outbox.cdc-on' order by a.id desc limit 1`
}

export interface SwitchRow {
  readonly is_on: boolean
  readonly slot: string
  /** What the slot's connector has to confirm before relays may publish. `null` of a switch that waits for no connector. */
  readonly lsn: string | null
  /** Written of every switch that waits for a connector, but not by versions that recorded no end of the wait. */
  readonly waits: boolean
  /** Whether its connector was seen to have confirmed that. */
  readonly is_done: boolean
}

/** The last switch, either way. */
export function selectLastSwitch({ schema }: OutboxTables): Statement<SwitchRow> {
  return sql`
    select a.action = 'outbox.cdc-on' as is_on, coalesce(a.details ->> 'slot', '') as slot, a.details ->> 'lsn' as lsn,
           a.details @> '{"waits": true}' as waits,
           exists (select from ${name(schema, 'audit_log')} e
                    where e.id > a.id and e.action = 'outbox.cdc-off-done' and e.details ->> 'lsn' = a.details ->> 'lsn') as is_done
      from ${name(schema, 'audit_log')} a
     where a.action in ('outbox.cdc-on', 'outbox.cdc-off') order by a.id desc limit 1`
}

/**
 * Puts all events since then in line, in the order of their versions, behind what is there. Those that stand in line already lose
 * their place, for the ones before them come in now, but keep their dates. What was skipped stays a marker, also if that is out
 * already. A minute is for clocks that differ. Only while no relay runs and nobody adds events. Index: outbox_occurred_at_idx.
 */
export function dispatchAgain(tables: OutboxTables, since: string): Statement<{ events: number }> {
  return sql`
    with again as materialized (
      select o.id, o.aggregate_type, o.aggregate_id, o.version,
             ${aggregateKey('o')} as key, ${isSkipped(tables.schema)} as skipped
        from ${tables.outbox} o
       where o.occurred_at >= ${since}::text::timestamptz - interval '1 minute'
    ), removed as (
      delete from ${tables.dispatch} d using again a where d.event_id = a.id
      returning d.event_id, d.void, case when ${isDated} then d.next_retry_at end as not_before
    ), added as (
      insert into ${tables.dispatch} (lane, key, event_id, void, next_retry_at)
      select (a.key & (${name(tables.schema, 'outbox_lanes')}() - 1))::smallint, a.key, a.id, coalesce(r.void, a.skipped), r.not_before
        from again a left join removed r on r.event_id = a.id
       order by a.aggregate_type, a.aggregate_id, a.version
      returning event_id
    )
    select count(*)::float8 as events from added`
}

export function createPublication(tables: OutboxTables, publication: string): Statement {
  return sql`create publication ${name(publication)} for table ${tables.outbox} with (publish = 'insert')`
}

/** A statement of its own: a transaction that has written something cannot make a slot. */
export function createSlot(slot: string): Statement {
  return sql`select pg_create_logical_replication_slot(${slot}, 'pgoutput')`
}

export function dropSlot(slot: string): Statement {
  return sql`select pg_drop_replication_slot(${slot})`
}

export function selectSlots(): Statement<{ slot: string; plugin: string; active: boolean; lag_bytes: number | null }> {
  return sql`
    select slot_name::text as slot, plugin::text, active, pg_wal_lsn_diff(pg_current_wal_insert_lsn(), confirmed_flush_lsn)::float8 as lag_bytes
      from pg_replication_slots
     where slot_type = 'logical' and database = current_database()
     order by 1`
}

export function selectLsn(): Statement<{ lsn: string }> {
  return sql`select pg_current_wal_insert_lsn()::text as lsn`
}

export function countWaiting(tables: OutboxTables): Statement<{ waiting: number; parked: number }> {
  return sql`select count(*)::float8 as waiting, (count(*) filter (where state = 3))::float8 as parked from ${tables.dispatch}`
}
