/**
 * The statements of stored mode: messages are stored as they come, and lanes of them are leased to processors.
 *
 * Whoever works a lane holds its token, and locks its row in every transaction that applies or removes something: a lane
 * that another took meanwhile is noticed before anything is written, and nobody can take one while a transaction is open.
 * That lock is the weakest which keeps others from taking it, so that its lease can be prolonged from outside meanwhile: what
 * the transaction itself prolonged would be undone with it, and the lane lost before the next try.
 * Lanes are locked in order of lane everywhere, and before inbox rows and positions.
 * Only a rest is set in a transaction of its own, and under a lock that excludes the others: nothing that they have found is moved
 * under them, except by whoever pulls back the rests of heads, and such a head comes again and is known.
 */
import { aggregateKey, isFreeLane } from '../../postgres/lanes/lanes.sql.ts'
import { part, sql, sqlArray, sqlBytesArray, type Part, type Statement } from '../../postgres/query/sql.ts'
import { storableMoment } from '../../postgres/query/storable.ts'
import { attributesJson, positionOf, storableKey, type InboxTables, type Scope } from './inbox.sql.ts'
import type { Item } from '../model/batch-item.ts'
import type { StoredRow } from '../model/received-event.ts'

/** Lanes are a hash of the aggregate; storing and discarding compute the same. */
const laneCount = 64

/** Makes the consumer's lanes, once. */
export function makeLanes({ tables, consumer }: Scope): Statement {
  return sql`
    insert into ${tables.lane} (consumer, lane) select ${consumer}::text, n from generate_series(0, ${laneCount - 1}::int) as n
    on conflict do nothing`
}

/**
 * Stores what was received, unless it is stored already. What was applied before is recognised when it is processed. The key
 * is made as the outbox makes it: the first 8 bytes of the SHA-256 of type and id. Index: the unique one on the event.
 */
export function storeReceived(
  { tables, consumer, generation }: Scope,
  items: readonly Pick<Item, 'event' | 'message'>[],
): Statement {
  return sql`
    insert into ${tables.message} (key, lane, state, consumer, generation, event_id, aggregate_type, aggregate_id, version,
                                   topic, ordering_key, message_id, attributes, body, published_at)
    select k.key, (k.key & ${laneCount - 1}::int)::smallint, 0, ${consumer}::text, ${generation}::int, i.event_id, i.aggregate_type, i.aggregate_id, i.version,
           i.topic, i.ordering_key, i.message_id, i.attributes, i.body, i.published_at
      from unnest(${sqlArray(items.map(({ event }) => event.id))}::text::uuid[],
                  ${sqlArray(items.map(({ event }) => event.aggregateType))}::text::text[],
                  ${sqlArray(items.map(({ event }) => event.aggregateId))}::text::text[],
                  ${sqlArray(items.map(({ event }) => event.version))}::text::bigint[],
                  ${sqlArray(items.map(({ message }) => message.topic))}::text::text[],
                  ${sqlArray(items.map(({ message }) => storableKey(message.orderingKey)))}::text::text[],
                  ${sqlArray(items.map(({ message }) => message.messageId))}::text::text[],
                  ${sqlArray(items.map(({ message }) => attributesJson(message.attributes)))}::text::jsonb[],
                  ${sqlBytesArray(items.map(({ message }) => message.body))}::text::bytea[],
                  ${sqlArray(items.map(({ message }) => storableMoment(message.publishedAtMs)))}::text::timestamptz[])
             with ordinality as i (event_id, aggregate_type, aggregate_id, version, topic, ordering_key, message_id, attributes, body, published_at, place),
           lateral (select ${aggregateKey('i')} as key) k
     order by i.place
    on conflict (consumer, generation, event_id) do nothing`
}

/**
 * Leases lanes that have work and that nobody holds. `skip locked` passes over those whose holder is in a transaction,
 * expired or not. Indexes: primary key for the due, inbox_message_retry_idx for the heads.
 */
export function takeLanes(
  { tables, consumer, generation }: Scope,
  lease: {
    readonly token: string
    readonly worker: string
    readonly leaseMs: number
    readonly count: number
    readonly from: number
  },
): Statement<{ lane: number }> {
  return sql`
    with free as materialized (
      select l.lane from ${tables.lane} l
       where l.consumer = ${consumer}::text
         and ${isFreeLane}
         and (exists (select from ${tables.message} m
                       where m.consumer = ${consumer}::text and m.generation = ${generation}::int and m.lane = l.lane and m.state = 0)
              or exists (select from ${tables.message} m
                          where m.consumer = ${consumer}::text and m.generation = ${generation}::int and m.lane = l.lane and m.state = 1 and m.next_attempt_at <= clock_timestamp()))
       order by (l.lane - ${lease.from}::int + ${laneCount}::int) % ${laneCount}::int
       limit ${lease.count}::int
         for update skip locked
    )
    update ${tables.lane} l
       set lock_token = ${lease.token}::text::uuid, locked_by = ${lease.worker}::text, locked_at = clock_timestamp(),
           lock_expires_at = clock_timestamp() + ${lease.leaseMs}::int * interval '1 millisecond'
      from free
     where l.consumer = ${consumer}::text and l.lane = free.lane
    returning l.lane`
}

