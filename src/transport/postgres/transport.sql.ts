/** Every statement of the Postgres transport. No other file may name its tables. */
import { name, sql, sqlArray, sqlBytesArray, type Name, type Statement } from '../../postgres/query/sql.ts'
import { messageBytes } from '../port/publish-runs.ts'
import type { OutgoingMessage } from '../port/transport.ts'

/** The transport's tables and functions in one schema. */
export interface TransportTables {
  readonly publish: Name
  readonly subscribe: Name
  readonly seek: Name
  readonly rewind: Name
  readonly unsubscribe: Name
  readonly lease: Name
  readonly horizon: Name
  readonly sweepTopic: Name
  readonly lane: Name
  readonly delivery: Name
  readonly message: Name
  readonly topic: Name
  readonly subscription: Name
}

export function transportTables(schema: string): TransportTables {
  const of = (what: string): Name => name(schema, `transport_${what}`)
  return {
    publish: of('publish'),
    subscribe: of('subscribe'),
    seek: of('seek'),
    rewind: of('rewind'),
    unsubscribe: of('unsubscribe'),
    lease: of('lease'),
    horizon: of('horizon'),
    sweepTopic: of('sweep_topic'),
    lane: of('lane'),
    delivery: of('delivery'),
    message: of('message'),
    topic: of('topic'),
    subscription: of('subscription'),
  }
}

/** Stores messages of one topic, with a delivery for each of its subscriptions; returns their ids in the order given. */
export function publishMessages(
  tables: TransportTables,
  topic: string,
  messages: readonly OutgoingMessage[],
): Statement<{ seq: string }> {
  return sql`
    select seq::text as seq
      from ${tables.publish}(
             ${topic}::text,
             ${sqlArray(messages.map(({ orderingKey }) => orderingKey))}::text::text[],
             ${sqlArray(messages.map(({ attributes }) => JSON.stringify(attributes)))}::text::jsonb[],
             ${sqlBytesArray(messages.map(({ body }) => body))}::text::bytea[],
             ${sqlArray(messages.map(messageBytes))}::text::int[])`
}

/** Finds or makes a subscription; a new one begins with everything that is retained. */
export function subscribe(
  tables: TransportTables,
  subscription: { readonly topic: string; readonly consumer: string; readonly lanes: number },
): Statement<{ id: number }> {
  return sql`select ${tables.subscribe}(${subscription.topic}::text, ${subscription.consumer}::text, ${subscription.lanes}::int::smallint) as id`
}

/** Starts a subscription over; without `sinceMs` with everything that is retained. */
export function seekSubscription(
  tables: TransportTables,
  to: { readonly topic: string; readonly subscription: number; readonly sinceMs: number | undefined },
): Statement {
  return sql`select ${tables.seek}(${to.topic}::text, ${to.subscription}::int, to_timestamp(${to.sinceMs ?? null}::float8 / 1000))`
}

/** Gives a subscription again what is retained since a moment, beside what it has not settled. */
export function rewindSubscription(
  tables: TransportTables,
  to: { readonly topic: string; readonly subscription: number; readonly sinceMs: number },
): Statement {
  return sql`select ${tables.rewind}(${to.topic}::text, ${to.subscription}::int, to_timestamp(${to.sinceMs}::float8 / 1000))`
}

export interface LeasedLane {
  readonly lane: number
  readonly tenure: string
  /** How many lanes are this receiver's fair share. */
  readonly share: number
}

export interface LeaseCall {
  readonly subscription: number
  readonly receiver: string
  readonly leaseMs: number
  readonly leaving: readonly number[]
  readonly stays: boolean
}

/** Heartbeat, renewal and fair share in one round trip; returns the lanes that are the receiver's now. */
export function leaseLanes(tables: TransportTables, call: LeaseCall): Statement<LeasedLane> {
  return sql`
    select lane::int as lane, tenure::text as tenure, share
      from ${tables.lease}(${call.subscription}::int, ${call.receiver}::text::uuid, ${call.leaseMs}::int, ${sqlArray(call.leaving)}::text::smallint[], ${call.stays}::boolean)`
}

/** How far the sequence of messages is, and what tells when that is decided. */
export interface HorizonRow {
  readonly seq: string
  readonly xid: string
  readonly oldest: string
}

/** Takes a transaction id, so it is asked only when something is to be skipped, and not often. */
export function readHorizon(tables: TransportTables): Statement<HorizonRow> {
  return sql`select seq::text as seq, xid::text as xid, oldest::text as oldest from ${tables.horizon}()`
}

/** No message rests longer. */
export const longestRestMs = 86_400_000
/** Two clocks that are right may differ by this. */
const clockSlackMs = 60_000

