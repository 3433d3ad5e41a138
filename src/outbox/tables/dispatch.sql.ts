/**
 * The relay's three statements: read what may go out, confirm what did, settle what did not.
 *
 * Their safety does not rest on the lease but on four rules: what is due and what blocks it come from one snapshot; a key
 * is published in order and stops at its first failure; a row is deleted by its exact identity; every change of a key's
 * head is serialised by the lane's row, looked at after it was locked.
 */
import { lanesOf, tokensOf, type HeldLane } from '../../postgres/lanes/lanes.sql.ts'
import { part, sql, sqlArray, type Part, type Statement } from '../../postgres/query/sql.ts'
import { storableError, storableText } from '../../postgres/query/storable.ts'
import type { OutboxTables } from './outbox.sql.ts'

export interface DispatchRow {
  readonly lane: number
  readonly seq: string
  readonly key: string
  readonly event_id: string
  readonly state: number
  readonly publish_attempts: number
  readonly void: boolean
  /** A head stands before it: not to be published, but to be held. */
  readonly blocked: boolean
  /** Above 0 for an event that must not go out yet. */
  readonly wait_ms: number
  /** Null when the event row is missing, which must never be. */
  readonly topic: string | null
  readonly aggregate_type: string
  readonly aggregate_id: string
  readonly version: string
  readonly event_type: string
  readonly schema_version: number
  readonly content_type: string
  readonly payload: Uint8Array
  /** JSON: plain SQL may have put anything there. */
  readonly headers: string
  readonly occurred_at: string
}

/** A row as it is found first: the payload and the headers of a large one stay behind. */
export interface FoundRow extends Omit<DispatchRow, 'payload' | 'headers'> {
  readonly payload: Uint8Array | null
  readonly headers: string | null
  /** Of payload and headers. */
  readonly bytes: number
}

export interface ReadWindow extends HeldLane {
  /** How many due rows of this lane to read. */
  readonly window: number
}

export interface ReadLimits {
  /** Heads to take up per lane. */
  readonly heads: number
  /** Rows to read behind heads that have not failed, all together. */
  readonly chain: number
  /** What the payloads and headers may have together. */
  readonly bytes: number
}

/**
 * What the lanes' owner may publish now, by the schema's own function, whose plan is kept: a look costs little while nothing is there.
 * Payload and headers come along where even as many rows as can be found at once, all of that size, would stay within
 * `limits.bytes`; `readBodies` reads the others. Their lengths are known without them.
 */
export function readDispatch(tables: OutboxTables, lanes: readonly ReadWindow[], limits: ReadLimits): Statement<FoundRow> {
  const inline = inlineBytes(lanes, limits)
  return sql`
    select lane, seq, key, event_id, state, publish_attempts, void, blocked, wait_ms, topic, aggregate_type, aggregate_id, version, event_type,
           schema_version, content_type, occurred_at, coalesce(octet_length(payload) + octet_length(headers), 0) as bytes,
           case when octet_length(payload) + octet_length(headers) <= ${inline}::int then payload end as payload,
           case when octet_length(payload) + octet_length(headers) <= ${inline}::int then headers end as headers
      from ${tables.read}(
             ${lanesOf(lanes)}::text::smallint[], ${tokensOf(lanes)}::text::uuid[], ${sqlArray(lanes.map((each) => each.window))}::text::int[],
             ${limits.heads}::int, ${limits.chain}::int)`
}

/** A due head brings at least one row of its chain. */
function inlineBytes(lanes: readonly ReadWindow[], { heads, chain, bytes }: ReadLimits): number {
  const most = lanes.reduce((sum, { window }) => sum + window + 2 * heads, chain)
  return Math.floor(bytes / Math.max(1, most))
}

/** What large events hold. Index: primary key of the events. */
export function readBodies(
  tables: OutboxTables,
  eventIds: readonly string[],
): Statement<{ event_id: string; payload: Uint8Array; headers: string }> {
  return sql`
    select id::text as event_id, payload, headers::text as headers from ${tables.outbox} where id = any (${sqlArray(eventIds)}::text::uuid[])`
}

/** A row by its whole identity: after a failover or a restore, lane and seq alone could name another event. */
export interface RowIdentity {
  readonly lane: number
  readonly seq: string
  readonly eventId: string
}

export interface ConfirmedRow extends RowIdentity {
  readonly messageId: string
}

