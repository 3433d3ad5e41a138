-- The outbox: events wait here from the commit of their state change until the broker has confirmed them.
--
-- An event is a wide row that is never updated (readable by change data capture, replayable, no bloat). Beside it stands a
-- narrow dispatch row that lives only until the broker has confirmed. Relays lease lanes, not rows: an aggregate hashes to
-- one lane, so a lane's owner publishes it alone and in order.

-- Events: one wide row each, written once and never updated.
create table :schema.outbox (
  id             uuid        primary key,
  topic          text        not null,
  aggregate_type text        not null,
  aggregate_id   text        not null,
  version        bigint      not null check (version > 0),
  event_type     text        not null,
  schema_version int         not null check (schema_version > 0),
  content_type   text        not null,
  payload        bytea       not null,
  headers        jsonb       not null default '{}',
  occurred_at    timestamptz not null default clock_timestamp(),
  unique (aggregate_type, aggregate_id, version)
);
create index outbox_occurred_at_idx on :schema.outbox using brin (occurred_at) with (pages_per_range = 32, autosummarize = on);

-- Events that are recorded once for each source: facts, and what consumers emitted, by the event that caused it. Outlives the event
-- itself: a replay must not emit twice. `content_hash` tells another fact under the same key from a repeat; only facts have one.
create table :schema.outbox_source (
  source          text        not null,
  source_event_id uuid        not null,
  ordinal         int         not null,
  event_id        uuid        not null,
  emitted_at      timestamptz not null default clock_timestamp(),
  content_hash    bytea,
  primary key (source_event_id, source, ordinal)
);
create index outbox_source_emitted_at_idx on :schema.outbox_source using brin (emitted_at) with (pages_per_range = 32, autosummarize = on);

