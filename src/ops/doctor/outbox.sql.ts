/**
 * What the doctor looks at: of an outbox its own rules as the catalogue has them, the server's settings, and its rows; of consumers their
 * letters.
 */
import type { OutboxTables } from '../../outbox/tables/outbox.sql.ts'
import { name, sql, type Statement } from '../../postgres/query/sql.ts'
import type { InboxTables } from '../../consumer/tables/inbox.sql.ts'

export interface OutboxGuards {
  readonly append_only: boolean
  readonly sequence_cache: string
  readonly sequence_behind: boolean
  readonly unlogged: string
  readonly lanes_differ: boolean
  readonly misplaced: number
  readonly exposed: string
}

/**
 * The rules on which order and safety rest. Sequence and rows are compared lane by lane, from the end of the primary key, by
 * roles that may read the sequence.
 */
export function selectGuards(tables: OutboxTables): Statement<OutboxGuards> {
  const { schema } = tables
  const lanes = name(schema, 'outbox_lanes')
  return sql`
    with relation as (
      select c.oid, c.relname::text as name, c.relpersistence from pg_class c
       where c.relnamespace = ${schema}::text::regnamespace and c.relkind in ('r', 'p')
    ), sequence as (
      select s.seqrelid, s.seqcache from pg_sequence s
       where s.seqrelid = pg_get_serial_sequence(format('%I.outbox_dispatch', ${schema}::text), 'seq')::regclass
    ), highest as (
      select max(d.seq) as seq from ${tables.lane} l cross join (values (0), (1), (2), (3)) as s (state) cross join lateral (
        select d.seq from ${tables.dispatch} d where d.lane = l.lane and d.state = s.state order by d.seq desc limit 1) d
    )
    select exists (select from pg_trigger t join relation r on r.oid = t.tgrelid
                    where r.name = 'outbox' and t.tgname = 'outbox_append_only' and t.tgenabled in ('O', 'A')) as append_only,
           coalesce((select seqcache::text from sequence), '0') as sequence_cache,
           coalesce((select case when has_sequence_privilege(seqrelid, 'usage, select')
                                 then coalesce(pg_sequence_last_value(seqrelid), 0) < coalesce((select seq from highest), 0) end
                       from sequence), false) as sequence_behind,
           coalesce((select string_agg(name, ', ' order by name) from relation where relpersistence <> 'p'), '') as unlogged,
           (select count(*) from ${tables.lane}) <> ${lanes}() as lanes_differ,
           (select count(*)::int from ${tables.dispatch} d where d.lane <> (d.key & (${lanes}() - 1))::smallint) as misplaced,
           coalesce((select string_agg(distinct w.who, ', ')
                       from (select rolname::text, oid from pg_roles where rolname in ('anon', 'authenticated') union all select 'public', 0) as w (who, oid)
                      cross join relation r
                      where has_schema_privilege(w.oid, ${schema}::text::regnamespace::oid, 'usage')
                        and has_table_privilege(w.oid, r.oid, 'select, insert, update, delete, truncate')), '') as exposed`
}

export interface ServerSettings {
  readonly fsync: string
  readonly full_page_writes: string
  readonly synchronous_commit: string
  readonly isolation: string
  readonly bytes: string
}

export function selectServerSettings(): Statement<ServerSettings> {
  return sql`
    select current_setting('fsync') as fsync, current_setting('full_page_writes') as full_page_writes,
           current_setting('synchronous_commit') as synchronous_commit, current_setting('default_transaction_isolation') as isolation,
           current_setting('bytea_output') as bytes`
}

export interface OutboxTroubles {
  readonly lost: string
  readonly orphans: string
  readonly unowned_with_work: number
  /** Who asks. */
  readonly role: string
}

/** Whether this role may read what operators did. */
export function selectMayReadAudit(schema: string): Statement<{ readable: boolean }> {
  return sql`select has_table_privilege(${name(schema, 'audit_log').quoted}::text, 'select') as readable`
}

/** Since when events have had dispatch rows: the last switch from a connector back to relays. */
export function selectRelaysSince(schema: string): Statement<{ since: string }> {
  return sql`
    select coalesce(to_char(max(a.at) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), '-infinity') as since
      from ${name(schema, 'audit_log')} a where a.action = 'outbox.cdc-off'`
}

