/**
 * How much waits in the outbox, and what could be in its way.
 */
import { part, sql, type Part, type Statement } from '../../postgres/query/sql.ts'
import { datedError } from './dispatch.sql.ts'
import type { OutboxTables } from './outbox.sql.ts'
import { isAllPaused, pausedError } from './pause.sql.ts'

/** Counts are exact up to here. More of one state is told as this many: counting would take from the database what relays need to drain it. */
const backlogBound = 100_000

export interface Backlog {
  readonly due: number
  readonly retrying: number
  readonly held: number
  readonly parked: number
  readonly oldestAgeMs: number
  /** The same without what is parked, paused, held behind another event, or to be sent later; such an event ages from its date on. */
  readonly oldestDueAgeMs: number
  readonly highestAttempts: number
  /** Lanes that nobody has worked for two leases: no relay runs, or one is stuck in a transaction. */
  readonly unownedLanes: number
  /** The oldest snapshot in this database keeps dead rows alive, and every drain slow. `null` if this role may not see one of them. */
  readonly oldestSnapshotAgeMs: number | null
}

/** Whether a dispatch row `d` is late until it is out: it waits neither for its date nor for an operator. What failed waits for a retry only. */
export const isLate: Part = part`(d.next_retry_at is null or d.next_retry_at <= (select clock_timestamp()) or (d.publish_attempts > 0 or d.last_error <> ${datedError}::text) and d.last_error is distinct from ${pausedError}::text)`

/** Since when a dispatch row `d` of the event `o` could go out. A pause is looked at again now and then: that is its date. */
export const lateSince: Part = part`(case when d.state = 0 or d.last_error in (${datedError}::text, ${pausedError}::text) then greatest(o.occurred_at, d.next_retry_at) else o.occurred_at end)`

/** Rows of one lane and state, or of the next retries, among which the first late one is looked for. */
const lookBound = 150

/**
 * The dispatch rows that may be the oldest late one of their lane. Where more of what waits for its date or for an operator stands
 * in front than we look through, relays set it aside as retries. Of those the first whose time has come is found by its time, and so
 * is what failed, for it is tried again sooner than most of what waits. While everything is paused, nothing is late.
 * Indexes: the primary key, outbox_dispatch_retry_idx.
 */
export function lateRows(tables: OutboxTables): Part {
  const { lane, dispatch } = tables
  const front = (rows: Part): Part => part`
          (select d.* from (select d.* from ${dispatch} d
                             where d.lane = l.lane and ${rows} limit (select ${lookBound}::int)) d where ${isLate} order by d.seq limit 1)`
  return part`
      select d.* from ${lane} l cross join lateral (${front(part`d.state = 0 order by d.seq`)}
          union all${front(part`d.state = 1 order by d.seq`)}
          union all${front(part`d.state = 1 order by d.next_retry_at`)}
          union all
          (select d.* from ${dispatch} d
            where d.lane = l.lane and d.state = 1 and d.next_retry_at <= (select clock_timestamp()) order by d.next_retry_at limit 1)) d
       where not ${isAllPaused(tables)}`
}

/**
 * Counts every state, each up to `bound`, or all of it without one. Lane by lane, in order and up to a bound that the planner cannot
 * see, rows are read from the index one by one. Attempts are kept by heads only. The oldest event of each lane and state stands first
 * in the primary key. Of other roles' sessions the server shows everybody that they have a snapshot, and since when only to
 * pg_read_all_stats.
 */
export function readBacklog(tables: OutboxTables, bound: number | null = backlogBound): Statement<Backlog> {
  return sql`
    with part as materialized (
      select s.state, (select count(*) from (
               select from ${tables.lane} l cross join lateral (
                 select from ${tables.dispatch} d where d.lane = l.lane and d.state = s.state order by d.seq limit (select ${bound}::int)) d
                limit (select ${bound}::int)) d) as rows
        from (values (0), (1), (2), (3)) as s (state)
    ), counted as (
      select sum(rows) filter (where state = 0)::float8 as due, sum(rows) filter (where state = 1)::float8 as retrying,
             sum(rows) filter (where state = 2)::float8 as held, sum(rows) filter (where state = 3)::float8 as parked
        from part
    ), head as (
      select coalesce(max(h.publish_attempts), 0)::float8 as attempts from (
        select d.publish_attempts from ${tables.lane} l cross join (values (1), (3)) as s (state) cross join lateral (
          select d.publish_attempts from ${tables.dispatch} d where d.lane = l.lane and d.state = s.state order by d.seq limit (select ${bound}::int)) d
         limit (select ${bound}::int)) h
    ), oldest as (
      select min(o.occurred_at) as occurred_at
        from ${tables.lane} l cross join (values (0), (1), (2), (3)) as s (state) cross join lateral (
          select d.event_id from ${tables.dispatch} d where d.lane = l.lane and d.state = s.state order by d.seq limit 1) d
        join ${tables.outbox} o on o.id = d.event_id
    ), late as (
      select min(${lateSince}) as since
        from (${lateRows(tables)}) d
        join ${tables.outbox} o on o.id = d.event_id
    )
    select due, retrying, held, parked, attempts as "highestAttempts",
           greatest(0, coalesce(extract(epoch from clock_timestamp() - oldest.occurred_at) * 1000, 0))::float8 as "oldestAgeMs",
           greatest(0, coalesce(extract(epoch from clock_timestamp() - late.since) * 1000, 0))::float8 as "oldestDueAgeMs",
           (select count(*) from ${tables.lane} where lock_token is null or lock_expires_at < clock_timestamp() - interval '10 seconds')::float8 as "unownedLanes",
           (select case when bool_or(query = '<insufficient privilege>') is not true
                        then coalesce(max(extract(epoch from clock_timestamp() - xact_start) * 1000), 0)::float8 end
              from pg_stat_activity where datname = current_database() and backend_xmin is not null and pid <> pg_backend_pid()) as "oldestSnapshotAgeMs"
      from counted, head, oldest, late`
}

/** Rows that could go out now and are in no living other relay's lanes: what a draining relay still has to do. */
export function readRemaining(tables: OutboxTables, relay: string, leaseMs: number): Statement<{ remaining: number }> {
  return sql`
    select count(*)::int as remaining
      from ${tables.lane} l
     where not ${isAllPaused(tables)}
       and not exists (select from ${tables.worker} w
                        where w.worker = l.locked_by and w.worker <> ${relay}
                          and abs(extract(epoch from clock_timestamp() - w.seen_at)) * 1000 < ${leaseMs}::int)
       and (exists (select from ${tables.dispatch} d where d.lane = l.lane and d.state = 0)
         or exists (select from ${tables.dispatch} d where d.lane = l.lane and d.state = 1 and d.next_retry_at <= (select clock_timestamp())))`
}