-- One row per event that the broker has not confirmed yet.
--   0 due     in line, in order of seq
--   1 retry   head of its key: failed, delayed or next in a chain; due at next_retry_at; blocks what is behind it
--   2 held    behind a head, out of the due range
--   3 parked  head that gave up: waits for an operator, blocks what is behind it
-- `void` sends an empty marker instead of the event: how a parked head is skipped without leaving a gap in the versions.
create table :schema.outbox_dispatch (
  seq              bigint generated always as identity (cache 1),
  key              bigint      not null,
  event_id         uuid        not null,
  lane             smallint    not null,
  state            smallint    not null default 0 check (state between 0 and 3),
  publish_attempts int         not null default 0,
  void             boolean     not null default false,
  -- Not every date is a number of milliseconds away: 'infinity' is not, and a relay that meets it would stop. The last second of the
  -- year 9999 is.
  next_retry_at    timestamptz check (isfinite(next_retry_at) and next_retry_at <= to_timestamp(253402300799)),
  parked_at        timestamptz,
  last_error       text,
  primary key (lane, state, seq)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
create unique index outbox_dispatch_head_idx on :schema.outbox_dispatch (lane, key) include (seq) where state in (1, 3);
create index outbox_dispatch_retry_idx on :schema.outbox_dispatch (lane, next_retry_at) where state = 1;
create index outbox_dispatch_held_idx on :schema.outbox_dispatch (lane, key, seq) where state = 2;

-- One row for each lane: which relay works it, and until when. The claim is a lock on these few rows.
create table :schema.outbox_lane (
  lane            smallint primary key,
  lock_token      uuid,
  locked_by       text,
  locked_at       timestamptz,
  lock_expires_at timestamptz,
  batch_from      bigint,
  batch_to        bigint
) with (fillfactor = 50);
insert into :schema.outbox_lane (lane) select generate_series(0, 63);

-- Heartbeats, from which every relay computes its fair share of the lanes.
create table :schema.outbox_relay (
  worker  text        primary key,
  seen_at timestamptz not null
) with (fillfactor = 50);

-- One row per confirmed publish, written with the delete of the dispatch row.
create table :schema.outbox_receipt (
  event_id     uuid        not null,
  published_at timestamptz not null,
  attempts     int         not null,
  relay        text        not null,
  message_id   text        not null
);
create index outbox_receipt_event_id_idx on :schema.outbox_receipt (event_id);
create index outbox_receipt_published_at_idx on :schema.outbox_receipt using brin (published_at) with (pages_per_range = 32, autosummarize = on);

-- A receipt has no primary key, because an event that is replayed gets another; its whole row says which one it is. Without a replica
-- identity nothing can be deleted under a publication for all tables (SQLSTATE 55000), as connectors, warehouse loaders and blue/green
-- deployments make one. It writes no more into the log unless wal_level is logical.
alter table :schema.outbox_receipt replica identity full;

-- Streams (aggregate_id '') and single aggregates whose events an operator holds back.
create table :schema.outbox_pause (
  aggregate_type text        not null,
  aggregate_id   text        not null default '',
  reason         text        not null,
  paused_by      text        not null,
  paused_at      timestamptz not null default clock_timestamp(),
  primary key (aggregate_type, aggregate_id)
);

-- Settings as functions: the planner folds them into the statements that use them, and replacing one is seen by every
-- statement that starts afterwards, whatever the isolation of its transaction.
create function :schema.outbox_lanes() returns int language sql immutable parallel safe as 'select 64';
create function :schema.outbox_dispatching() returns boolean language sql immutable parallel safe as 'select true';

create function :schema.outbox_refuse_update() returns trigger language plpgsql as $$
begin
  raise exception 'The outbox is append-only: an event that was recorded is never changed. Add a new event instead.' using errcode = '0A000';
end $$;
create trigger outbox_append_only before update on :schema.outbox for each statement execute function :schema.outbox_refuse_update();

create function :schema.outbox_wrong_version(aggregate text, given bigint, expected bigint) returns bigint language plpgsql as $$
begin
  raise exception 'Version % of % is out of turn: the next one is %.', given, aggregate, expected using errcode = 'WB001';
end $$;

-- A connector publishes an event as soon as it is committed, so a date that lies ahead is refused.
create function :schema.outbox_refuse_date() returns void language plpgsql as $$
begin
  raise exception 'A connector publishes this outbox, and it waits for no date: the event would go out at once. Add it when its time has come.'
    using errcode = 'WB004';
end $$;

-- Brokers take an empty id for a key without order, and where streams are paused it stands for all of one; an id above 1,024 bytes is
-- refused as an attribute, long after its transaction committed.
create function :schema.outbox_refuse_id(aggregate_type text, aggregate_id text) returns void language plpgsql as $$
begin
  raise exception 'An aggregate id must have 1 to 1024 bytes as UTF-8; this one of % has %. Use the hash of a longer one.',
    aggregate_type, octet_length(convert_to(aggregate_id, 'UTF8')) using errcode = '22023';
end $$;

-- A dispatch row without an event would be parked by its relay, and an event without one would never be published.
create function :schema.outbox_refuse_dropped(event uuid, aggregate_type text, aggregate_id text) returns boolean language plpgsql as $$
begin
  raise exception 'A trigger on the outbox or on outbox_dispatch dropped event % of % %, or changed its id.', event, aggregate_type, aggregate_id
    using errcode = 'WB006';
end $$;

-- The way into the outbox for one event, from this library, from plain SQL and from other languages:
--
--   select waybill.add_event('order.events', 'order', '17', 'OrderPlaced', convert_to('{"total": 3}', 'UTF8'));
--
-- Takes the next version of the aggregate under its row lock, or checks that the given one is next; writes the event and its
-- dispatch row. Three small statements, whose plans are kept. The id is a UUIDv7 unless one is given: ids that carry their time
-- are what retention finds old events by.
create function :schema.add_event(
  topic text, aggregate_type text, aggregate_id text, event_type text, payload bytea,
  id uuid default encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid())
    placing substring(int8send((extract(epoch from clock_timestamp()) * 1000)::bigint) from 3) from 1 for 6), 52, 1), 53, 1), 'hex')::uuid,
  given bigint default null, schema_version int default 1, content_type text default 'application/json',
  headers jsonb default '{}', not_before timestamptz default null, out version bigint
) language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  key  bigint;
  kept uuid;
