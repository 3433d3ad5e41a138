-- Topics and subscriptions in Postgres itself, for those who have no broker yet.
--
-- A message is written once and never updated. Each subscription has a narrow delivery row for every message that its
-- consumer has not settled. Receivers lease lanes, not rows: a key hashes to one lane, so the lane's holder delivers it
-- alone and in order, and a delivery costs no write until it is settled.

create table :schema.transport_topic (
  id   int  generated always as identity primary key,
  name text not null unique
);

create table :schema.transport_subscription (
  id         int         generated always as identity primary key,
  topic_id   int         not null references :schema.transport_topic,
  consumer   text        not null,
  lanes      smallint    not null check (lanes > 0 and lanes & (lanes - 1) = 0),
  created_at timestamptz not null default clock_timestamp(),
  unique (topic_id, consumer)
);

-- Who delivers a lane, and until when. Every acquisition has a new tenure, by which all later writes are fenced.
create table :schema.transport_lane (
  subscription_id int      not null references :schema.transport_subscription on delete cascade,
  lane            smallint not null,
  tenure          bigint   not null default 0,
  locked_by       uuid,
  lock_expires_at timestamptz,
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

-- `key` is the hash of the ordering key. `rest_until` is set by a nack: until then the message and those behind it under
-- its key wait.
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

-- Makes the lock under which a topic's subscriptions change. Publishers share it; who subscribes or seeks has it alone.
-- Whoever has it looks only afterwards, with a snapshot younger than the lock. So a message is either seen by the one who
-- subscribes, or its publisher sees the subscription.
create function :schema.transport_lock_topic(topic text, alone boolean) returns int
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  lock_key bigint := hashtextextended(:'schema' || '.transport.' || topic, 0);
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'The transport needs READ COMMITTED: it must see what committed while it waited for its topic.' using errcode = '25001';
  end if;
  if alone then
    perform pg_advisory_xact_lock(lock_key);
  else
    perform pg_advisory_xact_lock_shared(lock_key);
  end if;
  return (select t.id from :schema.transport_topic t where t.name = topic);
end $$;

-- Stores messages of one topic in the order given, with a delivery for each subscription; returns their seqs in order.
create function :schema.transport_publish(topic text, keys text[], attributes jsonb[], bodies bytea[], sizes int[])
returns table (seq bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  topic_id int := :schema.transport_lock_topic(topic, false);
begin
  if topic_id is null then
    insert into :schema.transport_topic (name) values (transport_publish.topic) on conflict do nothing;
    topic_id := (select t.id from :schema.transport_topic t where t.name = transport_publish.topic);
  end if;
  return query
  with given as materialized (
    select g.*, nextval(':schema.transport_message_seq') as seq
      from (select * from unnest(keys, attributes, bodies, sizes) with ordinality as u (key, attributes, body, bytes, place) order by u.place) g),
  stored as (
    insert into :schema.transport_message (topic_id, seq, key, attributes, body)
    select topic_id, g.seq, g.key, g.attributes, g.body from given g order by g.place),
  spread as (
    insert into :schema.transport_delivery (subscription_id, lane, seq, key, bytes)
    select s.id, :schema.transport_lane_of(hashtextextended(g.key, 0), g.seq, s.lanes), g.seq, hashtextextended(g.key, 0), g.bytes
      from given g cross join :schema.transport_subscription s
     where s.topic_id = topic_id
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
  if own_topic is null then
    insert into :schema.transport_topic (name) values (transport_subscribe.topic) on conflict do nothing;
    own_topic := (select t.id from :schema.transport_topic t where t.name = transport_subscribe.topic);
  end if;
  insert into :schema.transport_subscription (topic_id, consumer, lanes) values (own_topic, transport_subscribe.consumer, transport_subscribe.lanes)
  on conflict do nothing returning id into found_id;
  if found_id is null then
    return (select s.id from :schema.transport_subscription s where s.topic_id = own_topic and s.consumer = transport_subscribe.consumer);
  end if;
  insert into :schema.transport_lane (subscription_id, lane) select found_id, generate_series(0, transport_subscribe.lanes - 1);
  perform :schema.transport_fill(found_id, null);
  return found_id;
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

-- A receiver's heartbeat: gives back the lanes that it is leaving, renews the others, and takes free ones up to its fair
-- share. Returns the lanes that are its own now. A receiver that does not stay gives everything back.
create function :schema.transport_lease(subscription int, receiver uuid, lease_ms int, leaving smallint[], stays boolean)
returns table (lane smallint, tenure bigint, share int)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  lease interval := lease_ms * interval '1 millisecond';
  fair  int;
begin
  -- One at a time, and each looks with a snapshot younger than this lock.
  perform from :schema.transport_subscription s where s.id = subscription for update;
  if not found then
    raise exception 'The subscription is gone.' using errcode = 'WB002';
  end if;
  update :schema.transport_lane l set locked_by = null, lock_expires_at = null
   where l.subscription_id = subscription and l.locked_by = transport_lease.receiver and (not stays or l.lane = any (leaving));
  if not stays then
    delete from :schema.transport_receiver r where r.subscription_id = subscription and r.receiver = transport_lease.receiver;
    return;
  end if;
  insert into :schema.transport_receiver as r (subscription_id, receiver, seen_at) values (subscription, transport_lease.receiver, clock_timestamp())
  on conflict (subscription_id, receiver) do update set seen_at = excluded.seen_at;
  delete from :schema.transport_receiver r where r.subscription_id = subscription and r.seen_at < clock_timestamp() - 20 * lease;

  select s.lanes / w.alive + (w.rank < s.lanes % w.alive)::int into fair
    from :schema.transport_subscription s,
         (select count(*)::int as alive, count(*) filter (where r.receiver < transport_lease.receiver)::int as rank
            from :schema.transport_receiver r
           where r.subscription_id = subscription and r.seen_at > clock_timestamp() - lease) w
   where s.id = subscription;
  update :schema.transport_lane l set lock_expires_at = clock_timestamp() + lease
   where l.subscription_id = subscription and l.locked_by = transport_lease.receiver;
  -- Free, expired, or leased from a future that no lease reaches (the clock stepped back).
  update :schema.transport_lane l
     set tenure = l.tenure + 1, locked_by = transport_lease.receiver, lock_expires_at = clock_timestamp() + lease
   where l.subscription_id = subscription and l.lane = any (array(
           select f.lane from :schema.transport_lane f
            where f.subscription_id = subscription
              and (f.locked_by is null or f.lock_expires_at <= clock_timestamp() or f.lock_expires_at > clock_timestamp() + 2 * lease)
            order by f.lane
            limit greatest(0, fair - (select count(*) from :schema.transport_lane o where o.subscription_id = subscription and o.locked_by = transport_lease.receiver))));
  return query
  select l.lane, l.tenure, fair from :schema.transport_lane l
   where l.subscription_id = subscription and l.locked_by = transport_lease.receiver order by l.lane;
end $$;