/** Locks the lanes that are still ours until the transaction ends. One that is missing is lost. */
export function fenceLanes(
  { tables, consumer }: Scope,
  lease: { readonly token: string; readonly lanes: readonly number[] },
): Statement<{ lane: number }> {
  return sql`
    select l.lane from ${tables.lane} l
     where l.consumer = ${consumer}::text and l.lane = any (${sqlArray(lease.lanes)}::text::smallint[]) and l.lock_token = ${lease.token}::text::uuid
     order by l.lane for key share`
}

/** Prolongs the leases of lanes that are still ours; those that another took stay his. */
export function renewLanes(
  { tables, consumer }: Scope,
  lease: { readonly token: string; readonly leaseMs: number; readonly lanes: readonly number[] },
): Statement {
  return sql`
    with held as materialized (
      select l.lane from ${tables.lane} l
       where l.consumer = ${consumer}::text and l.lane = any (${sqlArray(lease.lanes)}::text::smallint[]) and l.lock_token = ${lease.token}::text::uuid
       order by l.lane for no key update
    )
    update ${tables.lane} l
       set locked_at = clock_timestamp(), lock_expires_at = clock_timestamp() + ${lease.leaseMs}::int * interval '1 millisecond'
      from held where l.consumer = ${consumer}::text and l.lane = held.lane`
}

export function giveLanes(
  { tables, consumer }: Scope,
  lease: { readonly token: string; readonly lanes: readonly number[] },
): Statement {
  return sql`
    update ${tables.lane} l set lock_token = null, locked_by = null, locked_at = null, lock_expires_at = null
     where l.consumer = ${consumer}::text and l.lane = any (${sqlArray(lease.lanes)}::text::smallint[]) and l.lock_token = ${lease.token}::text::uuid`
}

export interface ReceivedRow extends StoredRow {
  readonly lane: number
  readonly state: number
  readonly waited_ms: string
  readonly attempts: number
}

/**
 * What is to be done in our lanes: due messages in the order they came, and heads whose rest is over. Messages behind a head
 * are put out of the due range as they are met, so that a long line behind one costs a pass nothing. A head that has not failed
 * came to the front of such a line: the next ones of it are read with it, the fewer the more heads there are in its lane. One that
 * failed is tried alone. Heads are read once, and messages where they are found: on a table without statistics the planner would
 * look each of them up by reading all of it.
 * Indexes: primary key, inbox_message_head_idx, inbox_message_retry_idx, inbox_message_held_idx.
 */
export function readReceived(
  { tables, consumer, generation }: Scope,
  lease: { readonly token: string; readonly lanes: readonly number[]; readonly batchSize: number; readonly batchBytes: number },
): Statement<ReceivedRow> {
  const perLane = Math.max(50, Math.ceil((lease.batchSize * 2) / Math.max(1, lease.lanes.length)))
  return sql`
    with mine as materialized (
      select l.lane from ${tables.lane} l
       where l.consumer = ${consumer}::text and l.lane = any (${sqlArray(lease.lanes)}::text::smallint[]) and l.lock_token = ${lease.token}::text::uuid
       order by l.lane for share
    ), head as materialized (
      select h.lane, h.key from ${tables.message} h
       where h.consumer = ${consumer}::text and h.generation = ${generation}::int and h.lane = any (${sqlArray(lease.lanes)}::text::smallint[]) and h.state in (1, 3)
    ), due as materialized (
      select d.*, (d.lane, d.key) in (select lane, key from head) as blocked
        from mine cross join lateral (
          select m.ctid as place, ${readColumns} from ${tables.message} m
           where m.consumer = ${consumer}::text and m.generation = ${generation}::int and m.lane = mine.lane and m.state = 0
           order by m.consumer, m.generation, m.lane, m.state, m.seq limit ${perLane}::int) d
    ), held as (
      update ${tables.message} m set state = 2 where m.ctid = any (array(select place from due where blocked)) and m.state + 0 = 0
    ), ripe as materialized (
      select r.*, count(*) over (partition by r.lane) as beside from mine cross join lateral (
        select ${readColumns} from ${tables.message} m
         where m.consumer = ${consumer}::text and m.generation = ${generation}::int and m.lane = mine.lane and m.state = 1 and m.next_attempt_at <= clock_timestamp()
         order by m.next_attempt_at limit ${perLane}::int) r
    ), behind as materialized (
      select b.* from ripe cross join lateral (
        select ${readColumns} from ${tables.message} m
         where m.consumer = ${consumer}::text and m.generation = ${generation}::int and m.lane = ripe.lane and m.key = ripe.key and m.state = 2 and m.seq > ripe.seq
         order by m.consumer, m.generation, m.lane, m.key, m.seq limit ${perLane}::int / ripe.beside) b
       where ripe.attempts = 0
    ), chosen as materialized (
      select ${readColumns} from due m where not m.blocked
      union all
      select ${readColumns} from ripe m
      union all
      select ${readColumns} from behind m
      order by seq limit ${lease.batchSize}::int
    )
    select m.lane, m.seq::text, m.state, m.topic, m.ordering_key, m.message_id, m.attributes::text, m.body, m.attempts,
           (extract(epoch from m.published_at) * 1000)::bigint::text as published_at_ms,
           (extract(epoch from clock_timestamp() - m.received_at) * 1000)::bigint::text as waited_ms
      from (select c.*, sum(octet_length(c.body)) over (order by c.seq) - octet_length(c.body) as bytes_before from chosen c) m
     where m.bytes_before < ${lease.batchBytes}::int
     order by m.seq`
}