begin
  if octet_length(convert_to(add_event.aggregate_id, 'UTF8')) not between 1 and 1024 then
    perform :schema.outbox_refuse_id(add_event.aggregate_type, add_event.aggregate_id);
  end if;

  insert into :schema.aggregate_version as a (aggregate_type, aggregate_id, version)
  values (add_event.aggregate_type, add_event.aggregate_id, coalesce(given, 1))
  on conflict (aggregate_type, aggregate_id) do update set version = case a.version when 0 then excluded.version else a.version + 1 end
  returning a.version into add_event.version;
  if given <> add_event.version then
    perform :schema.outbox_wrong_version(add_event.aggregate_type || ' ' || add_event.aggregate_id, given, add_event.version);
  end if;

  insert into :schema.outbox as o (id, topic, aggregate_type, aggregate_id, version, event_type, schema_version, content_type, payload, headers)
  values (add_event.id, add_event.topic, add_event.aggregate_type, add_event.aggregate_id, add_event.version, add_event.event_type,
          add_event.schema_version, add_event.content_type, add_event.payload, add_event.headers)
  returning o.id into kept;
  if kept is distinct from add_event.id then
    perform :schema.outbox_refuse_dropped(add_event.id, add_event.aggregate_type, add_event.aggregate_id);
  end if;

  -- Asked after the event is written: a change of these settings locks one of the tables above, so from here on they hold.
  if :schema.outbox_dispatching() then
    key := ('x' || encode(substring(sha256(convert_to(add_event.aggregate_type || chr(31) || add_event.aggregate_id, 'UTF8')) from 1 for 8), 'hex'))::bit(64)::bigint;
    insert into :schema.outbox_dispatch as d (lane, key, event_id, next_retry_at)
    values ((key & (:schema.outbox_lanes() - 1))::smallint, key, add_event.id, not_before)
    returning d.event_id into kept;
    if kept is distinct from add_event.id then
      perform :schema.outbox_refuse_dropped(add_event.id, add_event.aggregate_type, add_event.aggregate_id);
    end if;
  elsif not_before > clock_timestamp() then
    perform :schema.outbox_refuse_date();
  end if;
end $$;

-- The same for many events, in one statement. Aggregates are locked in a fixed order. An event that the same source emitted
-- before is not written again (added = false). `columns` are values for columns that the user added to the outbox. The payload stands
-- beside those without a backslash in a literal, which a session with standard_conforming_strings = off would read as an escape.
--
-- The planner cannot know how many events an array holds: one plan, made once and without nested loops, serves ten and ten thousand.
-- Here and below, `jit = off` goes with each kind of plan that is turned off: before PostgreSQL 18 such a plan, where it is the only one,
-- has a cost of ten billions, and a plan of that cost is compiled before it runs, which takes as long as hundreds of calls.
create function :schema.add_events(
  ids              uuid[],
  topics           text[],
  aggregate_types  text[],
  aggregate_ids    text[],
  event_types      text[],
  payloads         bytea[],
  versions         bigint[]      default null,
  schema_versions  int[]         default null,
  content_types    text[]        default null,
  headers          jsonb[]       default null,
  not_before       timestamptz[] default null,
  sources          text[]        default null,
  source_event_ids uuid[]        default null,
  ordinals         int[]         default null,
  columns          jsonb[]       default null
) returns table (id uuid, version bigint, added boolean)
language plpgsql security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_nestloop = off set jit = off as $$
#variable_conflict use_column
declare
  repeated uuid[] := '{}';