export interface Keeping {
  /** Write receipts. */
  readonly receipts: boolean
  /** Keep the event's own row. */
  readonly events: boolean
}

/**
 * Removes what the broker confirmed, for keys that had no trouble (state 0 only: a head must be followed by a promotion).
 * The fence locks the lane rows: a mere look at the token would not be repeated on what committed meanwhile. It waits for
 * them, but not for ever (the time-out lasts as long as the statement).
 * `+ 0` keeps the planner from walking the index by state: with statistics that remember an empty table it would compare every
 * due row with every ctid, and a backlog would drain a hundred times slower.
 * Returns the lanes that were ours; nothing happened in the others.
 */
export function confirmDispatch(
  tables: OutboxTables,
  relay: string,
  held: readonly HeldLane[],
  confirmed: readonly ConfirmedRow[],
  keep: Keeping,
): Statement<{ mine: string }> {
  return sql`
    with patience as materialized (
      select set_config('lock_timeout', '5s', true)
    ), fence as materialized (
      select l.lane from patience cross join ${tables.lane} l
        join unnest(${lanesOf(held)}::text::smallint[], ${tokensOf(held)}::text::uuid[]) as t (lane, token) on t.lane = l.lane and t.token = l.lock_token
       order by l.lane
         for share of l
    ), confirmed as materialized (
      select k.lane, k.seq, k.event_id, k.message_id
        from unnest(${sqlArray(confirmed.map((row) => row.lane))}::text::smallint[], ${sqlArray(confirmed.map((row) => row.seq))}::text::bigint[],
                    ${sqlArray(confirmed.map((row) => row.eventId))}::text::uuid[], ${sqlArray(confirmed.map((row) => cleanText(row.messageId)))}::text::text[]) as k (lane, seq, event_id, message_id)
    ), gone as (
      delete from ${tables.dispatch} d
       where d.state + 0 = 0 and d.ctid = any (array(
         select x.ctid from confirmed k cross join lateral (
           select x.ctid from ${tables.dispatch} x
            where x.lane = k.lane and x.state = 0 and x.seq = k.seq and x.event_id = k.event_id offset 0) x
          where k.lane in (select lane from fence)))
      returning d.event_id, d.publish_attempts
    ), receipt as (
      insert into ${tables.receipt} (event_id, published_at, attempts, relay, message_id)
      select g.event_id, clock_timestamp(), g.publish_attempts + 1, ${relay}, k.message_id
        from gone g join confirmed k on k.event_id = g.event_id
       where ${keep.receipts}::boolean
    ), forgotten as (
      delete from ${tables.outbox} o using gone g where not ${keep.events}::boolean and o.id = g.event_id
    )
    select coalesce(array_to_json(array_agg(lane))::text, '[]') as mine from fence`
}

/** A row that stops its key: it becomes the head, due again after `delayMs`. */
export interface StoppedRow extends RowIdentity {
  readonly park: boolean
  /** From now on an empty marker is published in its place. */
  readonly void: boolean
  /** How much this failure counts towards parking: 0 for what was not the message's fault. */
  readonly charge: number
  readonly delayMs: number
  readonly error: string
}

export interface Settlement {
  readonly confirmed: readonly (RowIdentity & { readonly messageId: string | null })[]
  readonly stopped: readonly StoppedRow[]
  /** Lanes in which rows behind a head were seen in the due range, and how deep to look for them. */
  readonly hold: readonly { readonly lane: number; readonly depth: number }[]
}