const readColumns = part`
  m.lane, m.key, m.seq, m.state, m.topic, m.ordering_key, m.message_id, m.attributes, m.body, m.published_at, m.received_at, m.attempts`

/** One message in its lane, and the state that it was read in. */
export interface StoredPlace {
  readonly lane: number
  readonly seq: string
  readonly state: number
}

/**
 * The rows of the messages that were `asked` for. Each is looked for as the first row at or after where it would be: only the primary key
 * has that order. Asked for by equality, a table without statistics would be read from end to end: to the planner, any index that begins
 * with the consumer is then as good as another. Whoever takes rows by their `place` takes them as they are seen here, and no later
 * version: see the locks above.
 * A look that misses goes on to the next row there is, over what all those left in the index that are gone and not vacuumed away. A
 * bound would make it worse: before PostgreSQL 18 a comparison of rows ends a scan by its first column only. So the first look is where
 * the message was read, and the others are for one that became a head since, or is behind one: nothing becomes due again.
 */
export function askedRows({ message }: InboxTables): Part {
  return part`
      select m.* from asked a cross join lateral (
        select m.* from unnest(array[a.state, 1::smallint, 2::smallint]) as s (state) cross join lateral (
          select m.ctid as place, m.consumer, m.generation, m.lane, m.state, m.seq, m.key from ${message} m
           where (m.consumer, m.generation, m.lane, m.state, m.seq) >= (a.consumer, a.generation, a.lane, s.state, a.seq)
           order by m.consumer, m.generation, m.lane, m.state, m.seq limit 1) m
         where (m.consumer, m.generation, m.lane, m.state, m.seq) = (a.consumer, a.generation, a.lane, s.state, a.seq) limit 1) m`
}

/**
 * Removes messages that are done. Where one of them was a head, the next of its line becomes it and is due at once. The others stay
 * held: a statement that let go of a whole line would take the longer the longer it is. Indexes: primary key, inbox_message_held_idx.
 */
export function removeReceived({ tables, consumer, generation }: Scope, places: readonly StoredPlace[]): Statement {
  return sql`
    with gone as (
      delete from ${tables.message} m where m.ctid = any (array(
        with asked as materialized (
          select ${consumer}::text as consumer, ${generation}::int as generation, p.lane, p.seq, p.state
            from unnest(${lanesOf(places)}::text::smallint[], ${seqsOf(places)}::text::bigint[], ${statesOf(places)}::text::smallint[]) as p (lane, seq, state)
        ) select f.place from (${askedRows(tables)}) f))
      returning m.lane, m.key, m.seq, m.state
    )
    update ${tables.message} m set state = 1, next_attempt_at = clock_timestamp(), started_at = clock_timestamp()
     where m.ctid = any (array(
       select n.place from gone g cross join lateral (
         select m.ctid as place from ${tables.message} m
          where m.consumer = ${consumer}::text and m.generation = ${generation}::int and m.lane = g.lane and m.key = g.key and m.state = 2
            and m.seq not in (select gone.seq from gone)
          order by m.consumer, m.generation, m.lane, m.key, m.seq limit 1) n
        where g.state = 1)) and m.state + 0 = 2`
}

/**
 * Puts messages aside until their turn comes, and counts them at their aggregates, whose rows are locked already. Where one of them
 * was a head, the next of its line becomes it, as above. Indexes: primary key, inbox_message_head_idx, inbox_message_held_idx.
 */
