/**
 * Statements on what an operator holds back: a stream (its aggregate id is empty), an aggregate, or everything (the type is
 * empty too, which no stream's is).
 */
import { aggregateKey } from '../../postgres/lanes/lanes.sql.ts'
import { name, part, sql, type Part, type Statement } from '../../postgres/query/sql.ts'
import type { OutboxTables } from './outbox.sql.ts'

/**
 * A paused key is looked at again this late: seldom, because each look writes a row. Resuming it wakes it at once; a relay that
 * has not heard of that yet and stops it once more is overruled by outbox_settle. Only what an interrupted resume left is this late.
 */
export const pausedForMs = 600_000
export const pausedError = 'paused by an operator'

export interface PauseRow {
  readonly aggregate_type: string
  readonly aggregate_id: string
  readonly reason: string
  readonly paused_by: string
  readonly paused_at: string
}

export function selectPauses(tables: OutboxTables): Statement<PauseRow> {
  return sql`
    select aggregate_type, aggregate_id, reason, paused_by,
           to_char(paused_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as paused_at
      from ${tables.pause}
     order by aggregate_type, aggregate_id`
}

/** Whether everything is paused. Index: primary key. */
export function isAllPaused({ pause }: OutboxTables): Part {
  return part`exists (select from ${pause} p where p.aggregate_type = '' and p.aggregate_id = '')`
}

/** The second to pause the same changes nothing: the first reason is the one to resolve. */
export function insertPause(tables: OutboxTables, row: Omit<PauseRow, 'paused_at'>): Statement {
  return sql`
    insert into ${tables.pause} (aggregate_type, aggregate_id, reason, paused_by)
    values (${row.aggregate_type}, ${row.aggregate_id}, ${row.reason}, ${row.paused_by})
    on conflict do nothing`
}

export function deletePause(tables: OutboxTables, aggregateType: string, aggregateId: string): Statement {
  return sql`delete from ${tables.pause} where aggregate_type = ${aggregateType} and aggregate_id = ${aggregateId}`
}

/** Every lane, or an aggregate's own. */
export function selectLanes(
  tables: OutboxTables,
  { aggregateType, aggregateId }: { readonly aggregateType: string; readonly aggregateId: string },
): Statement<{ lane: number }> {
  return sql`
    select l.lane from ${tables.lane} l
     cross join (select ${aggregateType}::text as aggregate_type, ${aggregateId}::text as aggregate_id) a
     where a.aggregate_id = '' or l.lane = (${aggregateKey('a')} & (${name(tables.schema, 'outbox_lanes')}() - 1))
     order by l.lane`
}

export interface WakeRequest {
  readonly lane: number
  /** The last head that was looked at before. */
  readonly after: string
  readonly limit: number
  readonly aggregateType: string
  /** Empty for the whole stream. */
  readonly aggregateId: string
  readonly marker: string
}

/**
 * Looks at the next heads of a lane that relays stopped because of some pause, and makes those due that this one stopped and no
 * other one does. Run after the pause was removed for all to see and the lane was locked: a relay that settles there later looks
 * at the pauses itself. Index: primary key.
 */
export function wakePaused(
  tables: OutboxTables,
  { lane, after, limit, aggregateType, aggregateId, marker }: WakeRequest,
): Statement<{ looked: number; woken: number; last: string }> {
  return sql`
    with waiting as materialized (
      select x.ctid as place, x.seq, x.event_id from ${tables.dispatch} x
       where x.lane = ${lane}::int and x.state = 1 and x.seq > ${after}::text::bigint and x.last_error = ${marker}
       order by x.seq limit ${limit}::int
    ), woken as (
      update ${tables.dispatch} d set next_retry_at = clock_timestamp(), last_error = null
       where d.state + 0 = 1 and d.ctid = any (array(
         select w.place from waiting w join ${tables.outbox} o on o.id = w.event_id
          where o.aggregate_type = ${aggregateType} and (${aggregateId} = '' or o.aggregate_id = ${aggregateId})
            and not exists (select from ${tables.pause} p where p.aggregate_type = o.aggregate_type and p.aggregate_id in ('', o.aggregate_id))))
      returning d.seq
    )
    select count(*)::int as looked, coalesce(max(seq), 0)::text as last, (select count(*)::int from woken) as woken from waiting`
}