/** The slow path: heads, promotions and holds, in one function that locks the lanes first and looks after. */
export function settleDispatch(
  tables: OutboxTables,
  relay: string,
  lanes: readonly { readonly lane: number; readonly token: string | null }[],
  { confirmed, stopped, hold }: Settlement,
  keep: Keeping,
): Statement<{ mine: string }> {
  return sql`
    select array_to_json(${tables.settle}(
      ${relay},
      ${sqlArray(lanes.map((each) => each.lane))}::text::smallint[], ${sqlArray(lanes.map((each) => each.token))}::text::uuid[],
      ${sqlArray(confirmed.map((row) => row.lane))}::text::smallint[], ${sqlArray(confirmed.map((row) => row.seq))}::text::bigint[],
      ${sqlArray(confirmed.map((row) => row.eventId))}::text::uuid[], ${sqlArray(confirmed.map((row) => (row.messageId === null ? null : cleanText(row.messageId))))}::text::text[],
      ${sqlArray(stopped.map((row) => row.lane))}::text::smallint[], ${sqlArray(stopped.map((row) => row.seq))}::text::bigint[],
      ${sqlArray(stopped.map((row) => row.eventId))}::text::uuid[], ${sqlArray(stopped.map((row) => row.park))}::text::boolean[],
      ${sqlArray(stopped.map((row) => row.void))}::text::boolean[], ${sqlArray(stopped.map((row) => row.charge))}::text::int[],
      ${sqlArray(stopped.map((row) => Math.round(row.delayMs)))}::text::bigint[], ${sqlArray(stopped.map((row) => storableError(row.error)))}::text::text[],
      ${sqlArray(hold.map((each) => each.lane))}::text::smallint[], ${sqlArray(hold.map((each) => each.depth))}::text::int[],
      ${keep.receipts}::boolean, ${keep.events}::boolean))::text as mine`
}

/** The text of a head that has not failed but must not go out yet. outbox_settle writes it as well. */
export const datedError = 'waits for its date'

/** Whether the delay of a dispatch row `d`, if it has one, is the date that was asked for. What failed is put off by a back-off. */
export const isDated: Part = part`(d.publish_attempts = 0 and coalesce(d.last_error, ${datedError}::text) = ${datedError}::text)`

/** The text of a head that was not tried, because its topic takes nothing. */
export function shutError(topic: string, why: string): string {
  return waitingFor(topic) + why
}

/**
 * Makes some of those due that wait for one of the topics, whichever relay put them off; returns whether a lane has more of them.
 * None is put off for longer than `longestMs`: what is dated further ahead is not looked at. Index: outbox_dispatch_retry_idx.
 */
export function wakeTopics(tables: OutboxTables, topics: readonly string[], longestMs: number): Statement<{ more: boolean }> {
  return sql`
    with waiting as materialized (
      select x.lane, x.ctid as place from ${tables.lane} l cross join lateral (
        select x.lane, x.ctid from ${tables.dispatch} x
         where x.lane = l.lane and x.state = 1 and x.next_retry_at > (select clock_timestamp())
           and x.next_retry_at <= (select clock_timestamp() + ${longestMs}::float8 * interval '1 millisecond')
           and x.last_error ^@ any (${sqlArray(topics.map((topic) => storableError(waitingFor(topic))))}::text::text[])
         limit 1000) x
    ), woken as (
      update ${tables.dispatch} d set next_retry_at = clock_timestamp()
       where d.state + 0 = 1 and d.ctid = any (array(select w.place from waiting w))
    )
    select exists (select from waiting w group by w.lane having count(*) = 1000) as more`
}

function waitingFor(topic: string): string {
  return `waits for topic ${topic}: `
}

/**
 * Makes retries due that lie further ahead than any back-off reaches: the clock stepped back after they were set.
 * Dates that were asked for are left alone. Index: outbox_dispatch_retry_idx.
 */
export function pullBackRetries(tables: OutboxTables, longestMs: number): Statement {
  return sql`
    update ${tables.dispatch} d set next_retry_at = clock_timestamp()
     where d.state + 0 = 1 and d.ctid = any (array(
       select x.ctid from ${tables.lane} l cross join lateral (
         select x.ctid from ${tables.dispatch} x
          where x.lane = l.lane and x.state = 1
            and x.next_retry_at > (select clock_timestamp() + ${longestMs}::float8 * interval '1 millisecond')
            and x.last_error is distinct from ${datedError}
          limit 1000) x))`
}

/** Events whose date lies ahead, as they were added, as heads and behind heads; and the last of these dates. */
export function countDated(tables: OutboxTables): Statement<{ dated: number; last_date: string }> {
  return sql`
    select count(*)::float8 as dated, coalesce(to_char(max(d.next_retry_at) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'), '') as last_date
      from ${tables.dispatch} d
     where d.next_retry_at > clock_timestamp() and ${isDated}`
}

/** Streams and aggregates that an operator paused. */
export function readPauses(tables: OutboxTables): Statement<{ aggregate_type: string; aggregate_id: string }> {
  return sql`select aggregate_type, aggregate_id from ${tables.pause}`
}

/** A broker's message id, which must never make the statement fail that records it. */
function cleanText(text: string): string {
  return storableText(text).slice(0, 1000)
}
