-- Topics and subscriptions in Postgres itself, for services that have no broker yet.
--
-- A message is written once and never updated. Each subscription has a narrow delivery row for every message that its
-- consumer has not settled. Receivers lease lanes, not rows: a key hashes to one lane, so the lane's holder delivers it
-- alone and in order, and a delivery costs no write until it is settled.

-- Topics of the Postgres transport.
create table :schema.transport_topic (
  id   int  generated always as identity primary key,
  name text not null unique
);

-- The gate of each topic. Rows are locked without a queue: publishers that share a topic's row would overtake a waiting subscriber for
-- as long as one of them follows another. So a session that wants a topic alone locks its gate first, and later publishers stop there.
create table :schema.transport_gate (topic_id int primary key);

-- Which consumer reads which topic of the Postgres transport.
create table :schema.transport_subscription (
  id         int         generated always as identity primary key,
  topic_id   int         not null references :schema.transport_topic,
  consumer   text        not null,
  lanes      smallint    not null check (lanes > 0 and lanes & (lanes - 1) = 0),
  created_at timestamptz not null default clock_timestamp(),
  unique (topic_id, consumer)
);

-- One row for each lane of a subscription: which receiver delivers it, and until when. Every acquisition has a new tenure, by which all
-- later writes are fenced. `locked_at` is when the lease was last taken or renewed; with the end it tells how long the lease is, for
-- receivers may have leases of different lengths.
create table :schema.transport_lane (
  subscription_id int      not null references :schema.transport_subscription on delete cascade,
  lane            smallint not null,
  tenure          bigint   not null default 0,
  locked_by       uuid,
  lock_expires_at timestamptz,
  locked_at       timestamptz,
  primary key (subscription_id, lane)
) with (fillfactor = 50);

-- Heartbeats, from which every receiver computes its fair share of the lanes.
create table :schema.transport_receiver (
  subscription_id int         not null references :schema.transport_subscription on delete cascade,
  receiver        uuid        not null,
  seen_at         timestamptz not null,
  primary key (subscription_id, receiver)
) with (fillfactor = 50);

create sequence :schema.transport_message_seq;

-- Messages of the Postgres transport: one row each, never updated.
create table :schema.transport_message (
  topic_id     int         not null,
  seq          bigint      not null,
  key          text,
  attributes   jsonb       not null,
  body         bytea       not null,
  published_at timestamptz not null default clock_timestamp(),
  primary key (topic_id, seq)
);
create index transport_message_published_at_idx on :schema.transport_message using brin (published_at) with (pages_per_range = 32, autosummarize = on);

