-- Retention asks of a batch of old events which of them wait. It put everything that waits into order to answer that, twice a call,
-- while relays needed the database to drain it: with ten million rows, gigabytes of them. Now only the batch is kept in memory, and
-- what waits is read past it.

-- As before but for that; processes of the version before call it too.
create or replace function :schema.outbox_expire(what text, older_than timestamptz, ended_before xid8, batch int, after uuid, block bigint)
returns table (seen int, removed int, last uuid, done boolean)
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_nestloop = off set jit = off as $$
declare
  is_event boolean := what not in ('receipts', 'sources');
  relation regclass := ':schema.outbox'::regclass;
  id       text := 'id';
  moment   text := 'occurred_at';
  next_xid bigint := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
  bound    uuid := (lpad(to_hex((extract(epoch from older_than) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid;
  picked   text;
  rows     tid[];
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'outbox_expire needs READ COMMITTED: it must see what committed while it locked.' using errcode = '25001';
  end if;
  if what = 'receipts' then
    relation := ':schema.outbox_receipt'::regclass; id := 'event_id'; moment := 'published_at';
  elsif what = 'sources' then
    relation := ':schema.outbox_source'::regclass; id := 'source_event_id'; moment := 'emitted_at';
  elsif not :schema.outbox_dispatching() and ended_before is null then
    raise exception 'The outbox is read by a connector: events can be removed only behind its replication slot. Name it: option slot of the retention.'
      using errcode = 'WB003';
  end if;

  picked := case when block is null
    then format('select ctid, %1$I as id from %2$s where %1$I > $1 and %1$I < $2 and %3$I < $3 order by %1$I limit $4', id, relation, moment)
    else format('select ctid, %1$I as id from %2$s where ctid >= %4$L::tid and ctid < %5$L::tid and %3$I < $3',
                id, relation, moment, format('(%s,0)', block), format('(%s,0)', block + 512)) end;
  execute format(
    'with picked as materialized (%s)
     select count(*)::int, (array_agg(p.id order by p.id desc))[1], array_agg(p.ctid) filter (where w.event_id is null)
       from picked p left join (select distinct d.event_id from :schema.outbox_dispatch d where $5 and d.event_id in (select id from picked)) w on w.event_id = p.id', picked)
    into seen, last, rows using after, bound, older_than, batch, is_event;
  done := case when block is null then seen < batch
               else (block + 512) * current_setting('block_size')::bigint >= pg_relation_size(relation) end;

  -- A place in the table may hold another row by now, so its age is asked again.
  execute format(
    'with locked as (select ctid from %s where ctid = any ($1) and %I + interval ''0'' < $2 and ($3 is null or
         (select x.id - case when x.id >= $4 then 4294967296 else 0 end < $3::text::bigint from (select ($4 >> 32 << 32) + xmin::text::bigint as id) x))
       for update skip locked)
     select array_agg(ctid) from locked', relation, moment)
    into rows using rows, older_than, case when is_event then ended_before end, next_xid;
  execute format(
    'delete from %s r where r.ctid = any ($1)%s', relation,
    case when is_event then ' and r.id not in (select d.event_id from :schema.outbox_dispatch d
       where d.event_id in (select e.id from :schema.outbox e where e.ctid = any ($1)))' else '' end)
    using rows;
  get diagnostics removed = row_count;
  return next;
end $$;