export interface FetchCall {
  readonly subscription: number
  readonly lanes: readonly { readonly lane: number; readonly tenure: string; readonly floor: string }[]
  /** Deliverable messages to look for in each lane. */
  readonly window: number
  /** No floor may be higher: up to it nothing can appear any more. */
  readonly decided: string
  /** Sequences that are in hand, or whose settling is under way. */
  readonly inHand: readonly string[]
  readonly room: number
  readonly roomBytes: number
  /** Nothing is in hand: one message may come, whatever its size. */
  readonly empty: boolean
}

/**
 * A delivery (`seq` is set; without attributes and body if its message is gone), or a lane that is still ours (`floor` is set:
 * everything up to it is in hand or rests).
 */
export interface FetchedRow {
  readonly lane: number
  readonly floor: string | null
  /** Of a lane: something of the subscription rests, or did. */
  readonly rests: boolean | null
  readonly seq: string | null
  readonly key: string | null
  readonly ordering_key: string | null
  readonly attributes: string | null
  readonly body: Uint8Array | null
  readonly bytes: number | null
  readonly attempts: number | null
  readonly published_at_ms: string | null
}

/**
 * Reads what can be delivered next, from the lanes that are still ours.
 *
 * Of each lane the first that can be delivered in order of seq, without what is in hand; a message waits if it or an earlier one
 * of its key rests. One moment is used for all of it, or a head's rest could end between two looks and its successor go first.
 * A head below the floor holds its key even when its rest is over, until the floor is gone: it has to go first. A rest that ends
 * later than any can is over: the clock stepped back.
 *
 * Nothing is written: the lane's lease is the lease of all its messages. Index: primary key, transport_delivery_resting_idx. The
 * `case` keeps the look for a head a look per row, where a bare condition would become a join over all that rests; a limit
 * that the planner does not know keeps it from sorting a lane. What is in hand is a hashed subplan: an array would be parsed
 * again for every row.
 */
export function fetchDeliveries(tables: TransportTables, call: FetchCall): Statement<FetchedRow> {
  const { lanes } = call
  return sql`
    with moment as materialized (
      select clock_timestamp() as at
    ), latest as materialized (
      select at + ${longestRestMs + clockSlackMs}::float8 * interval '1 millisecond' as at from moment
    ), held as materialized (
      select unnest(${sqlArray(call.inHand)}::text::bigint[]) as seq
    ), mine as materialized (
      select l.lane, t.floor, ${call.window}::int as size
        from unnest(${sqlArray(lanes.map(({ lane }) => lane))}::text::smallint[], ${sqlArray(lanes.map(({ tenure }) => tenure))}::text::bigint[],
                    ${sqlArray(lanes.map(({ floor }) => floor))}::text::bigint[]) as t (lane, tenure, floor)
        join ${tables.lane} l on l.subscription_id = ${call.subscription}::int and l.lane = t.lane and l.tenure = t.tenure
       where l.lock_expires_at > (select at from moment)
    ), free as materialized (
      select m.lane, w.*
        from mine m cross join lateral (
             select d.seq, d.key, d.bytes, d.attempts
               from ${tables.delivery} d
              where d.subscription_id = ${call.subscription}::int and d.lane = m.lane and d.seq > m.floor
                and d.seq not in (select h.seq from held h)
                and case when d.rest_until > (select at from moment) and d.rest_until <= (select at from latest) then false
                         else not exists (
                           select from ${tables.delivery} h
                            where h.subscription_id = ${call.subscription}::int and h.key = d.key and h.seq < d.seq
                              and h.rest_until is not null
                              and (h.rest_until > (select at from moment) and h.rest_until <= (select at from latest) or h.seq <= m.floor)) end
              order by d.seq
              limit m.size) w
    ), counted as (
      select f.*, row_number() over (order by f.seq) as nth, sum(f.bytes) over (order by f.seq) as total
        from free f
    ), next as (
      select * from counted
       where (nth <= ${call.room}::int and total <= ${call.roomBytes}::float8) or (nth = 1 and ${call.empty}::boolean)
    )
    select m.lane::int as lane,
           greatest(m.floor, least(${call.decided}::bigint, f.first - 1))::text as floor,
           exists (select from ${tables.delivery} h where h.subscription_id = ${call.subscription}::int and h.rest_until is not null) as rests,
           null as seq, null as key, null as ordering_key, null as attributes, null::bytea as body, null::int as bytes, null::int as attempts, null as published_at_ms
      from mine m left join (select lane, min(seq) as first from free group by lane) f on f.lane = m.lane
    union all
    select n.lane::int, null, null, n.seq::text, n.key::text, g.key, g.attributes::text, g.body, n.bytes, n.attempts,
           floor(extract(epoch from g.published_at) * 1000)::bigint::text
      from next n
      join ${tables.subscription} s on s.id = ${call.subscription}::int
      left join ${tables.message} g on g.topic_id = s.topic_id and g.seq = n.seq`
}

/**
 * Counts what a subscription has not settled, up to `bound`. In the order of the index, and up to a bound that the planner cannot see, it
 * is read from there one by one. Index: primary key.
 */