begin
  perform :schema.outbox_refuse_id(e.aggregate_type, e.aggregate_id)
     from unnest(aggregate_types, aggregate_ids) as e (aggregate_type, aggregate_id)
    where octet_length(convert_to(e.aggregate_id, 'UTF8')) not between 1 and 1024;

  if source_event_ids is not null then
    with fresh as (
      insert into :schema.outbox_source (source, source_event_id, ordinal, event_id)
      select s.source, s.source_event_id, s.ordinal, s.id
        from unnest(sources, source_event_ids, ordinals, ids) as s (source, source_event_id, ordinal, id)
       where s.source_event_id is not null
       order by 2, 1, 3
      on conflict do nothing
      returning event_id)
    select coalesce(array_agg(s.id), '{}') into repeated
      from unnest(source_event_ids, ids) as s (source_event_id, id)
     where s.source_event_id is not null and s.id not in (select event_id from fresh);
  end if;

  if versions is not null then
    -- An aggregate that we have not seen may begin at any version.
    insert into :schema.aggregate_version as a (aggregate_type, aggregate_id, version)
    select e.aggregate_type, e.aggregate_id, min(e.version) - 1
      from unnest(aggregate_types, aggregate_ids, versions) as e (aggregate_type, aggregate_id, version)
     group by 1, 2 having min(e.version) > 1
     order by 1, 2
    on conflict (aggregate_type, aggregate_id) do update set version = excluded.version where a.version = 0;
  end if;

  return query
  with given as materialized (
    select e.*, row_number() over w as nth, count(*) over (partition by e.aggregate_type, e.aggregate_id) as n
      from unnest(ids, topics, aggregate_types, aggregate_ids, event_types, payloads, versions, schema_versions, content_types, headers, not_before, columns)
           with ordinality as e (id, topic, aggregate_type, aggregate_id, event_type, payload, version, schema_version, content_type, headers, not_before, columns, place)
     where e.id <> all (repeated)
    window w as (partition by e.aggregate_type, e.aggregate_id order by e.place)),
  taken as (
    insert into :schema.aggregate_version as a (aggregate_type, aggregate_id, version)
    select g.aggregate_type, g.aggregate_id, g.n from given g where g.nth = 1 order by 1, 2
    on conflict (aggregate_type, aggregate_id) do update set version = a.version + excluded.version
    returning a.aggregate_type, a.aggregate_id, a.version),
  numbered as materialized (
    select g.*, t.version - g.n + g.nth as next,
           ('x' || encode(substring(sha256(convert_to(g.aggregate_type || chr(31) || g.aggregate_id, 'UTF8')) from 1 for 8), 'hex'))::bit(64)::bigint as key
      from given g
      join taken t on t.aggregate_type = g.aggregate_type and t.aggregate_id = g.aggregate_id),
  plain as (
    insert into :schema.outbox (id, topic, aggregate_type, aggregate_id, version, event_type, schema_version, content_type, payload, headers)
    select n.id, n.topic, n.aggregate_type, n.aggregate_id,
           case when n.version is null or n.version = n.next then n.next
                else :schema.outbox_wrong_version(n.aggregate_type || ' ' || n.aggregate_id, n.version, n.next) end,
           n.event_type, coalesce(n.schema_version, 1), coalesce(n.content_type, 'application/json'), n.payload, coalesce(n.headers, '{}')
      from numbered n where n.columns is null
    returning id),
  widened as (
    insert into :schema.outbox
    select r.* from numbered n cross join lateral jsonb_populate_record(cast(null as :schema.outbox), n.columns || jsonb_build_object(
             'id', n.id, 'topic', n.topic, 'aggregate_type', n.aggregate_type, 'aggregate_id', n.aggregate_id,
             'version', case when n.version is null or n.version = n.next then n.next
                             else :schema.outbox_wrong_version(n.aggregate_type || ' ' || n.aggregate_id, n.version, n.next) end,
             'event_type', n.event_type, 'schema_version', coalesce(n.schema_version, 1), 'content_type', coalesce(n.content_type, 'application/json'),
             'payload', chr(92) || 'x' || encode(n.payload, 'hex'), 'headers', coalesce(n.headers, '{}'), 'occurred_at', clock_timestamp())) r
     where n.columns is not null
    returning id),
  dispatched as (
    insert into :schema.outbox_dispatch (lane, key, event_id, next_retry_at)
    select (n.key & (:schema.outbox_lanes() - 1))::smallint, n.key, n.id, n.not_before
      from numbered n where :schema.outbox_dispatching() order by n.key, n.next
    returning event_id)
  select n.id, n.next,
         case when w.id is null or (d.event_id is null and :schema.outbox_dispatching())
              then :schema.outbox_refuse_dropped(n.id, n.aggregate_type, n.aggregate_id) else true end
    from numbered n
    left join (table plain union all table widened) w on w.id = n.id
    left join dispatched d on d.event_id = n.id
  union all
  select r, null, false from unnest(repeated) r;

  if not_before is not null and not :schema.outbox_dispatching() and exists (
       select from unnest(ids, not_before) as d (id, moment) where d.moment > clock_timestamp() and d.id <> all (repeated)) then
    perform :schema.outbox_refuse_date();
  end if;
end $$;

-- Adds facts: events that are recorded once for each source, with the hash of their content. `conflict` says that the source was
-- recorded before with another hash; then, and for a repeat, nothing is written.
create function :schema.add_facts(
  ids              uuid[],
  topics           text[],
  aggregate_types  text[],
  aggregate_ids    text[],
  event_types      text[],
  payloads         bytea[],
  versions         bigint[],
  schema_versions  int[],
  content_types    text[],
  headers          jsonb[],
  sources          text[],
  source_event_ids uuid[],
  ordinals         int[],
  content_hashes   bytea[]
) returns table (id uuid, version bigint, added boolean, conflict boolean)
language plpgsql security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_nestloop = off set jit = off as $$
#variable_conflict use_column
declare
  fresh uuid[];