export function setAside(scope: Scope, places: readonly StoredPlace[]): Statement {
  const { tables, consumer, generation } = scope
  return sql`
    with aside as (
      update ${tables.message} m set state = 4, next_attempt_at = null where m.ctid = any (array(
        with asked as materialized (
          select ${consumer}::text as consumer, ${generation}::int as generation, p.lane, p.seq, p.state
            from unnest(${lanesOf(places)}::text::smallint[], ${seqsOf(places)}::text::bigint[], ${statesOf(places)}::text::smallint[]) as p (lane, seq, state)
        ) select f.place from (${askedRows(tables)}) f))
      returning m.lane, m.key, m.seq, m.aggregate_type, m.aggregate_id
    ), promoted as (
      update ${tables.message} m set state = 1, next_attempt_at = clock_timestamp(), started_at = clock_timestamp()
       where m.ctid = any (array(
         select n.place from (select distinct lane, key from aside) g cross join lateral (
           select m.ctid as place from ${tables.message} m
            where m.consumer = ${consumer}::text and m.generation = ${generation}::int and m.lane = g.lane and m.key = g.key and m.state = 2
              and m.seq not in (select aside.seq from aside)
            order by m.consumer, m.generation, m.lane, m.key, m.seq limit 1) n
          where not exists (
            select from ${tables.message} h
             where h.consumer = ${consumer}::text and h.generation = ${generation}::int and h.lane = g.lane and h.key = g.key and h.state in (1, 3)
               and h.seq not in (select aside.seq from aside)))) and m.state + 0 = 2
    )
    update ${tables.position} p set waiting = p.waiting + s.count
      from (select s.count, p.place from (select aggregate_type, aggregate_id, count(*)::int as count from aside group by 1, 2) s
             cross join ${positionOf(scope, 's')} p) s
     where p.ctid = s.place`
}

/**
 * Locks a lane against everybody until the transaction ends: who lost it meanwhile moves nothing under a transaction of him who has it
 * now. The next statement sees what was done under that lock before; this one would not. Index: primary key.
 */
export function lockLane({ tables, consumer }: Scope, lane: number): Statement<{ lane: number }> {
  return sql`select l.lane from ${tables.lane} l where l.consumer = ${consumer}::text and l.lane = ${lane}::smallint for update`
}

/**
 * A message failed: it rests as the head of its key, and what is behind it waits. If another head of the key rests, it waits behind
 * that. A head that is due and has not failed gives way: it was read with this one, and is of a later version, or it would have been
 * tried before. One that has failed stays the head, also if its rest is over by now.
 * Only after `lockLane`, in the same transaction. Indexes: primary key, inbox_message_head_idx.
 */
export function restReceived(
  { tables, consumer, generation }: Scope,
  place: StoredPlace,
  rest: { readonly delayMs: number; readonly error: string },
): Statement {
  return sql`
    with asked as materialized (
      select ${consumer}::text as consumer, ${generation}::int as generation, ${place.lane}::smallint as lane, ${place.seq}::text::bigint as seq, ${place.state}::smallint as state
    ), found as materialized (${askedRows(tables)}
    ), other as materialized (
      select h.place, h.state = 1 and h.attempts = 0 and h.next_attempt_at <= clock_timestamp() as due
        from found f cross join lateral (
          select h.ctid as place, h.* from ${tables.message} h
           where (h.consumer, h.generation, h.lane, h.key) >= (f.consumer, f.generation, f.lane, f.key) and h.state in (1, 3)
           order by h.consumer, h.generation, h.lane, h.key limit 1) h
       where (h.consumer, h.generation, h.lane, h.key) = (f.consumer, f.generation, f.lane, f.key) and h.seq <> f.seq
    ), behind as (
      update ${tables.message} h set state = 2 where h.ctid = any (array(select place from other where due)) and h.state + 0 = 1 returning 1
    )
    update ${tables.message} m
       set attempts = m.attempts + 1, next_attempt_at = clock_timestamp() + ${rest.delayMs}::float8 * interval '1 millisecond',
           started_at = clock_timestamp(), error = ${rest.error}::text,
           state = case when (select count(*) from other) = (select count(*) from behind) then 1 else m.state end
     where m.ctid = any (array(select place from found)) and m.state + 0 in (0, 1, 2)`
}

/** Where those items are that came out of stored mode. */
export function placesOf(items: readonly Pick<Item, 'origin'>[]): readonly StoredPlace[] {
  return items.flatMap(({ origin }) => (origin.kind === 'stored' ? [origin] : []))
}

function lanesOf(places: readonly StoredPlace[]): string {
  return sqlArray(places.map(({ lane }) => lane))
}

function seqsOf(places: readonly StoredPlace[]): string {
  return sqlArray(places.map(({ seq }) => seq))
}

function statesOf(places: readonly StoredPlace[]): string {
  return sqlArray(places.map(({ state }) => state))
}
