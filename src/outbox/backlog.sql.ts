/**
 * How much waits in the outbox, and what could be in its way.
 */
import { Name, sql, type Statement } from '../postgres/sql.ts'
import { datedError } from './dispatch.sql.ts'
import type { OutboxTables } from './outbox.sql.ts'
import { pausedError } from './relay-plan.ts'

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
export const isLate: Name = new Name(
  `(d.next_retry_at is null or d.next_retry_at <= (select clock_timestamp()) or (d.publish_attempts > 0 or d.last_error <> '${datedError}') and d.last_error is distinct from '${pausedError}')`,
)

/** Since when a dispatch row `d` of the event `o` could go out. A pause is looked at again now and then: that is its date. */
export const lateSince: Name = new Name(
  `(case when d.state = 0 or d.last_error in ('${datedError}', '${pausedError}') then greatest(o.occurred_at, d.next_retry_at) else o.occurred_at end)`,
)

/**
 * Counts every state. The oldest event of each lane and state stands first in the primary key; those to be sent later are passed
 * over. Of other roles' sessions the server shows everybody that they have a snapshot, and since when only to pg_read_all_stats.
 */
export function readBacklog(tables: OutboxTables): Statement<Backlog> {
  return sql`
    with counted as (
      select count(*) filter (where state = 0)::float8 as due, count(*) filter (where state = 1)::float8 as retrying,
             count(*) filter (where state = 2)::float8 as held, count(*) filter (where state = 3)::float8 as parked,
             coalesce(max(publish_attempts), 0)::float8 as attempts
        from ${tables.dispatch}
    ), oldest as (
      select min(o.occurred_at) as occurred_at
        from ${tables.lane} l cross join (values (0), (1), (2), (3)) as s (state) cross join lateral (
          select d.event_id from ${tables.dispatch} d where d.lane = l.lane and d.state = s.state order by d.seq limit 1) d
        join ${tables.outbox} o on o.id = d.event_id
    ), late as (
      select min(${lateSince}) as since
        from ${tables.lane} l cross join (values (0), (1)) as s (state) cross join lateral (
          select d.* from ${tables.dispatch} d where d.lane = l.lane and d.state = s.state and ${isLate} order by d.seq limit 1) d
        join ${tables.outbox} o on o.id = d.event_id
    )
    select due, retrying, held, parked, attempts as "highestAttempts",
           greatest(0, coalesce(extract(epoch from clock_timestamp() - oldest.occurred_at) * 1000, 0))::float8 as "oldestAgeMs",
           greatest(0, coalesce(extract(epoch from clock_timestamp() - late.since) * 1000, 0))::float8 as "oldestDueAgeMs",
           (select count(*) from ${tables.lane} where lock_token is null or lock_expires_at < clock_timestamp() - interval '10 seconds')::float8 as "unownedLanes",
           (select case when bool_or(query = '<insufficient privilege>') is not true
                        then coalesce(max(extract(epoch from clock_timestamp() - xact_start) * 1000), 0)::float8 end
              from pg_stat_activity where datname = current_database() and backend_xmin is not null and pid <> pg_backend_pid()) as "oldestSnapshotAgeMs"
      from counted, oldest, late`
}

/** Rows that could go out now and are in no living other relay's lanes: what a draining relay still has to do. */
export function readRemaining(tables: OutboxTables, relay: string, leaseMs: number): Statement<{ remaining: number }> {
  return sql`
    select count(*)::int as remaining
      from ${tables.lane} l
     where not exists (select from ${tables.worker} w
                        where w.worker = l.locked_by and w.worker <> ${relay}
                          and abs(extract(epoch from clock_timestamp() - w.seen_at)) * 1000 < ${leaseMs}::int)
       and (exists (select from ${tables.dispatch} d where d.lane = l.lane and d.state = 0)
         or exists (select from ${tables.dispatch} d where d.lane = l.lane and d.state = 1 and d.next_retry_at <= (select clock_timestamp())))`
}