begin
  with inserted as (
    insert into :schema.outbox_source (source, source_event_id, ordinal, event_id, content_hash)
    select s.source, s.source_event_id, s.ordinal, s.id, s.content_hash
      from unnest(sources, source_event_ids, ordinals, ids, content_hashes) as s (source, source_event_id, ordinal, id, content_hash)
     order by 2, 1, 3
    on conflict do nothing
    returning event_id)
  select coalesce(array_agg(event_id), '{}') into fresh from inserted;

  return query
  select a.id, a.version, a.added, false
    from (select array_agg(f.id) as ids, array_agg(f.topic) as topics, array_agg(f.aggregate_type) as aggregate_types,
                 array_agg(f.aggregate_id) as aggregate_ids, array_agg(f.event_type) as event_types, array_agg(f.payload) as payloads,
                 array_agg(f.version) as versions, array_agg(f.schema_version) as schema_versions,
                 array_agg(f.content_type) as content_types, array_agg(f.headers) as headers
            from (select * from unnest(ids, topics, aggregate_types, aggregate_ids, event_types, payloads, versions, schema_versions, content_types, headers)
                    with ordinality as e (id, topic, aggregate_type, aggregate_id, event_type, payload, version, schema_version, content_type, headers, place)
                   where e.id = any (fresh) order by e.place) f
          having count(*) > 0) g
   cross join lateral :schema.add_events(g.ids, g.topics, g.aggregate_types, g.aggregate_ids, g.event_types, g.payloads, g.versions,
                                         g.schema_versions, g.content_types, g.headers) a;

  -- A younger snapshot: what another transaction recorded while we waited for it is seen.
  return query
  select r.id, null::bigint, false, coalesce(k.content_hash <> r.content_hash, false)
    from unnest(sources, source_event_ids, ordinals, ids, content_hashes) as r (source, source_event_id, ordinal, id, content_hash)
    left join :schema.outbox_source k
      on k.source_event_id = r.source_event_id and k.source = r.source and k.ordinal = r.ordinal
   where r.id <> all (fresh);
end $$;

-- What the owner of lanes may publish now: per lane a window of due rows with whether a head blocks them, the heads whose
-- retry is due, and the chain behind heads that have not failed yet, which share `chain` rows evenly. One statement, so that
-- no row is seen without the head that blocks it. The plan is made once and kept; the settings leave it no choice but the
-- indexes, so that one made while the outbox was empty serves a million rows as well.
create function :schema.outbox_read(lanes smallint[], tokens uuid[], sizes int[], heads int, chain int)
returns table (
  lane smallint, seq text, key text, event_id text, state smallint, publish_attempts int, void boolean, blocked boolean, wait_ms float8,
  topic text, aggregate_type text, aggregate_id text, version text, event_type text, schema_version int, content_type text,
  payload bytea, headers text, occurred_at text
) language plpgsql set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
  set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
