-- The lock that makes the order of an aggregate's versions the order of its commits, and the guard that finds writers without it.

-- The last version of every aggregate. Its row lock makes version order = commit order. Version 0: locked by a writer before
-- its first event, so it may still begin at any version.
create table :schema.aggregate_version (
  aggregate_type text   not null,
  aggregate_id   text   not null,
  version        bigint not null check (version >= 0),
  primary key (aggregate_type, aggregate_id)
) with (fillfactor = 80);

-- One row for each guarded table and writer. What is counted are writes at least: two at the same moment count as one.
create table :schema.unlocked_write (
  relation       text        not null,
  aggregate_type text        not null,
  role           text        not null,
  application    text        not null,
  aggregate_id   text        not null,
  writes         bigint      not null default 1,
  first_at       timestamptz not null default clock_timestamp(),
  last_at        timestamptz not null default clock_timestamp(),
  primary key (relation, aggregate_type, role, application)
);

-- The lock that every writer of an aggregate takes first: its row in aggregate_version, made if it is new. Several are locked
-- one after the other in the order of type and id, the same for every caller, so that no two writers can wait for each other.
--
-- A transaction that waited for it under REPEATABLE READ still has the snapshot from before, and a lock alone would let it go on with
-- that. So there the row is written, and the next writer fails to serialise and begins again.
create function :schema.lock_aggregates(types text[], ids text[])
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

-- Whether this transaction, or a savepoint of it, has locked the aggregate or taken a version of it. The row itself tells: a version of
-- it that is visible and not committed is our own, and one that a living transaction has locked, and that we may lock at once, we had
-- locked. So no writer has to leave a mark, and writers that are not guarded pay nothing.
create function :schema.holds_aggregate(aggregate_type text, aggregate_id text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  writer xid;
  locker xid;
begin
  select a.xmin, a.xmax into writer, locker from :schema.aggregate_version a
   where a.aggregate_type = holds_aggregate.aggregate_type and a.aggregate_id = holds_aggregate.aggregate_id;
  if not found then
    return false;
  end if;
  if :schema.xid_in_progress(writer) then
    return true;
  end if;
  if not :schema.xid_in_progress(locker) then
    return false;
  end if;
  perform from :schema.aggregate_version a
    where a.aggregate_type = holds_aggregate.aggregate_type and a.aggregate_id = holds_aggregate.aggregate_id for update skip locked;
  return found;
end $$;

-- Counts an unlocked write. A report waits for no other: one that cannot have the row at once is dropped.
create function :schema.note_unlocked_write(relation text, aggregate_type text, role text, application text, aggregate_id text) returns void
language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '1ms' as $$
begin
  insert into :schema.unlocked_write as u (relation, aggregate_type, role, application, aggregate_id)
  select note_unlocked_write.relation, note_unlocked_write.aggregate_type, note_unlocked_write.role, note_unlocked_write.application,
         note_unlocked_write.aggregate_id
   where (select count(*) from :schema.unlocked_write) < 1000
  on conflict on constraint unlocked_write_pkey
    do update set writes = u.writes + 1, aggregate_id = excluded.aggregate_id, last_at = clock_timestamp();
exception when lock_not_available then
  null;
end $$;

-- Finds writers that change an aggregate's rows without its lock: two of them lose each other's changes, and events do not follow
-- the rows. A table is guarded by a trigger that its owner makes:
--
--   create constraint trigger waybill_guard after insert or update or delete on shop.account
--     deferrable initially deferred for each row execute function waybill.guard_aggregate('account', 'id', 'report');
--
-- Its arguments: the aggregate type, the column with the aggregate's id, and 'report' or 'refuse'. Asked at COMMIT, so that it does not
-- matter whether the row was written before the event was added. A report waits for no transaction and fails no writer.
create function :schema.guard_aggregate() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  written text := format('%I.%I', tg_table_schema, tg_table_name);
  program text := left(current_setting('application_name'), 64);
  id      text;
begin
  if tg_nargs < 2 or coalesce(tg_argv[2], 'report') not in ('report', 'refuse') then
    raise exception 'The trigger % of % needs an aggregate type, the column with the aggregate''s id, and ''report'' or ''refuse''.', tg_name, written
      using errcode = '22023';
  end if;
  for id in
    select distinct w.data ->> tg_argv[1]
      from (values (case when tg_op <> 'INSERT' then to_jsonb(old) end), (case when tg_op <> 'DELETE' then to_jsonb(new) end)) as w (data)
     where w.data is not null
  loop
    if id is null then
      raise exception 'The trigger % of % names the aggregate''s id "%": the table has no such column, or the row has none.', tg_name, written, tg_argv[1]
        using errcode = '22023';
    end if;
    continue when :schema.holds_aggregate(tg_argv[0], id);
    if tg_argv[2] = 'refuse' then
      raise exception 'A row of % was written without the lock of its aggregate % %: others may write it at the same time, and no event follows.', written, tg_argv[0], id
        using errcode = '55000', hint = 'Call lockAggregate(tx, { type, id }) first, add the event of the change in the same transaction, or make it a command.';
    end if;
    perform :schema.note_unlocked_write(written, tg_argv[0], session_user, program, id);
  end loop;
  return null;
end $$;
