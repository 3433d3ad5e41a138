-- Keeps the plans of the outbox cheap on every PostgreSQL: no row costs more because others wait, and nothing is compiled.

-- The slow path of a relay, and the hand of operators (who pass null tokens): one call, one round trip.
--
-- It locks the lanes first and looks after: each statement below has a snapshot younger than the lock, so that nobody is
-- held behind a head that is gone already. Returns the lanes that were still the caller's; nothing was done in the others.
-- Its plans are kept by each session, perhaps since the tables were empty: so every row is found by its ctid through an index,
-- `offset 0` keeps each look for a head what it is, a look, and not a join with all heads there are, and `+ 0` keeps the
-- planner from walking an index by state and comparing what it meets with every ctid. A row is looked for in one state after the
-- other: asked for any of several, PostgreSQL before 17 may leave the state out and walk the whole lane for each row.
create or replace function :schema.outbox_settle(
  relay text, lanes smallint[], tokens uuid[],
  ok_lane smallint[], ok_seq bigint[], ok_event uuid[], ok_message text[],
  bad_lane smallint[], bad_seq bigint[], bad_event uuid[], bad_park boolean[], bad_void boolean[], bad_charge int[], bad_delay_ms bigint[], bad_error text[],
  hold_lane smallint[], hold_depth int[],
  keep_receipts boolean, keep_events boolean
) returns smallint[] language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off set lock_timeout = '5s' as $$
declare
  mine       smallint[];
  freed_lane smallint[];
  freed_key  bigint[];
  forgotten  uuid[];
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'outbox_settle needs READ COMMITTED: it must see what committed while it waited for its lanes.' using errcode = '25001';
  end if;

  -- 1. Serialise.
  select coalesce(array_agg(l.lane), '{}') into mine from (
    select l.lane from :schema.outbox_lane l join unnest(lanes, tokens) as t (lane, token) on t.lane = l.lane
     where t.token is null or t.token = l.lock_token
     order by l.lane for update of l) l;

  -- 2. What the broker confirmed, or an operator dropped, goes, whatever its state.
  with place as materialized (
    select x.ctid as row, k.message
      from unnest(ok_lane, ok_seq, ok_event, ok_message) as k (lane, seq, event_id, message)
     cross join unnest('{0,1,2,3}'::smallint[]) as s (state) cross join lateral (
        select x.ctid from :schema.outbox_dispatch x
         where x.lane = k.lane and x.state = s.state and x.seq = k.seq and x.event_id = k.event_id offset 0) x
     where k.lane = any (mine)),
  gone as (
    delete from :schema.outbox_dispatch d using place p where d.ctid = p.row
    returning d.lane, d.key, d.state, d.event_id, d.publish_attempts, p.message),
  receipt as (
    insert into :schema.outbox_receipt (event_id, published_at, attempts, relay, message_id)
    select g.event_id, clock_timestamp(), g.publish_attempts + 1, outbox_settle.relay, g.message
      from gone g where keep_receipts and g.message is not null)
  select array_agg(f.lane), array_agg(f.key), (select array_agg(g.event_id) from gone g where not keep_events)
    into freed_lane, freed_key, forgotten
    from (select distinct g.lane, g.key from gone g where g.state <> 0) f;
  if forgotten is not null then
    delete from :schema.outbox o where o.id = any (forgotten);
  end if;

  if cardinality(bad_lane) > 0 then
    -- 3. A head that stands behind the one that failed now is not the first of its key any more.
    update :schema.outbox_dispatch d set state = 2 where d.state + 0 in (1, 3) and d.ctid = any (array(
      select h.ctid from unnest(bad_lane, bad_seq, bad_event) as k (lane, seq, event_id)
       cross join unnest('{0,1,2}'::smallint[]) as s (state) cross join lateral (
        select f.lane, f.key, f.seq from :schema.outbox_dispatch f
         where f.lane = k.lane and f.state = s.state and f.seq = k.seq and f.event_id = k.event_id offset 0) f cross join lateral (
        select h.ctid from :schema.outbox_dispatch h
         where h.lane = f.lane and h.key = f.key and h.state in (1, 3) and h.seq > f.seq offset 0) h
       where k.lane = any (mine)));

    -- 4. The row that failed becomes the head that blocks its key.
    update :schema.outbox_dispatch d
       set state = case when k.park then 3 else 1 end,
           publish_attempts = d.publish_attempts + k.charge,
           void = d.void or k.void,
           -- Who stops a paused head may not have heard yet that an operator resumed it: then it waits a moment, not for long.
           next_retry_at = clock_timestamp() + interval '1 millisecond' *
             case when k.error = 'paused by an operator' and not exists (
                         select from :schema.outbox o join :schema.outbox_pause p on p.aggregate_type = o.aggregate_type and p.aggregate_id in ('', o.aggregate_id)
                          where o.id = d.event_id)
                  then 100 else k.delay_ms end,
           parked_at = case when k.park then clock_timestamp() end,
           last_error = k.error
      from (
        select k.*, f.ctid as place from unnest(bad_lane, bad_seq, bad_event, bad_park, bad_void, bad_charge, bad_delay_ms, bad_error)
               as k (lane, seq, event_id, park, void, charge, delay_ms, error)
         cross join unnest('{0,1,2}'::smallint[]) as s (state) cross join lateral (
          select f.ctid, f.key from :schema.outbox_dispatch f
           where f.lane = k.lane and f.state = s.state and f.seq = k.seq and f.event_id = k.event_id offset 0) f
         where k.lane = any (mine)
           and not exists (select from :schema.outbox_dispatch b where b.lane = k.lane and b.key = f.key and b.state in (1, 3) and b.seq < k.seq offset 0)
         offset 0) k
     where d.ctid = k.place;
  end if;

  -- 5. A key that lost its head gets the next: its lowest held row, due now or when its own delay ends.
  update :schema.outbox_dispatch d
     set state = 1, next_retry_at = greatest(d.next_retry_at, clock_timestamp()),
         last_error = case when d.next_retry_at > clock_timestamp() then 'waits for its date' else d.last_error end
   where d.state + 0 = 2 and d.ctid = any (array(
    select h.ctid from unnest(freed_lane, freed_key) as f (lane, key) cross join lateral (
      select h.ctid from :schema.outbox_dispatch h where h.lane = f.lane and h.key = f.key and h.state = 2 order by h.seq limit 1) h
     where not exists (select from :schema.outbox_dispatch b where b.lane = f.lane and b.key = f.key and b.state in (1, 3) offset 0)));

  -- 6. Rows behind a head leave the due range: those among the first hold_depth of the lane.
  update :schema.outbox_dispatch d set state = 2 where d.state + 0 = 0 and d.ctid = any (array(
    select x.ctid from unnest(hold_lane, hold_depth) as k (lane, depth) cross join lateral (
      select x.ctid, x.lane, x.key, x.seq from :schema.outbox_dispatch x where x.lane = k.lane and x.state = 0 order by x.seq limit k.depth) x
     where k.lane = any (mine)
       and exists (select from :schema.outbox_dispatch b where b.lane = x.lane and b.key = x.key and b.state in (1, 3) and b.seq < x.seq offset 0)));
  return mine;
end $$;

-- Before PostgreSQL 18 a kind of plan that is turned off and yet the only one has a cost of ten billions, and what is so dear is
-- compiled before it runs: each call took as long as hundreds of them.
alter function :schema.add_events(uuid[], text[], text[], text[], text[], bytea[], bigint[], int[], text[], jsonb[], timestamptz[], text[], uuid[], int[], jsonb[]) set jit = off;
alter function :schema.outbox_read(smallint[], uuid[], int[], int, int) set jit = off;
alter function :schema.outbox_expire(text, timestamptz, xid8, int, uuid, bigint) set jit = off;