#variable_conflict use_column
begin
  return query
  with mine as materialized (
    select l.lane, t.size
      from unnest(lanes, tokens, sizes) as t (lane, token, size)
      join :schema.outbox_lane l on l.lane = t.lane and l.lock_token = t.token
  ), due as materialized (
    select d.*, exists (
             select from :schema.outbox_dispatch b
              where b.lane = d.lane and b.key = d.key and b.state in (1, 3) and b.seq < d.seq) as blocked
      from mine cross join lateral (
        select d.* from :schema.outbox_dispatch d where d.lane = mine.lane and d.state = 0 order by d.seq limit mine.size) d
  ), head as materialized (
    select h.*, false as blocked
      from mine cross join lateral (
        select h.* from :schema.outbox_dispatch h
         where h.lane = mine.lane and h.state = 1 and h.next_retry_at <= (select clock_timestamp())
         order by h.next_retry_at limit outbox_read.heads) h
  ), chained as materialized (
    select c.*, false as blocked
      from (select h.*, count(*) over () as heads from head h where h.publish_attempts = 0) h cross join lateral (
        select c.* from :schema.outbox_dispatch c
         where c.lane = h.lane and c.key = h.key and c.state = 2 order by c.seq limit ceil(outbox_read.chain / h.heads::float8)) c
  )
  select x.lane, x.seq::text, x.key::text, x.event_id::text, x.state, x.publish_attempts, x.void, x.blocked,
         case when x.next_retry_at is null or x.state = 1 then 0
              else greatest(0, ceil(extract(epoch from x.next_retry_at - clock_timestamp()) * 1000))::float8 end,
         o.topic, o.aggregate_type, o.aggregate_id, o.version::text, o.event_type, o.schema_version, o.content_type, o.payload, o.headers::text,
         to_char(o.occurred_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
    from (table due union all table head union all table chained) x
    left join :schema.outbox o on o.id = x.event_id
   order by x.lane, x.seq;
end $$;

-- The slow path of a relay, and the hand of operators (who pass null tokens): one call, one round trip.
--
-- It locks the lanes first and looks after: each statement below has a snapshot younger than the lock, so that no row is
-- held behind a head that is gone already. Returns the lanes that were still the caller's; nothing was done in the others.
-- Its plans are kept by each session, perhaps since the tables were empty: so every row is found by its ctid through an index,
-- `offset 0` keeps each look for a head what it is, a look, and not a join with all heads there are, and `+ 0` keeps the
-- planner from walking an index by state and comparing what it meets with every ctid. A row is looked for in one state after the
-- other: asked for any of several, PostgreSQL before 17 may leave the state out and walk the whole lane for each row.
create function :schema.outbox_settle(
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
    -- 3. A head that stands behind the one that failed now is no longer the first of its key.
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
           -- A relay that stops a paused head may not have heard yet that an operator resumed it: then the head waits a moment only.
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

-- Removes rows whose time is over: 'events' (never one that waits for the broker), 'receipts' or 'sources'.
--
-- Ids carry their time, so what is old stands first in the index on them: a call takes the next `batch` rows behind `after`.
-- Ids made from a business key do not; for them a call walks 512 blocks of the table from `block` on. Returns how many rows
-- were looked at and removed, the last id, and whether this was the end of the index or of the table.
--
-- Any number of callers at once. A row is locked first, and whether its event waits is looked up after that, with a younger
-- snapshot: a replay that came before is seen, one that comes later waits for the lock and finds the event gone. While a
-- connector reads the outbox, only rows of transactions that ended before `ended_before` go: those that its slot has confirmed.
-- Only the batch is kept in memory, and the rows that wait, which may be millions, are read past it.
create function :schema.outbox_expire(what text, older_than timestamptz, ended_before xid8, batch int, after uuid, block bigint)
returns table (seen int, removed int, last uuid, done boolean)
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_nestloop = off set jit = off as $$
declare
  is_event boolean := what not in ('receipts', 'sources');
  relation regclass := ':schema.outbox'::regclass;
  id       text := 'id';
  moment   text := 'occurred_at';
  next_xid bigint := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
  bound    uuid := (lpad(to_hex((extract(epoch from older_than) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid;
  picked   text;
  rows     tid[];
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'outbox_expire needs READ COMMITTED: it must see what committed while it locked.' using errcode = '25001';
  end if;
  if what = 'receipts' then
    relation := ':schema.outbox_receipt'::regclass; id := 'event_id'; moment := 'published_at';
  elsif what = 'sources' then
    relation := ':schema.outbox_source'::regclass; id := 'source_event_id'; moment := 'emitted_at';
  elsif not :schema.outbox_dispatching() and ended_before is null then
    raise exception 'The outbox is read by a connector: events can be removed only behind its replication slot. Name it: option slot of the retention.'
      using errcode = 'WB003';
  end if;

  picked := case when block is null
    then format('select ctid, %1$I as id from %2$s where %1$I > $1 and %1$I < $2 and %3$I < $3 order by %1$I limit $4', id, relation, moment)
    else format('select ctid, %1$I as id from %2$s where ctid >= %4$L::tid and ctid < %5$L::tid and %3$I < $3',
                id, relation, moment, format('(%s,0)', block), format('(%s,0)', block + 512)) end;
  execute format(
    'with picked as materialized (%s)
     select count(*)::int, (array_agg(p.id order by p.id desc))[1], array_agg(p.ctid) filter (where w.event_id is null)
       from picked p left join (select distinct d.event_id from :schema.outbox_dispatch d where $5 and d.event_id in (select id from picked)) w on w.event_id = p.id', picked)
    into seen, last, rows using after, bound, older_than, batch, is_event;
  done := case when block is null then seen < batch
               else (block + 512) * current_setting('block_size')::bigint >= pg_relation_size(relation) end;

  -- A place in the table may hold another row by now, so its age is asked again.
  execute format(
    'with locked as (select ctid from %s where ctid = any ($1) and %I + interval ''0'' < $2 and ($3 is null or
         (select x.id - case when x.id >= $4 then 4294967296 else 0 end < $3::text::bigint from (select ($4 >> 32 << 32) + xmin::text::bigint as id) x))
       for update skip locked)
     select array_agg(ctid) from locked', relation, moment)
    into rows using rows, older_than, case when is_event then ended_before end, next_xid;
  execute format(
    'delete from %s r where r.ctid = any ($1)%s', relation,
    case when is_event then ' and r.id not in (select d.event_id from :schema.outbox_dispatch d
       where d.event_id in (select e.id from :schema.outbox e where e.ctid = any ($1)))' else '' end)
    using rows;
  get diagnostics removed = row_count;
  return next;
end $$;

-- Moves every waiting row to its new lane, in one transaction that stops writers and relays for its length. Writers are
-- stopped at the table that only they write: a relay that holds a lane and waits for another table would wait for us for ever.
create function :schema.outbox_change_lanes(lanes int) returns void language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  if lanes not between 1 and 4096 or lanes & (lanes - 1) <> 0 then
    raise exception 'The number of lanes must be a power of two from 1 to 4096, not %.', lanes using errcode = '22023';
  end if;
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'outbox_change_lanes needs READ COMMITTED: it must see what committed while it waited for the writers.' using errcode = '25001';
  end if;
  lock table :schema.aggregate_version in share row exclusive mode;
  perform from :schema.outbox_lane order by lane for update;
  delete from :schema.outbox_lane where lane >= lanes;
  update :schema.outbox_lane set lock_token = null, lock_expires_at = null, batch_from = null, batch_to = null;
  insert into :schema.outbox_lane (lane) select generate_series(0, lanes - 1) on conflict do nothing;
  -- Two heads of one key stay in one lane, so no row can collide on its way.
  update :schema.outbox_dispatch d set lane = (d.key & (lanes - 1))::smallint where d.lane <> (d.key & (lanes - 1))::smallint;
  execute format('create or replace function %I.outbox_lanes() returns int language sql immutable parallel safe as ''select %s''', :'schema', lanes);
end $$;

-- Change data capture on or off: off means that a connector reads the outbox and no dispatch rows are written.
create function :schema.outbox_set_dispatching(dispatching boolean) returns void language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  lock table :schema.outbox in share row exclusive mode;
  execute format('create or replace function %I.outbox_dispatching() returns boolean language sql immutable parallel safe as ''select %s''', :'schema', case when dispatching then 'true' else 'false' end);
end $$;

-- Every event that is still known, with its state, in the words of an operator.
create view :schema.outbox_status as
select o.id, o.topic, o.aggregate_type, o.aggregate_id, o.version, o.event_type, o.occurred_at,
       case when d.seq is null then 'PUBLISHED'
            when d.state = 3 then 'PARKED'
            when d.state = 2 then 'HELD'
            when l.lock_token is not null and l.lock_expires_at > clock_timestamp() and d.seq between l.batch_from and l.batch_to then 'INFLIGHT'
            when d.state = 1 then 'RELEASED'
            else 'PENDING' end as state,
       case when d.seq is not null then l.lock_token end as lock_token,
       case when d.seq is not null then l.locked_at end as locked_at,
       case when d.seq is null then r.published_at end as published_at,
       coalesce(d.publish_attempts, r.attempts, 0) as publish_attempts,
       d.next_retry_at, d.parked_at, d.last_error, r.message_id, d.lane, d.seq
  from :schema.outbox o
  left join :schema.outbox_dispatch d
    on d.event_id = o.id
   and d.lane = (('x' || encode(substring(sha256(convert_to(o.aggregate_type || chr(31) || o.aggregate_id, 'UTF8')) from 1 for 8), 'hex'))::bit(64)::bigint & (:schema.outbox_lanes() - 1))::smallint
  left join :schema.outbox_lane l on l.lane = d.lane
  left join lateral (select r.published_at, r.attempts, r.message_id from :schema.outbox_receipt r where r.event_id = o.id order by r.published_at desc limit 1) r on true;
