/**
 * The operators' statements on heads that gave up. Lanes are locked first, in order, and looked at after that, with a
 * younger snapshot: so an operator and a relay never both decide about one head.
 */
import { sql, sqlArray, type Statement } from '../../postgres/query/sql.ts'
import type { RowIdentity } from './dispatch.sql.ts'
import type { OutboxTables } from './outbox.sql.ts'

/** Which parked events are meant. What is left out does not restrict. */
export interface ParkedFilter {
  readonly eventId?: string | undefined
  readonly aggregateType?: string | undefined
  readonly aggregateId?: string | undefined
  /** A part of the error's text. */
  readonly error?: string | undefined
}

export interface ParkedRow {
  readonly lane: number
  readonly seq: string
  readonly event_id: string
  readonly publish_attempts: number
  readonly void: boolean
  readonly parked_at: string
  readonly last_error: string | null
  /** How many events wait behind it, counted up to 1,000. */
  readonly held: number
  /** Null when the event's row is missing. */
  readonly aggregate_type: string | null
  readonly aggregate_id: string | null
  readonly version: string | null
  readonly event_type: string | null
  readonly topic: string | null
  readonly occurred_at: string | null
}

/**
 * Parked heads, by lane and seq, behind the one given. Indexes: the primary key finds the parked of each lane,
 * outbox_dispatch_held_idx those behind them.
 */
export function selectParked(
  tables: OutboxTables,
  filter: ParkedFilter,
  { limit, after }: { readonly limit: number; readonly after?: RowIdentity | undefined },
): Statement<ParkedRow> {
  return sql`
    select d.lane, d.seq::text, d.event_id::text, d.publish_attempts, d.void, d.last_error,
           to_char(d.parked_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as parked_at,
           (select count(*)::int from (
              select from ${tables.dispatch} h where h.lane = d.lane and h.key = d.key and h.state = 2 limit 1000) h) as held,
           o.aggregate_type, o.aggregate_id, o.version::text, o.event_type, o.topic,
           to_char(o.occurred_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as occurred_at
      from ${tables.lane} l cross join lateral (
        select * from ${tables.dispatch} d where d.lane = l.lane and d.state = 3) d
      left join ${tables.outbox} o on o.id = d.event_id
     where (d.lane, d.seq) > (${after?.lane ?? -1}::int, ${after?.seq ?? '0'}::text::bigint)
       and (${filter.eventId ?? null}::text is null or d.event_id = ${filter.eventId ?? null}::text::uuid)
       and (${filter.aggregateType ?? null}::text is null or o.aggregate_type = ${filter.aggregateType ?? null}::text)
       and (${filter.aggregateId ?? null}::text is null or o.aggregate_id = ${filter.aggregateId ?? null}::text)
       and (${filter.error ?? null}::text is null or strpos(lower(d.last_error), lower(${filter.error ?? null}::text)) > 0)
     order by d.lane, d.seq
     limit ${limit}::int`
}

/** Stops relays from settling in these lanes until the transaction ends. */
export function lockLanes(tables: OutboxTables, lanes: readonly number[]): Statement {
  return sql`select from ${tables.lane} where lane = any (${sqlArray(lanes)}::text::smallint[]) order by lane for update`
}

/**
 * Makes parked heads due again, as if they had never failed; with `asVoid` an empty marker goes out in their place, without it
 * the event itself, even if it was a marker that was parked. They stay the heads of their keys, so what is held behind them
 * stays held. Index: primary key.
 */
export function reviveParked(
  tables: OutboxTables,
  heads: readonly RowIdentity[],
  { asVoid }: { readonly asVoid: boolean },
): Statement<{ event_id: string }> {
  return sql`
    update ${tables.dispatch} d
       set state = 1, publish_attempts = 0, next_retry_at = clock_timestamp(), parked_at = null, void = ${asVoid}::boolean
      from unnest(${sqlArray(heads.map((head) => head.lane))}::text::smallint[], ${sqlArray(heads.map((head) => head.seq))}::text::bigint[],
                  ${sqlArray(heads.map((head) => head.eventId))}::text::uuid[]) as k (lane, seq, event_id)
     where d.lane = k.lane and d.state = 3 and d.seq = k.seq and d.event_id = k.event_id
    returning d.event_id::text`
}

/** Which of these heads are parked still, and have been for longer than any attempt to publish them can take. */
export function selectQuiet(
  tables: OutboxTables,
  heads: readonly RowIdentity[],
  quietMs: number,
): Statement<{ event_id: string; quiet: boolean }> {
  return sql`
    select d.event_id::text, d.parked_at < clock_timestamp() - ${quietMs}::int * interval '1 millisecond' as quiet
      from unnest(${sqlArray(heads.map((head) => head.lane))}::text::smallint[], ${sqlArray(heads.map((head) => head.seq))}::text::bigint[],
                  ${sqlArray(heads.map((head) => head.eventId))}::text::uuid[]) as k (lane, seq, event_id)
      join ${tables.dispatch} d on d.lane = k.lane and d.state = 3 and d.seq = k.seq and d.event_id = k.event_id`
}