export function countUnsettled(tables: TransportTables, subscription: number, bound: number): Statement<{ messages: number }> {
  return sql`
    select count(*)::int as messages
      from (select from ${tables.delivery} d
             where d.subscription_id = ${subscription}::int
             order by d.lane, d.seq
             limit (select ${bound}::int)) d`
}

export interface Settlement {
  readonly lane: number
  readonly tenure: string
  readonly seq: string
}

/** Deletes settled deliveries of lanes that are still ours; those that it returns are gone for good. Index: primary key. */
export function ackDeliveries(
  tables: TransportTables,
  subscription: number,
  acks: readonly Settlement[],
): Statement<{ seq: string }> {
  return sql`
    delete from ${tables.delivery} d
     using unnest(${sqlArray(acks.map(({ lane }) => lane))}::text::smallint[], ${sqlArray(acks.map(({ tenure }) => tenure))}::text::bigint[],
                  ${sqlArray(acks.map(({ seq }) => seq))}::text::bigint[]) as a (lane, tenure, seq),
           ${tables.lane} l
     where l.subscription_id = ${subscription}::int and l.lane = a.lane and l.tenure = a.tenure
       and d.subscription_id = ${subscription}::int and d.lane = a.lane and d.seq = a.seq
    returning d.seq::text as seq`
}

/** Counts a failed attempt and lets the message rest, and by that its key. Index: primary key. */
export function nackDeliveries(
  tables: TransportTables,
  subscription: number,
  nacks: readonly (Settlement & { readonly delayMs: number })[],
): Statement {
  return sql`
    update ${tables.delivery} d
       set attempts = d.attempts + 1,
           rest_until = case when n.delay_ms > 0 then clock_timestamp() + n.delay_ms * interval '1 millisecond' end
      from unnest(${sqlArray(nacks.map(({ lane }) => lane))}::text::smallint[], ${sqlArray(nacks.map(({ tenure }) => tenure))}::text::bigint[],
                  ${sqlArray(nacks.map(({ seq }) => seq))}::text::bigint[], ${sqlArray(nacks.map(({ delayMs }) => delayMs))}::text::float8[]) as n (lane, tenure, seq, delay_ms),
           ${tables.lane} l
     where l.subscription_id = ${subscription}::int and l.lane = n.lane and l.tenure = n.tenure
       and d.subscription_id = ${subscription}::int and d.lane = n.lane and d.seq = n.seq`
}

/**
 * Topics whose first message is older than the retention, or from the future since the clock stepped back; drawn, so that each has
 * its turn. Index: primary key of transport_message.
 */
export function selectOldTopics(tables: TransportTables, retentionMs: number, limit: number): Statement<{ id: number }> {
  return sql`
    with moment as materialized (
      select clock_timestamp() as at
    )
    select t.id
      from ${tables.topic} t cross join moment n
     where (select m.published_at from ${tables.message} m where m.topic_id = t.id order by m.seq limit 1)
           not between n.at - ${retentionMs}::float8 * interval '1 millisecond' and n.at
     order by random() limit ${limit}::int`
}

export interface TopicSweep {
  readonly topic: number
  /** The seq to go on behind. */
  readonly after: string
  readonly retentionMs: number
  /** Messages to look at. */
  readonly limit: number
}

/** How many messages went, and where to go on; null at the end of what is old. */
export interface SweptTopic {
  readonly swept: number
  readonly place: string | null
}

/** Deletes messages of a topic that are older than the retention and that every subscription has settled. Index: primary key. */
export function sweepTopic(tables: TransportTables, { topic, after, retentionMs, limit }: TopicSweep): Statement<SweptTopic> {
  return sql`
    select swept, place::text as place
      from ${tables.sweepTopic}(${topic}::int, ${after}::text::bigint, ${retentionMs}::float8, ${limit}::int)`
}

/** Removes a subscription; what waits for it is left to sweepDeliveries. */
export function dropSubscription(
  tables: TransportTables,
  subscription: { readonly topic: string; readonly consumer: string },
): Statement {
  return sql`select ${tables.unsubscribe}(${subscription.topic}::text, ${subscription.consumer}::text)`
}

/**
 * Deletes what waits for subscriptions that are gone. Walks from one subscription to the next, whatever waits for each. Index:
 * primary key.
 */
export function sweepDeliveries(tables: TransportTables, limit: number): Statement {
  return sql`
    with recursive served as (
      (select d.subscription_id as id from ${tables.delivery} d order by d.subscription_id limit 1)
      union all
      select (select d.subscription_id from ${tables.delivery} d where d.subscription_id > v.id order by d.subscription_id limit 1)
        from served v
       where v.id is not null
    )
    delete from ${tables.delivery} d
     where d.ctid = any (array(
       select w.ctid
         from served v cross join lateral (
              select w.ctid from ${tables.delivery} w where w.subscription_id = v.id limit ${limit}::int) w
        where not exists (select from ${tables.subscription} s where s.id = v.id)
        limit ${limit}::int))`
}
