-- Makes the Postgres transport safe beside those who have not committed yet, and after its clock stepped back.

-- Stores messages of one topic in the order given, with a delivery for each of its subscriptions; returns their seqs in
-- order. The topic's id is called `own_topic`: by the name of a column it would be that column, and a message would go to the
-- subscriptions of every topic. It has a transaction id before it takes seqs: by that transport_horizon tells who may still
-- be about to commit some.
create or replace function :schema.transport_publish(topic text, keys text[], attributes jsonb[], bodies bytea[], sizes int[])
returns table (seq bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  own_topic int := :schema.transport_lock_topic(topic, false);
begin
  perform pg_current_xact_id();
  if own_topic is null then
    insert into :schema.transport_topic (name) values (transport_publish.topic) on conflict do nothing;
    own_topic := (select t.id from :schema.transport_topic t where t.name = transport_publish.topic);
  end if;
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

-- Up to where seqs are taken, and by which transaction to know that nobody can commit one of them any more: when a later
-- call finds that `oldest`, the oldest transaction that runs, is not older than `xid`. The xid is taken after the look at
-- the sequence, so it is younger than whoever has a seq by then. An xmax would not do: it names the last one that ended,
-- and younger ones may be running.
create function :schema.transport_horizon() returns table (seq bigint, xid xid8, oldest xid8)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  oldest := pg_snapshot_xmin(pg_current_snapshot());
  select s.last_value - (not s.is_called)::int into seq from :schema.transport_message_seq s;
  xid := pg_current_xact_id();
  return next;
end $$;

-- Deletes messages that are older than the retention and that every subscription has settled, up to a number; returns how
-- many. It shares the lock with publishers, and looks only when it has it: who subscribes or seeks copies what is retained,
-- and a copy that is not committed yet cannot be seen. A topic in such hands is left for the next time, so nobody waits
-- for anybody. Without `offset 0` the planner may put a Memoize over the look for a delivery, with subscription and lane as its
-- key: it then answers for every message of a lane what it found for the first (seen in PostgreSQL 18), and messages that
-- nobody has settled are deleted.
create function :schema.transport_sweep(retention_ms float8, most int) returns int
language plpgsql set search_path = pg_catalog, pg_temp as $$
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
    select o.id
      from (select t.id, t.name from :schema.transport_topic t
             where (select m.published_at from :schema.transport_message m where m.topic_id = t.id order by m.seq limit 1) < past
             order by random() limit 200) o
     where pg_try_advisory_xact_lock_shared(hashtextextended(:'schema' || '.transport.' || o.name, 0)));
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

-- Removes a subscription. It has the topic alone, so whoever publishes does so before, or without it: what waits for it can
-- then be removed at leisure.
create function :schema.transport_unsubscribe(topic text, consumer text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  own_topic int := :schema.transport_lock_topic(topic, true);
begin
  delete from :schema.transport_subscription s where s.topic_id = own_topic and s.consumer = transport_unsubscribe.consumer;
end $$;

-- A receiver's heartbeat: gives back the lanes that it is leaving, renews the others, and takes free ones up to its fair
-- share. Returns the lanes that are its own now. A receiver that does not stay gives everything back. A heartbeat from a
-- future that no clock reaches is not one: the clock stepped back.
create or replace function :schema.transport_lease(subscription int, receiver uuid, lease_ms int, leaving smallint[], stays boolean)
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
  delete from :schema.transport_receiver r where r.subscription_id = subscription
     and (r.seen_at < clock_timestamp() - 20 * lease or r.seen_at > clock_timestamp() + 20 * lease);

  select s.lanes / w.alive + (w.rank < s.lanes % w.alive)::int into fair
    from :schema.transport_subscription s,
         (select count(*)::int as alive, count(*) filter (where r.receiver < transport_lease.receiver)::int as rank
            from :schema.transport_receiver r
           where r.subscription_id = subscription and r.seen_at > clock_timestamp() - lease and r.seen_at < clock_timestamp() + lease) w
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

-- What cannot be delivered, since its message went to another topic or is gone.
delete from :schema.transport_delivery d
 where not exists (
         select from :schema.transport_subscription s join :schema.transport_message m on m.topic_id = s.topic_id
          where s.id = d.subscription_id and m.seq = d.seq);
