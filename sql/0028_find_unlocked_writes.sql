-- Finds writers that change an aggregate's rows without its lock: two of them lose each other's changes, and events do not follow
-- the rows. A table is guarded by a trigger that its owner makes:
--
--   create constraint trigger waybill_guard after insert or update or delete on shop.account
--     deferrable initially deferred for each row execute function waybill.guard_aggregate('account', 'id', 'report');

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

-- Whether a transaction id, as a row has it, is of a transaction that has not ended. Rows have the lower half of an id, which is near
-- the present one.
create function :schema.xid_in_progress(half xid) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  seen  bigint := half::text::bigint;
  known bigint := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
  whole bigint := known + (seen - known % 4294967296 + 2147483648 + 4294967296) % 4294967296 - 2147483648;
begin
  if seen < 3 or whole < 3 then
    return false;
  end if;
  return coalesce(pg_xact_status(whole::text::xid8) = 'in progress', false);
exception when invalid_parameter_value then
  return false; -- several share the row's lock: none of them is a writer of ours
end $$;

-- Whether this transaction, or a savepoint of it, has locked the aggregate or taken a version of it. The row itself tells: a version of
-- it that is visible and not committed is our own, and one that a living transaction has locked, and that we may lock at once, we had
-- locked. So nobody has to leave a mark, and writers that are not guarded pay nothing.
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

-- Its arguments: the aggregate type, the column with the aggregate's id, and 'report' or 'refuse'. Asked at COMMIT, so that it does not
-- matter whether the row was written before the event was added. A report waits for nobody and fails no writer.
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
    if pg_try_advisory_xact_lock(hashtextextended(concat_ws(chr(31), :'schema', written, tg_argv[0], session_user, program), 0)) then
      insert into :schema.unlocked_write as u (relation, aggregate_type, role, application, aggregate_id)
      select written, tg_argv[0], session_user, program, id
       where (select count(*) from :schema.unlocked_write) < 1000
      on conflict (relation, aggregate_type, role, application)
        do update set writes = u.writes + 1, aggregate_id = excluded.aggregate_id, last_at = clock_timestamp();
    end if;
  end loop;
  return null;
end $$;