-- One row for each message that a subscription has not settled. `key` is the hash of the ordering key. `rest_until` is set by a nack:
-- until then the message and those behind it under its key wait.
create table :schema.transport_delivery (
  subscription_id int      not null,
  lane            smallint not null,
  seq             bigint   not null,
  key             bigint,
  bytes           int      not null,
  attempts        int      not null default 0,
  rest_until      timestamptz,
  primary key (subscription_id, lane, seq)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
create index transport_delivery_resting_idx on :schema.transport_delivery (subscription_id, key, seq) where rest_until is not null;

-- The lane of a message: its key's, or for a message without a key any.
create function :schema.transport_lane_of(key bigint, seq bigint, lanes smallint) returns smallint
language sql immutable parallel safe as 'select (coalesce(key, seq) & (lanes - 1))::smallint';

-- Whether a session holds a topic's gate. The row's header tells, without a lock and without a write.
create function :schema.transport_gate_shut(topic int) returns boolean
language sql set search_path = pg_catalog, pg_temp as $$
  select coalesce((select :schema.xid_in_progress(g.xmax) from :schema.transport_gate g where g.topic_id = topic), false)
$$;

-- Takes the lock under which a topic's subscriptions change, and makes the topic if it is new. Publishers share it; a session that
-- subscribes, seeks or rewinds has it alone. Both look only afterwards, with a snapshot younger than the lock: either the subscriber
-- sees the message, or its publisher sees the subscription. Rows are locked, and no advisory keys: every login of the database may take
-- those, and would hold up publishers and sweeps.
create function :schema.transport_lock_topic(topic text, alone boolean) returns int
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

-- Stores messages of one topic in the order given, with a delivery for each of its subscriptions; returns their seqs in
-- order. The topic's id is called `own_topic`: by the name of a column it would be that column, and a message would go to the
-- subscriptions of every topic. It has a transaction id before it takes seqs: by that transport_horizon tells which transactions may
-- still be about to commit some.
--
-- A session that subscribes, seeks or rewinds has a topic alone while it copies what is retained. A publisher that waited for all of that
-- would keep its connection, also when its caller has given up, and soon no connection would be left for other topics. So it waits a
-- second for a lock and then ends with SQLSTATE 55P03, and nothing is stored. The limit is the function's own: what follows in the same
-- transaction waits as before.
create function :schema.transport_publish(topic text, keys text[], attributes jsonb[], bodies bytea[], sizes int[])
returns table (seq bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '1s' as $$
#variable_conflict use_column
declare
  own_topic int := :schema.transport_lock_topic(topic, false);
begin
  perform pg_current_xact_id();
  return query
  with given as materialized (
    select g.*, nextval(':schema.transport_message_seq') as seq
      from (select * from unnest(keys, attributes, bodies, sizes) with ordinality as u (key, attributes, body, bytes, place) order by u.place) g),
  stored as (
    insert into :schema.transport_message (topic_id, seq, key, attributes, body)
    select own_topic, g.seq, g.key, g.attributes, g.body from given g order by g.place),
  spread as (
    insert into :schema.transport_delivery (subscription_id, lane, seq, key, bytes)
    select s.id, :schema.transport_lane_of(hashtextextended(g.key, 0), g.seq, s.lanes), g.seq, hashtextextended(g.key, 0), g.bytes
      from given g cross join :schema.transport_subscription s
     where s.topic_id = own_topic
     order by s.id, g.place)
  select g.seq from given g order by g.place;
end $$;

-- Gives a subscription a delivery for each retained message since a moment (null: all). The caller has the topic alone.
create function :schema.transport_fill(subscription int, since timestamptz) returns void
language sql set search_path = pg_catalog, pg_temp as $$
  insert into :schema.transport_delivery (subscription_id, lane, seq, key, bytes)
  select s.id, :schema.transport_lane_of(hashtextextended(m.key, 0), m.seq, s.lanes), m.seq, hashtextextended(m.key, 0), octet_length(m.body) + octet_length(m.attributes::text)
    from :schema.transport_subscription s join :schema.transport_message m on m.topic_id = s.topic_id
   where s.id = subscription and (since is null or m.published_at >= since)
   order by m.seq
$$;

-- Finds or makes a subscription. A new one begins with everything that is retained.
create function :schema.transport_subscribe(topic text, consumer text, lanes smallint) returns int
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  found_id  int;
  own_topic int;
begin
  select s.id into found_id from :schema.transport_subscription s join :schema.transport_topic t on t.id = s.topic_id
   where t.name = transport_subscribe.topic and s.consumer = transport_subscribe.consumer;
  if found_id is not null then
    return found_id;
  end if;
  own_topic := :schema.transport_lock_topic(topic, true);
  insert into :schema.transport_subscription (topic_id, consumer, lanes) values (own_topic, transport_subscribe.consumer, transport_subscribe.lanes)
  on conflict do nothing returning id into found_id;
  if found_id is null then
    return (select s.id from :schema.transport_subscription s where s.topic_id = own_topic and s.consumer = transport_subscribe.consumer);
  end if;
  insert into :schema.transport_lane (subscription_id, lane) select found_id, generate_series(0, transport_subscribe.lanes - 1);
  perform :schema.transport_fill(found_id, null);
  return found_id;
end $$;

-- Removes a subscription. It has the topic alone, so a publisher comes before it, or sees none: its deliveries can then be removed at
-- leisure.
create function :schema.transport_unsubscribe(topic text, consumer text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  own_topic int;
begin
  if exists (select from :schema.transport_topic t where t.name = topic) then
    own_topic := :schema.transport_lock_topic(topic, true);
    delete from :schema.transport_subscription s where s.topic_id = own_topic and s.consumer = transport_unsubscribe.consumer;
  end if;
end $$;

-- Starts a subscription over with what is retained since a moment (null: all). A new tenure of every lane makes whatever
-- is in hand lost to its receiver.
create function :schema.transport_seek(topic text, subscription int, since timestamptz) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform :schema.transport_lock_topic(topic, true);
  perform from :schema.transport_subscription s where s.id = subscription for update;
  update :schema.transport_lane l set tenure = l.tenure + 1, locked_by = null, lock_expires_at = null where l.subscription_id = subscription;
  delete from :schema.transport_delivery d where d.subscription_id = subscription;
  perform :schema.transport_fill(subscription, since);
end $$;

-- Gives a subscription again what is retained since a moment, and keeps what is older and not settled. A new tenure of every lane
-- makes whatever is in hand lost to its receiver; a lane is read in order of seq, so each key comes in order. Deliveries since the
-- moment are made anew, not kept: an ack that began before would still delete one that it saw.
create function :schema.transport_rewind(topic text, subscription int, since timestamptz) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform :schema.transport_lock_topic(topic, true);
  perform from :schema.transport_subscription s where s.id = subscription for update;
  update :schema.transport_lane l set tenure = l.tenure + 1, locked_by = null, lock_expires_at = null where l.subscription_id = subscription;
  delete from :schema.transport_delivery d
   using :schema.transport_subscription s, :schema.transport_message m
   where s.id = subscription and d.subscription_id = s.id and m.topic_id = s.topic_id and m.seq = d.seq and m.published_at >= since;
  perform :schema.transport_fill(subscription, since);
end $$;

-- A receiver's heartbeat: gives back the lanes that it is leaving, renews the others, and takes free ones up to its fair
-- share. Returns the lanes that are its own now. A receiver that does not stay gives everything back. A heartbeat from a
-- future that no clock reaches is not one: the clock stepped back. A receiver with a lease that runs lives until that ends, even if its
-- heartbeats are rarer than ours: no other can take its lanes before.
create function :schema.transport_lease(subscription int, receiver uuid, lease_ms int, leaving smallint[], stays boolean)
returns table (lane smallint, tenure bigint, share int)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  lease  interval := lease_ms * interval '1 millisecond';
  leased smallint[];
  owners uuid[];
  fair   int;
begin
  -- One at a time, and each looks with a snapshot younger than this lock.
  perform from :schema.transport_subscription s where s.id = subscription for update;
  if not found then
    raise exception 'The subscription is gone.' using errcode = 'WB002';
  end if;
  update :schema.transport_lane l set locked_by = null, locked_at = null, lock_expires_at = null
   where l.subscription_id = subscription and l.locked_by = transport_lease.receiver and (not stays or l.lane = any (leaving));
  if not stays then
    delete from :schema.transport_receiver r where r.subscription_id = subscription and r.receiver = transport_lease.receiver;
    return;
  end if;
  insert into :schema.transport_receiver as r (subscription_id, receiver, seen_at) values (subscription, transport_lease.receiver, clock_timestamp())
  on conflict (subscription_id, receiver) do update set seen_at = excluded.seen_at;
  update :schema.transport_lane l set locked_at = clock_timestamp(), lock_expires_at = clock_timestamp() + lease
   where l.subscription_id = subscription and l.locked_by = transport_lease.receiver;

  -- Not over, and not written ahead of us by more than it lasts, which only a clock that stepped back explains. One that does not say when
  -- it was written counts as the longest that there is: its owner lives, and says so at its next heartbeat, or it ends within twice that.
  select coalesce(array_agg(l.lane), '{}'), coalesce(array_agg(distinct l.locked_by), '{}') into leased, owners
    from (select f.lane, f.locked_by, f.lock_expires_at, coalesce(f.locked_at, f.lock_expires_at - interval '10 minutes') as locked_at
            from :schema.transport_lane f where f.subscription_id = subscription and f.locked_by is not null) l
   where l.lock_expires_at > clock_timestamp() and l.locked_at - clock_timestamp() <= l.lock_expires_at - l.locked_at;

  delete from :schema.transport_receiver r where r.subscription_id = subscription and r.receiver <> all (owners)
     and (r.seen_at < clock_timestamp() - 20 * lease or r.seen_at > clock_timestamp() + 20 * lease);
  select s.lanes / w.alive + (w.rank < s.lanes % w.alive)::int into fair
    from :schema.transport_subscription s,
         (select count(*)::int as alive, count(*) filter (where r.receiver < transport_lease.receiver)::int as rank
            from :schema.transport_receiver r
           where r.subscription_id = subscription
             and (r.receiver = any (owners) or (r.seen_at > clock_timestamp() - lease and r.seen_at < clock_timestamp() + lease))) w
   where s.id = subscription;
  update :schema.transport_lane l
     set tenure = l.tenure + 1, locked_by = transport_lease.receiver, locked_at = clock_timestamp(), lock_expires_at = clock_timestamp() + lease
   where l.subscription_id = subscription and l.lane = any (array(
           select f.lane from :schema.transport_lane f
            where f.subscription_id = subscription and f.lane <> all (leased)
            order by f.lane
            limit greatest(0, fair - (select count(*) from :schema.transport_lane o where o.subscription_id = subscription and o.locked_by = transport_lease.receiver))));
  return query
  select l.lane, l.tenure, fair from :schema.transport_lane l
   where l.subscription_id = subscription and l.locked_by = transport_lease.receiver order by l.lane;
end $$;

-- Up to where seqs are taken, and by which transaction to know that none of them can be committed any more: when a later
-- call finds that `oldest`, the oldest transaction that runs, is not older than `xid`. The xid is taken after the look at
-- the sequence, so it is younger than every transaction that has a seq by then. An xmax would not do: it names the last one that ended,
-- and younger ones may be running.
create function :schema.transport_horizon() returns table (seq bigint, xid xid8, oldest xid8)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  oldest := pg_snapshot_xmin(pg_current_snapshot());
  select s.last_value - (not s.is_called)::int into seq from :schema.transport_message_seq s;
  xid := pg_current_xact_id();
  return next;
end $$;

-- Deletes messages of a topic that are older than the retention and that every subscription has settled. It looks at a number of
-- messages behind a place, in order, and ends at the first that is young. Returns how many it deleted, and the place to go on
-- from; null if it came to the end of what is old. So a call costs what goes, and what is old and cannot go yet, whatever the size of
-- the table: once space is used again, an index of ages names all of it.
--
-- It shares the lock with publishers, and looks only when it has it: a session that subscribes or seeks copies what is retained, and a
-- copy that is not committed yet cannot be seen. A topic in such hands is left for the next time, so neither waits for the other. A
-- message from the future is not young: the clock stepped back. It is kept, and keeps none behind it. Without `offset 0` the
-- planner may put a Memoize over the look for a delivery, with subscription and lane as its key: it then answers for every message of
-- a lane what it found for the first (seen in PostgreSQL 18), and messages that are not settled are deleted.
--
-- It runs as the owner, so its callers need no right to delete messages.
create function :schema.transport_sweep_topic(topic int, after bigint, retention_ms float8, most int)
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
