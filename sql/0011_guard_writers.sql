-- Makes the lock of an aggregate hold under every isolation level, and keeps dates that no relay can count with out of the outbox.

-- The lock that every writer of an aggregate takes first: its row in aggregate_version, made if it is new. Several are locked
-- one after the other in the order of type and id, the same for everybody, so that no two writers can wait for each other.
--
-- Whoever waited for it under REPEATABLE READ still has the snapshot from before, and a lock alone would let it go on with
-- that. So there the row is written, and who comes behind fails to serialise and begins again.
create or replace function :schema.lock_aggregates(types text[], ids text[])
returns table (aggregate_type text, aggregate_id text, version bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  wanted record;
  writes boolean := current_setting('transaction_isolation') <> 'read committed';
begin
  for wanted in select distinct w.type, w.id from unnest(types, ids) as w (type, id) order by 1, 2 loop
    select a.version into version from :schema.aggregate_version a
     where a.aggregate_type = wanted.type and a.aggregate_id = wanted.id for update;
    if not found then
      insert into :schema.aggregate_version (aggregate_type, aggregate_id, version)
      values (wanted.type, wanted.id, 0) on conflict do nothing;
      select a.version into version from :schema.aggregate_version a
       where a.aggregate_type = wanted.type and a.aggregate_id = wanted.id for update;
    elsif writes then
      update :schema.aggregate_version a set version = a.version
       where a.aggregate_type = wanted.type and a.aggregate_id = wanted.id;
    end if;
    aggregate_type := wanted.type;
    aggregate_id := wanted.id;
    return next;
  end loop;
end $$;

-- Not every date is a number of milliseconds away: 'infinity' is not, and a relay that meets it would stop. The last second
-- of the year 9999 is.
update :schema.outbox_dispatch set next_retry_at = case when next_retry_at > clock_timestamp() then to_timestamp(253402300799) end
 where not isfinite(next_retry_at) or next_retry_at > to_timestamp(253402300799);
alter table :schema.outbox_dispatch
  add constraint outbox_dispatch_next_retry_at_check
  check (isfinite(next_retry_at) and next_retry_at <= to_timestamp(253402300799)) not valid;
