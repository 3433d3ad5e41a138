-- Replaces advisory locks, which every login of the database may take, by locks on rows that only the functions of this schema may lock.
-- A publisher, a sweep and a report of an unlocked write no longer wait for a stranger.

-- Publishers and sweeps that run wait for nothing new; those that began before this migration are waited for.
lock table :schema.transport_topic in access exclusive mode;

-- The gate of each topic. Rows are locked without a queue: publishers that share a topic's row would overtake a waiting subscriber for
-- as long as one of them follows another. So a session that wants a topic alone locks its gate first, and later publishers stop there.
create table :schema.transport_gate (topic_id int primary key);
insert into :schema.transport_gate (topic_id) select t.id from :schema.transport_topic t;

-- Whether a session holds a topic's gate. The row's header tells, without a lock and without a write.
create function :schema.transport_gate_shut(topic int) returns boolean
language sql set search_path = pg_catalog, pg_temp as $$
  select coalesce((select :schema.xid_in_progress(g.xmax) from :schema.transport_gate g where g.topic_id = topic), false)
$$;

-- Takes the lock under which a topic's subscriptions change, and makes the topic if it is new. Publishers share it; a session that
-- subscribes, seeks or rewinds has it alone. Both look only afterwards, with a snapshot younger than the lock: either the subscriber
-- sees the message, or its publisher sees the subscription.
create or replace function :schema.transport_lock_topic(topic text, alone boolean) returns int
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  own int;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'The transport needs READ COMMITTED: it must see what committed while it waited for its topic.' using errcode = '25001';
  end if;
  own := (select t.id from :schema.transport_topic t where t.name = topic);
  if own is null then
    insert into :schema.transport_topic (name) values (topic) on conflict do nothing;
    own := (select t.id from :schema.transport_topic t where t.name = topic);
    insert into :schema.transport_gate (topic_id) values (own) on conflict do nothing;
  end if;
  if alone then
    perform from :schema.transport_gate g where g.topic_id = own for update;
    perform from :schema.transport_topic t where t.id = own for update;
    return own;
  end if;
  if :schema.transport_gate_shut(own) then
    begin
      perform from :schema.transport_gate g where g.topic_id = own for share;
      raise exception 'Through the gate: the lock on it goes with this subtransaction.' using errcode = 'WB007';
    exception when sqlstate 'WB007' then
      null;
    end;
  end if;
  perform from :schema.transport_topic t where t.id = own for share;
  return own;
end $$;

-- Removes a subscription. It has the topic alone, so a publisher comes before it, or sees none: its deliveries can then be removed at
-- leisure.
create or replace function :schema.transport_unsubscribe(topic text, consumer text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  own_topic int;
begin
  if exists (select from :schema.transport_topic t where t.name = topic) then
    own_topic := :schema.transport_lock_topic(topic, true);
    delete from :schema.transport_subscription s where s.topic_id = own_topic and s.consumer = transport_unsubscribe.consumer;
  end if;
end $$;

-- As in 0015, with the row of the topic as its lock. It runs as the owner, so its callers need no right to delete messages.
create or replace function :schema.transport_sweep_topic(topic int, after bigint, retention_ms float8, most int)
returns table (swept int, place bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
  this_moment timestamptz := clock_timestamp();
  past        timestamptz := this_moment - retention_ms * interval '1 millisecond';
  young       bigint;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'The transport needs READ COMMITTED: it must see what committed before it had its topics.' using errcode = '25001';
  end if;
  swept := 0;
  place := after;
  perform from :schema.transport_topic t
    where t.id = topic and not :schema.transport_gate_shut(t.id) for share skip locked;
  if not found then
    return next;
    return;
  end if;
  young := (
    select c.seq
      from (select m.seq, m.published_at from :schema.transport_message m
             where m.topic_id = topic and m.seq > after order by m.seq limit most) c
     where c.published_at between past and this_moment
     order by c.seq limit 1);
  place := null;
  if young is null then
    place := (
      select m.seq from :schema.transport_message m
       where m.topic_id = topic and m.seq > after order by m.seq offset most - 1 limit 1);
  end if;
  delete from :schema.transport_message m
   where m.ctid = any (array(
     select c.ctid
       from (select o.ctid, o.seq, o.key from :schema.transport_message o
              where o.topic_id = topic and o.seq > after and o.seq < coalesce(young, place + 1, 9223372036854775807)
                and o.published_at < past offset 0) c
      where not exists (
              select from :schema.transport_subscription s cross join lateral (
                select from :schema.transport_delivery d
                 where d.subscription_id = s.id and d.seq = c.seq
                   and d.lane = :schema.transport_lane_of(hashtextextended(c.key, 0), c.seq, s.lanes) offset 0) d
               where s.topic_id = topic)));
  get diagnostics swept = row_count;
  return next;
end $$;

-- As in 0010; processes of the version before call it.
create or replace function :schema.transport_sweep(retention_ms float8, most int) returns int
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  past   timestamptz := clock_timestamp() - retention_ms * interval '1 millisecond';
  topics int[];
  swept  int;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'The transport needs READ COMMITTED: it must see what committed before it had its topics.' using errcode = '25001';
  end if;
  -- Few at a time, for locks are a limited good; drawn, so that each has its turn.
  topics := array(
    select t.id from :schema.transport_topic t
     where t.id = any (array(
             select o.id from :schema.transport_topic o
              where (select m.published_at from :schema.transport_message m where m.topic_id = o.id order by m.seq limit 1) < past
              order by random() limit 200))
       and not :schema.transport_gate_shut(t.id)
       for share skip locked);
  delete from :schema.transport_message m
   where m.ctid = any (array(
     select c.ctid
       from (select o.ctid, o.topic_id, o.seq, o.key from :schema.transport_message o where o.published_at < past offset 0) c
      where c.topic_id = any (topics)
        and not exists (
              select from :schema.transport_subscription s cross join lateral (
                select from :schema.transport_delivery d
                 where d.subscription_id = s.id and d.seq = c.seq
                   and d.lane = :schema.transport_lane_of(hashtextextended(c.key, 0), c.seq, s.lanes) offset 0) d
               where s.topic_id = c.topic_id)
      limit most));
  get diagnostics swept = row_count;
  return swept;
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

-- Its arguments: the aggregate type, the column with the aggregate's id, and 'report' or 'refuse'. Asked at COMMIT, so that it does not
-- matter whether the row was written before the event was added. A report waits for nobody and fails no writer.
create or replace function :schema.guard_aggregate() returns trigger
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
