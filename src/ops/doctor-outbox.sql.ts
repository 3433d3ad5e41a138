/**
 * What the doctor looks at in an outbox: its own rules as the catalogue has them, the server's settings, and its rows.
 */
import type { OutboxTables } from '../outbox/outbox.sql.ts'
import { name, sql, type Statement } from '../postgres/sql.ts'

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
 * those who may read the sequence.
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
}

export function selectServerSettings(): Statement<ServerSettings> {
  return sql`
    select current_setting('fsync') as fsync, current_setting('full_page_writes') as full_page_writes,
           current_setting('synchronous_commit') as synchronous_commit, current_setting('default_transaction_isolation') as isolation`
}

export interface OutboxTroubles {
  readonly lost: string
  readonly orphans: string
  readonly unowned_with_work: number
}

/**
 * Rows that contradict each other. Events that should have a receipt are those between the oldest and the newest that has
 * one, by ids that carry their time; the newest 100,000 are looked at. Where receipts are off nobody can tell.
 */
export function selectTroubles(tables: OutboxTables): Statement<OutboxTroubles> {
  return sql`
    with recent as materialized (
      select o.id from ${tables.outbox} o order by o.id desc limit 100000
    ), lost as (
      select r.id from recent r
       where ${tables.dispatching}()
         and substr(r.id::text, 15, 1) = '7'
         and r.id > (select event_id from ${tables.receipt} order by event_id limit 1)
         and r.id < (select event_id from ${tables.receipt} order by event_id desc limit 1)
         and not exists (select from ${tables.receipt} p where p.event_id = r.id)
         and not exists (select from ${tables.dispatch} d where d.event_id = r.id)
       limit 5
    ), orphan as (
      select d.event_id from ${tables.dispatch} d where not exists (select from ${tables.outbox} o where o.id = d.event_id) limit 5
    )
    select coalesce((select string_agg(id::text, ', ') from lost), '') as lost,
           coalesce((select string_agg(event_id::text, ', ') from orphan), '') as orphans,
           (select count(*)::int from ${tables.lane} l
             where (l.lock_token is null or l.lock_expires_at < clock_timestamp() - interval '10 seconds')
               and (exists (select from ${tables.dispatch} d where d.lane = l.lane and d.state = 0)
                 or exists (select from ${tables.dispatch} d where d.lane = l.lane and d.state = 1 and d.next_retry_at < clock_timestamp() - interval '10 seconds'))) as unowned_with_work`
}
