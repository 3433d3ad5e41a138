/**
 * Statements on streams and aggregates that an operator holds back.
 */
import { sql, type Statement } from '../postgres/sql.ts'
import type { OutboxTables } from './outbox.sql.ts'

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

/** Every lane: an aggregate's own is not worth computing for a rare act. */
export function lockAllLanes(tables: OutboxTables): Statement {
  return sql`select from ${tables.lane} order by lane for update`
}

/**
 * Makes due the heads that relays stopped because of a pause. Run after the lanes were locked and the pause was removed:
 * a relay that settles later looks at the pauses itself. Index: primary key.
 */
export function wakePaused(
  tables: OutboxTables,
  pause: { readonly aggregateType: string; readonly aggregateId: string; readonly marker: string },
): Statement {
  return sql`
    update ${tables.dispatch} d
       set next_retry_at = clock_timestamp(), last_error = null
      from ${tables.outbox} o
     where d.state = 1 and d.last_error = ${pause.marker} and o.id = d.event_id
       and o.aggregate_type = ${pause.aggregateType} and (${pause.aggregateId} = '' or o.aggregate_id = ${pause.aggregateId})`
}
