-- Removes old messages of the Postgres transport topic by topic, from the front of each. What that costs depends on what goes, and on
-- what is old and cannot go yet, not on the table: once space is used again, an index of ages names all of it.

-- Deletes messages of a topic that are older than the retention and that every subscription has settled. It looks at a number of
-- messages behind a place, in order, and ends at the first that is young. Returns how many it deleted, and the place to go on
-- from; null if it came to the end of what is old.
--
-- It shares the lock with publishers, and looks only when it has it: who subscribes or seeks copies what is retained, and a copy
-- that is not committed yet cannot be seen. A topic in such hands is left for the next time, so nobody waits for anybody. A
-- message from the future is not young: the clock stepped back. It is kept, and keeps nobody behind it. Without `offset 0` the
-- planner may put a Memoize over the look for a delivery, with subscription and lane as its key: it then answers for every message of
-- a lane what it found for the first (seen in PostgreSQL 18), and messages that nobody has settled are deleted.
--
-- transport_sweep, which looks at all topics at once, is what processes of the version before call.
create function :schema.transport_sweep_topic(topic int, after bigint, retention_ms float8, most int)
returns table (swept int, place bigint)
language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
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
    where t.id = topic and pg_try_advisory_xact_lock_shared(hashtextextended(:'schema' || '.transport.' || t.name, 0));
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
