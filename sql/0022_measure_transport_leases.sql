-- Keeps a receiver of the Postgres transport whose lease is short from taking the lanes of one that lives and has a longer lease.

-- When the lease of a lane was last taken or renewed. With the end it tells how long the lease is: while settings change, receivers have
-- leases of different lengths. Null where nobody has renewed it since this column came.
alter table :schema.transport_lane add column locked_at timestamptz;

-- A receiver's heartbeat: gives back the lanes that it is leaving, renews the others, and takes free ones up to its fair
-- share. Returns the lanes that are its own now. A receiver that does not stay gives everything back. A heartbeat from a
-- future that no clock reaches is not one: the clock stepped back. Whoever has a lease that runs lives until that ends, even if its
-- heartbeats are rarer than ours: nobody can take its lanes before.
create or replace function :schema.transport_lease(subscription int, receiver uuid, lease_ms int, leaving smallint[], stays boolean)
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