/**
 * Rows that contradict each other.
 *
 * An event is lost if it has neither a dispatch row nor a receipt, and its receipt cannot have expired. Receipts expire by the
 * time of the publish, so those of events that are younger than the oldest receipt are there still; a minute is for clocks that
 * differ. What is younger than the newest receipt, or older than `relaysSince`, nobody can tell, nor where receipts are off.
 * Looked at are the newest 100,000 ids that carry their time, below the id that one of tomorrow would have; ids made from
 * business keys stand mostly above it. Indexes: the primary key of the outbox, outbox_receipt_event_id_idx.
 */
export function selectTroubles(tables: OutboxTables, relaysSince: string): Statement<OutboxTroubles> {
  return sql`
    with tomorrow as materialized (
      select (lpad(to_hex(((extract(epoch from clock_timestamp()) + 86400) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid as id
    ), published as materialized (
      select r.event_id, r.published_at from ${tables.receipt} r
       where r.event_id < (select id from tomorrow) order by r.event_id desc limit 100000
    ), known as (
      select greatest(min(p.published_at) + interval '1 minute', ${relaysSince}::text::timestamptz) as since, max(p.published_at) as until
        from published p where substr(p.event_id::text, 15, 1) = '7'
    ), recent as materialized (
      select o.id, o.occurred_at from ${tables.outbox} o where o.id < (select id from tomorrow) order by o.id desc limit 100000
    ), lost as (
      select r.id from recent r join known k on r.occurred_at > k.since and r.occurred_at < k.until
       where ${tables.dispatching}()
         and substr(r.id::text, 15, 1) = '7'
         and not exists (select from ${tables.receipt} p where p.event_id = r.id)
         and not exists (select from ${tables.dispatch} d where d.event_id = r.id)
       limit 5
    ), orphan as (
      select d.event_id from ${tables.dispatch} d where not exists (select from ${tables.outbox} o where o.id = d.event_id) limit 5
    )
    select coalesce((select string_agg(id::text, ', ') from lost), '') as lost,
           coalesce((select string_agg(event_id::text, ', ') from orphan), '') as orphans,
           current_user::text as role,
           (select count(*)::int from ${tables.lane} l
             where (l.lock_token is null or l.lock_expires_at < clock_timestamp() - interval '10 seconds')
               and (exists (select from ${tables.dispatch} d where d.lane = l.lane and d.state = 0)
                 or exists (select from ${tables.dispatch} d where d.lane = l.lane and d.state = 1 and d.next_retry_at < clock_timestamp() - interval '10 seconds'))) as unowned_with_work`
}

export interface UnlockedWrites {
  readonly relation: string
  readonly aggregate_type: string
  /** The last one. */
  readonly aggregate_id: string
  readonly role: string
  readonly application: string
  readonly writes: string
  readonly first_at: string
  readonly last_at: string
}

/** The writers that guarded tables have reported, the latest first. Index: none, there are a thousand at most. */
export function selectUnlockedWrites(schema: string): Statement<UnlockedWrites> {
  return sql`
    select u.relation, u.aggregate_type, u.aggregate_id, u.role, u.application, u.writes::text,
           to_char(u.first_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as first_at,
           to_char(u.last_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as last_at
      from ${name(schema, 'unlocked_write')} u order by u.last_at desc, u.relation, u.role, u.application limit 20`
}

/**
 * Letters that nobody has settled although the inbox has their event, up to `bound` of them, and the numbers of the first.
 * Indexes: dead_letter_group_idx, the primary key of inbox.
 */
export function selectAppliedLetters(tables: InboxTables, bound: number): Statement<{ count: number; some: string }> {
  return sql`
    select count(*)::int as count, coalesce(string_agg(a.id::text, ',' order by a.id) filter (where a.place <= 100), '') as some
      from (select d.id, row_number() over (order by d.id) as place
              from (select d.id from ${tables.deadLetter} d where d.state = 'dead'
                     and exists (select from ${tables.inbox} i where i.consumer = d.consumer and i.generation = d.generation and i.event_id = d.event_id)
                     limit ${bound}::int) d) a`
}
