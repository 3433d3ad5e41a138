-- Waybill 0.1.0: the schema "waybill" of the service "video".
-- By hand: psql -v ON_ERROR_STOP=1 -f <this file>

begin;
set local lock_timeout = '5s';

create schema if not exists "waybill";

-- 0001_create_foundation
-- What every part of Waybill stands on: which migrations ran, whose schema this is, what operators did, and how far the clock was
-- followed.

-- One row for each migration that was applied. `breaking` stops processes of older packages that do not know it.
create table "waybill".migration (
  number     integer     primary key,
  name       text        not null,
  checksum   text        not null,
  breaking   boolean     not null,
  applied_at timestamptz not null default clock_timestamp(),
  applied_by text        not null
);

-- One row: the service this schema belongs to, and the database it was stamped on. A copy of the database carries the
-- row along, but not the identity, and so its relays refuse to publish what the original publishes.
create table "waybill".deployment (
  only_row      boolean     primary key default true check (only_row),
  service       text        not null,
  deployment_id text        not null,
  stamped_on    jsonb       not null,
  created_at    timestamptz not null default clock_timestamp(),
  adopted_at    timestamptz
);

-- Long work that an operator started: it saves its cursor as it goes, and goes on from there after a crash.
create table "waybill".operation (
  id          uuid        primary key,
  kind        text        not null,
  arguments   jsonb       not null default '{}',
  state       text        not null default 'running' check (state in ('running', 'finished', 'failed', 'cancelled')),
  progress    jsonb       not null default '{}',
  cursor      jsonb,
  started_at  timestamptz not null default clock_timestamp(),
  updated_at  timestamptz not null default clock_timestamp(),
  finished_at timestamptz,
  error       text
);
create index operation_started_idx on "waybill".operation (started_at);

-- Who did what, when. Rows are only ever added.
create table "waybill".audit_log (
  id            bigint      generated always as identity primary key,
  at            timestamptz not null default clock_timestamp(),
  actor         text        not null,
  database_user text        not null default session_user,
  action        text        not null,
  details       jsonb       not null default '{}'
);
create index audit_log_at_idx on "waybill".audit_log (at);

-- How far clean-ups have followed the database's clock, in one row. A step of the clock would make everything old at once: what the
-- clock gains while no clean-up looks is written down, and counts for no row that was there before.
--   seen_at  what it said when one of them looked last
--   leaps    what it went over since without being followed, newest first: [{"from": ms, "to": ms}]
create table "waybill".retention_clock (
  one     boolean     primary key default true check (one),
  seen_at timestamptz not null,
  leaps   jsonb       not null default '[]'
) with (fillfactor = 50);

-- What tells this database from its copies: the cluster (another after a restore elsewhere, the same after a
-- failover), the database within it, and the table (another after a restore into the same database). `system` is null
-- where the provider does not let us ask; then it is not compared.
create function "waybill".database_identity() returns jsonb
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  system text;
begin
  begin
    select system_identifier::text into system from pg_control_system();
  exception when insufficient_privilege or undefined_function or feature_not_supported then
    system := null;
  end;
  return jsonb_build_object(
    'system', system,
    'database', (select oid::text from pg_database where datname = current_database()),
    'table', (select c.oid::text
                from pg_class c join pg_namespace n on n.oid = c.relnamespace
               where n.nspname = 'waybill' and c.relname = 'deployment'));
end
$$;

-- The audit log is closed to the programs that write it. Every row has the session's own user and time, whatever its writer gives; no
-- row is changed or removed. The triggers hold for the owner role and for replication roles alike. A superuser, and an owner who alters
-- the table, can still go past them: the doctor reports triggers that are missing or off.
create function "waybill".audit_stamp() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  new.at := clock_timestamp();
  new.database_user := session_user;
  return new;
end $$;

create function "waybill".audit_refuse() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  raise exception 'The audit log of the schema % keeps what it has: its rows cannot be changed or removed.', tg_table_schema
    using errcode = '42501', hint = 'Add a row that corrects it, or have an administrator archive the table.';
end $$;

create trigger audit_log_stamp before insert on "waybill".audit_log for each row execute function "waybill".audit_stamp();
create trigger audit_log_keep before update or delete or truncate on "waybill".audit_log for each statement execute function "waybill".audit_refuse();
alter table "waybill".audit_log enable always trigger audit_log_stamp;
alter table "waybill".audit_log enable always trigger audit_log_keep;

-- Adds a row to the audit log, with the session's user beside the actor. The only way in for roles that are not the owner.
create function "waybill".record_audit(actor text, action text, details jsonb) returns bigint
language sql security definer set search_path = pg_catalog, pg_temp as $$
  insert into "waybill".audit_log (actor, action, details) values (record_audit.actor, record_audit.action, record_audit.details) returning id
$$;

-- Whether a transaction id, as a row has it, is of a transaction that has not ended. Rows have the lower half of an id, which is near
-- the present one.
create function "waybill".xid_in_progress(half xid) returns boolean
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

insert into "waybill"."migration" (number, name, checksum, breaking, applied_by)
values (1, '0001_create_foundation', 'a6c59cde7de43827b846cdd563d39bbf7ca4020799d357a9d3d3562e1ac385bf', false, '0.1.0');

-- 0002_create_aggregates
-- The lock that makes the order of an aggregate's versions the order of its commits, and the guard that finds writers without it.

-- The last version of every aggregate. Its row lock makes version order = commit order. Version 0: locked by a writer before
-- its first event, so it may still begin at any version.
create table "waybill".aggregate_version (
  aggregate_type text   not null,
  aggregate_id   text   not null,
  version        bigint not null check (version >= 0),
  primary key (aggregate_type, aggregate_id)
) with (fillfactor = 80);

-- One row for each guarded table and writer. What is counted are writes at least: two at the same moment count as one.
create table "waybill".unlocked_write (
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
create function "waybill".lock_aggregates(types text[], ids text[])
returns table (aggregate_type text, aggregate_id text, version bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  wanted record;
  writes boolean := current_setting('transaction_isolation') <> 'read committed';
begin
  for wanted in select distinct w.type, w.id from unnest(types, ids) as w (type, id) order by 1, 2 loop
    select a.version into version from "waybill".aggregate_version a
     where a.aggregate_type = wanted.type and a.aggregate_id = wanted.id for update;
    if not found then
      insert into "waybill".aggregate_version (aggregate_type, aggregate_id, version)
      values (wanted.type, wanted.id, 0) on conflict do nothing;
      select a.version into version from "waybill".aggregate_version a
       where a.aggregate_type = wanted.type and a.aggregate_id = wanted.id for update;
    elsif writes then
      update "waybill".aggregate_version a set version = a.version
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
create function "waybill".holds_aggregate(aggregate_type text, aggregate_id text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  writer xid;
  locker xid;
begin
  select a.xmin, a.xmax into writer, locker from "waybill".aggregate_version a
   where a.aggregate_type = holds_aggregate.aggregate_type and a.aggregate_id = holds_aggregate.aggregate_id;
  if not found then
    return false;
  end if;
  if "waybill".xid_in_progress(writer) then
    return true;
  end if;
  if not "waybill".xid_in_progress(locker) then
    return false;
  end if;
  perform from "waybill".aggregate_version a
    where a.aggregate_type = holds_aggregate.aggregate_type and a.aggregate_id = holds_aggregate.aggregate_id for update skip locked;
  return found;
end $$;

-- Counts an unlocked write. A report waits for no other: one that cannot have the row at once is dropped.
create function "waybill".note_unlocked_write(relation text, aggregate_type text, role text, application text, aggregate_id text) returns void
language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '1ms' as $$
begin
  insert into "waybill".unlocked_write as u (relation, aggregate_type, role, application, aggregate_id)
  select note_unlocked_write.relation, note_unlocked_write.aggregate_type, note_unlocked_write.role, note_unlocked_write.application,
         note_unlocked_write.aggregate_id
   where (select count(*) from "waybill".unlocked_write) < 1000
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
create function "waybill".guard_aggregate() returns trigger
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
    continue when "waybill".holds_aggregate(tg_argv[0], id);
    if tg_argv[2] = 'refuse' then
      raise exception 'A row of % was written without the lock of its aggregate % %: others may write it at the same time, and no event follows.', written, tg_argv[0], id
        using errcode = '55000', hint = 'Call lockAggregate(tx, { type, id }) first, add the event of the change in the same transaction, or make it a command.';
    end if;
    perform "waybill".note_unlocked_write(written, tg_argv[0], session_user, program, id);
  end loop;
  return null;
end $$;

insert into "waybill"."migration" (number, name, checksum, breaking, applied_by)
values (2, '0002_create_aggregates', '5dc2a57b6ddc0520cb88106dd40cb40e7898bced3680331965b8296e32960cd5', false, '0.1.0');

-- 0003_create_outbox
-- The outbox: events wait here from the commit of their state change until the broker has confirmed them.
--
-- An event is a wide row that is never updated (readable by change data capture, replayable, no bloat). Beside it stands a
-- narrow dispatch row that lives only until the broker has confirmed. Relays lease lanes, not rows: an aggregate hashes to
-- one lane, so a lane's owner publishes it alone and in order.

-- Events: one wide row each, written once and never updated.
create table "waybill".outbox (
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
create index outbox_occurred_at_idx on "waybill".outbox using brin (occurred_at) with (pages_per_range = 32, autosummarize = on);

-- Events that are recorded once for each source: facts, and what consumers emitted, by the event that caused it. Outlives the event
-- itself: a replay must not emit twice. `content_hash` tells another fact under the same key from a repeat; only facts have one.
create table "waybill".outbox_source (
  source          text        not null,
  source_event_id uuid        not null,
  ordinal         int         not null,
  event_id        uuid        not null,
  emitted_at      timestamptz not null default clock_timestamp(),
  content_hash    bytea,
  primary key (source_event_id, source, ordinal)
);
create index outbox_source_emitted_at_idx on "waybill".outbox_source using brin (emitted_at) with (pages_per_range = 32, autosummarize = on);

-- One row per event that the broker has not confirmed yet.
--   0 due     in line, in order of seq
--   1 retry   head of its key: failed, delayed or next in a chain; due at next_retry_at; blocks what is behind it
--   2 held    behind a head, out of the due range
--   3 parked  head that gave up: waits for an operator, blocks what is behind it
-- `void` sends an empty marker instead of the event: how a parked head is skipped without leaving a gap in the versions.
create table "waybill".outbox_dispatch (
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
create unique index outbox_dispatch_head_idx on "waybill".outbox_dispatch (lane, key) include (seq) where state in (1, 3);
create index outbox_dispatch_retry_idx on "waybill".outbox_dispatch (lane, next_retry_at) where state = 1;
create index outbox_dispatch_held_idx on "waybill".outbox_dispatch (lane, key, seq) where state = 2;

-- One row for each lane: which relay works it, and until when. The claim is a lock on these few rows.
create table "waybill".outbox_lane (
  lane            smallint primary key,
  lock_token      uuid,
  locked_by       text,
  locked_at       timestamptz,
  lock_expires_at timestamptz,
  batch_from      bigint,
  batch_to        bigint
) with (fillfactor = 50);
insert into "waybill".outbox_lane (lane) select generate_series(0, 63);

-- Heartbeats, from which every relay computes its fair share of the lanes.
create table "waybill".outbox_relay (
  worker  text        primary key,
  seen_at timestamptz not null
) with (fillfactor = 50);

-- One row per confirmed publish, written with the delete of the dispatch row.
create table "waybill".outbox_receipt (
  event_id     uuid        not null,
  published_at timestamptz not null,
  attempts     int         not null,
  relay        text        not null,
  message_id   text        not null
);
create index outbox_receipt_event_id_idx on "waybill".outbox_receipt (event_id);
create index outbox_receipt_published_at_idx on "waybill".outbox_receipt using brin (published_at) with (pages_per_range = 32, autosummarize = on);

-- A receipt has no primary key, because an event that is replayed gets another; its whole row says which one it is. Without a replica
-- identity nothing can be deleted under a publication for all tables (SQLSTATE 55000), as connectors, warehouse loaders and blue/green
-- deployments make one. It writes no more into the log unless wal_level is logical.
alter table "waybill".outbox_receipt replica identity full;

-- Streams (aggregate_id '') and single aggregates whose events an operator holds back.
create table "waybill".outbox_pause (
  aggregate_type text        not null,
  aggregate_id   text        not null default '',
  reason         text        not null,
  paused_by      text        not null,
  paused_at      timestamptz not null default clock_timestamp(),
  primary key (aggregate_type, aggregate_id)
);

-- Settings as functions: the planner folds them into the statements that use them, and replacing one is seen by every
-- statement that starts afterwards, whatever the isolation of its transaction.
create function "waybill".outbox_lanes() returns int language sql immutable parallel safe as 'select 64';
create function "waybill".outbox_dispatching() returns boolean language sql immutable parallel safe as 'select true';

create function "waybill".outbox_refuse_update() returns trigger language plpgsql as $$
begin
  raise exception 'The outbox is append-only: an event that was recorded is never changed. Add a new event instead.' using errcode = '0A000';
end $$;
create trigger outbox_append_only before update on "waybill".outbox for each statement execute function "waybill".outbox_refuse_update();

create function "waybill".outbox_wrong_version(aggregate text, given bigint, expected bigint) returns bigint language plpgsql as $$
begin
  raise exception 'Version % of % is out of turn: the next one is %.', given, aggregate, expected using errcode = 'WB001';
end $$;

-- A connector publishes an event as soon as it is committed, so a date that lies ahead is refused.
create function "waybill".outbox_refuse_date() returns void language plpgsql as $$
begin
  raise exception 'A connector publishes this outbox, and it waits for no date: the event would go out at once. Add it when its time has come.'
    using errcode = 'WB004';
end $$;

-- Brokers take an empty id for a key without order, and where streams are paused it stands for all of one; an id above 1,024 bytes is
-- refused as an attribute, long after its transaction committed.
create function "waybill".outbox_refuse_id(aggregate_type text, aggregate_id text) returns void language plpgsql as $$
begin
  raise exception 'An aggregate id must have 1 to 1024 bytes as UTF-8; this one of % has %. Use the hash of a longer one.',
    aggregate_type, octet_length(convert_to(aggregate_id, 'UTF8')) using errcode = '22023';
end $$;

-- A dispatch row without an event would be parked by its relay, and an event without one would never be published.
create function "waybill".outbox_refuse_dropped(event uuid, aggregate_type text, aggregate_id text) returns boolean language plpgsql as $$
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
create function "waybill".add_event(
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
    perform "waybill".outbox_refuse_id(add_event.aggregate_type, add_event.aggregate_id);
  end if;

  insert into "waybill".aggregate_version as a (aggregate_type, aggregate_id, version)
  values (add_event.aggregate_type, add_event.aggregate_id, coalesce(given, 1))
  on conflict (aggregate_type, aggregate_id) do update set version = case a.version when 0 then excluded.version else a.version + 1 end
  returning a.version into add_event.version;
  if given <> add_event.version then
    perform "waybill".outbox_wrong_version(add_event.aggregate_type || ' ' || add_event.aggregate_id, given, add_event.version);
  end if;

  insert into "waybill".outbox as o (id, topic, aggregate_type, aggregate_id, version, event_type, schema_version, content_type, payload, headers)
  values (add_event.id, add_event.topic, add_event.aggregate_type, add_event.aggregate_id, add_event.version, add_event.event_type,
          add_event.schema_version, add_event.content_type, add_event.payload, add_event.headers)
  returning o.id into kept;
  if kept is distinct from add_event.id then
    perform "waybill".outbox_refuse_dropped(add_event.id, add_event.aggregate_type, add_event.aggregate_id);
  end if;

  -- Asked after the event is written: a change of these settings locks one of the tables above, so from here on they hold.
  if "waybill".outbox_dispatching() then
    key := ('x' || encode(substring(sha256(convert_to(add_event.aggregate_type || chr(31) || add_event.aggregate_id, 'UTF8')) from 1 for 8), 'hex'))::bit(64)::bigint;
    insert into "waybill".outbox_dispatch as d (lane, key, event_id, next_retry_at)
    values ((key & ("waybill".outbox_lanes() - 1))::smallint, key, add_event.id, not_before)
    returning d.event_id into kept;
    if kept is distinct from add_event.id then
      perform "waybill".outbox_refuse_dropped(add_event.id, add_event.aggregate_type, add_event.aggregate_id);
    end if;
  elsif not_before > clock_timestamp() then
    perform "waybill".outbox_refuse_date();
  end if;
end $$;

-- The same for many events, in one statement. Aggregates are locked in a fixed order. An event that the same source emitted
-- before is not written again (added = false). `columns` are values for columns that the user added to the outbox. The payload stands
-- beside those without a backslash in a literal, which a session with standard_conforming_strings = off would read as an escape.
--
-- The planner cannot know how many events an array holds: one plan, made once and without nested loops, serves ten and ten thousand.
-- Here and below, `jit = off` goes with each kind of plan that is turned off: before PostgreSQL 18 such a plan, where it is the only one,
-- has a cost of ten billions, and a plan of that cost is compiled before it runs, which takes as long as hundreds of calls.
create function "waybill".add_events(
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
  perform "waybill".outbox_refuse_id(e.aggregate_type, e.aggregate_id)
     from unnest(aggregate_types, aggregate_ids) as e (aggregate_type, aggregate_id)
    where octet_length(convert_to(e.aggregate_id, 'UTF8')) not between 1 and 1024;

  if source_event_ids is not null then
    with fresh as (
      insert into "waybill".outbox_source (source, source_event_id, ordinal, event_id)
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
    insert into "waybill".aggregate_version as a (aggregate_type, aggregate_id, version)
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
    insert into "waybill".aggregate_version as a (aggregate_type, aggregate_id, version)
    select g.aggregate_type, g.aggregate_id, g.n from given g where g.nth = 1 order by 1, 2
    on conflict (aggregate_type, aggregate_id) do update set version = a.version + excluded.version
    returning a.aggregate_type, a.aggregate_id, a.version),
  numbered as materialized (
    select g.*, t.version - g.n + g.nth as next,
           ('x' || encode(substring(sha256(convert_to(g.aggregate_type || chr(31) || g.aggregate_id, 'UTF8')) from 1 for 8), 'hex'))::bit(64)::bigint as key
      from given g
      join taken t on t.aggregate_type = g.aggregate_type and t.aggregate_id = g.aggregate_id),
  plain as (
    insert into "waybill".outbox (id, topic, aggregate_type, aggregate_id, version, event_type, schema_version, content_type, payload, headers)
    select n.id, n.topic, n.aggregate_type, n.aggregate_id,
           case when n.version is null or n.version = n.next then n.next
                else "waybill".outbox_wrong_version(n.aggregate_type || ' ' || n.aggregate_id, n.version, n.next) end,
           n.event_type, coalesce(n.schema_version, 1), coalesce(n.content_type, 'application/json'), n.payload, coalesce(n.headers, '{}')
      from numbered n where n.columns is null
    returning id),
  widened as (
    insert into "waybill".outbox
    select r.* from numbered n cross join lateral jsonb_populate_record(cast(null as "waybill".outbox), n.columns || jsonb_build_object(
             'id', n.id, 'topic', n.topic, 'aggregate_type', n.aggregate_type, 'aggregate_id', n.aggregate_id,
             'version', case when n.version is null or n.version = n.next then n.next
                             else "waybill".outbox_wrong_version(n.aggregate_type || ' ' || n.aggregate_id, n.version, n.next) end,
             'event_type', n.event_type, 'schema_version', coalesce(n.schema_version, 1), 'content_type', coalesce(n.content_type, 'application/json'),
             'payload', chr(92) || 'x' || encode(n.payload, 'hex'), 'headers', coalesce(n.headers, '{}'), 'occurred_at', clock_timestamp())) r
     where n.columns is not null
    returning id),
  dispatched as (
    insert into "waybill".outbox_dispatch (lane, key, event_id, next_retry_at)
    select (n.key & ("waybill".outbox_lanes() - 1))::smallint, n.key, n.id, n.not_before
      from numbered n where "waybill".outbox_dispatching() order by n.key, n.next
    returning event_id)
  select n.id, n.next,
         case when w.id is null or (d.event_id is null and "waybill".outbox_dispatching())
              then "waybill".outbox_refuse_dropped(n.id, n.aggregate_type, n.aggregate_id) else true end
    from numbered n
    left join (table plain union all table widened) w on w.id = n.id
    left join dispatched d on d.event_id = n.id
  union all
  select r, null, false from unnest(repeated) r;

  if not_before is not null and not "waybill".outbox_dispatching() and exists (
       select from unnest(ids, not_before) as d (id, moment) where d.moment > clock_timestamp() and d.id <> all (repeated)) then
    perform "waybill".outbox_refuse_date();
  end if;
end $$;

-- Adds facts: events that are recorded once for each source, with the hash of their content. `conflict` says that the source was
-- recorded before with another hash; then, and for a repeat, nothing is written.
create function "waybill".add_facts(
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
    insert into "waybill".outbox_source (source, source_event_id, ordinal, event_id, content_hash)
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
   cross join lateral "waybill".add_events(g.ids, g.topics, g.aggregate_types, g.aggregate_ids, g.event_types, g.payloads, g.versions,
                                         g.schema_versions, g.content_types, g.headers) a;

  -- A younger snapshot: what another transaction recorded while we waited for it is seen.
  return query
  select r.id, null::bigint, false, coalesce(k.content_hash <> r.content_hash, false)
    from unnest(sources, source_event_ids, ordinals, ids, content_hashes) as r (source, source_event_id, ordinal, id, content_hash)
    left join "waybill".outbox_source k
      on k.source_event_id = r.source_event_id and k.source = r.source and k.ordinal = r.ordinal
   where r.id <> all (fresh);
end $$;

-- What the owner of lanes may publish now: per lane a window of due rows with whether a head blocks them, the heads whose
-- retry is due, and the chain behind heads that have not failed yet, which share `chain` rows evenly. One statement, so that
-- no row is seen without the head that blocks it. The plan is made once and kept; the settings leave it no choice but the
-- indexes, so that one made while the outbox was empty serves a million rows as well.
create function "waybill".outbox_read(lanes smallint[], tokens uuid[], sizes int[], heads int, chain int)
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
      join "waybill".outbox_lane l on l.lane = t.lane and l.lock_token = t.token
  ), due as materialized (
    select d.*, exists (
             select from "waybill".outbox_dispatch b
              where b.lane = d.lane and b.key = d.key and b.state in (1, 3) and b.seq < d.seq) as blocked
      from mine cross join lateral (
        select d.* from "waybill".outbox_dispatch d where d.lane = mine.lane and d.state = 0 order by d.seq limit mine.size) d
  ), head as materialized (
    select h.*, false as blocked
      from mine cross join lateral (
        select h.* from "waybill".outbox_dispatch h
         where h.lane = mine.lane and h.state = 1 and h.next_retry_at <= (select clock_timestamp())
         order by h.next_retry_at limit outbox_read.heads) h
  ), chained as materialized (
    select c.*, false as blocked
      from (select h.*, count(*) over () as heads from head h where h.publish_attempts = 0) h cross join lateral (
        select c.* from "waybill".outbox_dispatch c
         where c.lane = h.lane and c.key = h.key and c.state = 2 order by c.seq limit ceil(outbox_read.chain / h.heads::float8)) c
  )
  select x.lane, x.seq::text, x.key::text, x.event_id::text, x.state, x.publish_attempts, x.void, x.blocked,
         case when x.next_retry_at is null or x.state = 1 then 0
              else greatest(0, ceil(extract(epoch from x.next_retry_at - clock_timestamp()) * 1000))::float8 end,
         o.topic, o.aggregate_type, o.aggregate_id, o.version::text, o.event_type, o.schema_version, o.content_type, o.payload, o.headers::text,
         to_char(o.occurred_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
    from (table due union all table head union all table chained) x
    left join "waybill".outbox o on o.id = x.event_id
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
create function "waybill".outbox_settle(
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
    select l.lane from "waybill".outbox_lane l join unnest(lanes, tokens) as t (lane, token) on t.lane = l.lane
     where t.token is null or t.token = l.lock_token
     order by l.lane for update of l) l;

  -- 2. What the broker confirmed, or an operator dropped, goes, whatever its state.
  with place as materialized (
    select x.ctid as row, k.message
      from unnest(ok_lane, ok_seq, ok_event, ok_message) as k (lane, seq, event_id, message)
     cross join unnest('{0,1,2,3}'::smallint[]) as s (state) cross join lateral (
        select x.ctid from "waybill".outbox_dispatch x
         where x.lane = k.lane and x.state = s.state and x.seq = k.seq and x.event_id = k.event_id offset 0) x
     where k.lane = any (mine)),
  gone as (
    delete from "waybill".outbox_dispatch d using place p where d.ctid = p.row
    returning d.lane, d.key, d.state, d.event_id, d.publish_attempts, p.message),
  receipt as (
    insert into "waybill".outbox_receipt (event_id, published_at, attempts, relay, message_id)
    select g.event_id, clock_timestamp(), g.publish_attempts + 1, outbox_settle.relay, g.message
      from gone g where keep_receipts and g.message is not null)
  select array_agg(f.lane), array_agg(f.key), (select array_agg(g.event_id) from gone g where not keep_events)
    into freed_lane, freed_key, forgotten
    from (select distinct g.lane, g.key from gone g where g.state <> 0) f;
  if forgotten is not null then
    delete from "waybill".outbox o where o.id = any (forgotten);
  end if;

  if cardinality(bad_lane) > 0 then
    -- 3. A head that stands behind the one that failed now is no longer the first of its key.
    update "waybill".outbox_dispatch d set state = 2 where d.state + 0 in (1, 3) and d.ctid = any (array(
      select h.ctid from unnest(bad_lane, bad_seq, bad_event) as k (lane, seq, event_id)
       cross join unnest('{0,1,2}'::smallint[]) as s (state) cross join lateral (
        select f.lane, f.key, f.seq from "waybill".outbox_dispatch f
         where f.lane = k.lane and f.state = s.state and f.seq = k.seq and f.event_id = k.event_id offset 0) f cross join lateral (
        select h.ctid from "waybill".outbox_dispatch h
         where h.lane = f.lane and h.key = f.key and h.state in (1, 3) and h.seq > f.seq offset 0) h
       where k.lane = any (mine)));

    -- 4. The row that failed becomes the head that blocks its key.
    update "waybill".outbox_dispatch d
       set state = case when k.park then 3 else 1 end,
           publish_attempts = d.publish_attempts + k.charge,
           void = d.void or k.void,
           -- A relay that stops a paused head may not have heard yet that an operator resumed it: then the head waits a moment only.
           next_retry_at = clock_timestamp() + interval '1 millisecond' *
             case when k.error = 'paused by an operator' and not exists (
                         select from "waybill".outbox o join "waybill".outbox_pause p on p.aggregate_type = o.aggregate_type and p.aggregate_id in ('', o.aggregate_id)
                          where o.id = d.event_id)
                  then 100 else k.delay_ms end,
           parked_at = case when k.park then clock_timestamp() end,
           last_error = k.error
      from (
        select k.*, f.ctid as place from unnest(bad_lane, bad_seq, bad_event, bad_park, bad_void, bad_charge, bad_delay_ms, bad_error)
               as k (lane, seq, event_id, park, void, charge, delay_ms, error)
         cross join unnest('{0,1,2}'::smallint[]) as s (state) cross join lateral (
          select f.ctid, f.key from "waybill".outbox_dispatch f
           where f.lane = k.lane and f.state = s.state and f.seq = k.seq and f.event_id = k.event_id offset 0) f
         where k.lane = any (mine)
           and not exists (select from "waybill".outbox_dispatch b where b.lane = k.lane and b.key = f.key and b.state in (1, 3) and b.seq < k.seq offset 0)
         offset 0) k
     where d.ctid = k.place;
  end if;

  -- 5. A key that lost its head gets the next: its lowest held row, due now or when its own delay ends.
  update "waybill".outbox_dispatch d
     set state = 1, next_retry_at = greatest(d.next_retry_at, clock_timestamp()),
         last_error = case when d.next_retry_at > clock_timestamp() then 'waits for its date' else d.last_error end
   where d.state + 0 = 2 and d.ctid = any (array(
    select h.ctid from unnest(freed_lane, freed_key) as f (lane, key) cross join lateral (
      select h.ctid from "waybill".outbox_dispatch h where h.lane = f.lane and h.key = f.key and h.state = 2 order by h.seq limit 1) h
     where not exists (select from "waybill".outbox_dispatch b where b.lane = f.lane and b.key = f.key and b.state in (1, 3) offset 0)));

  -- 6. Rows behind a head leave the due range: those among the first hold_depth of the lane.
  update "waybill".outbox_dispatch d set state = 2 where d.state + 0 = 0 and d.ctid = any (array(
    select x.ctid from unnest(hold_lane, hold_depth) as k (lane, depth) cross join lateral (
      select x.ctid, x.lane, x.key, x.seq from "waybill".outbox_dispatch x where x.lane = k.lane and x.state = 0 order by x.seq limit k.depth) x
     where k.lane = any (mine)
       and exists (select from "waybill".outbox_dispatch b where b.lane = x.lane and b.key = x.key and b.state in (1, 3) and b.seq < x.seq offset 0)));
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
create function "waybill".outbox_expire(what text, older_than timestamptz, ended_before xid8, batch int, after uuid, block bigint)
returns table (seen int, removed int, last uuid, done boolean)
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_nestloop = off set jit = off as $$
declare
  is_event boolean := what not in ('receipts', 'sources');
  relation regclass := '"waybill".outbox'::regclass;
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
    relation := '"waybill".outbox_receipt'::regclass; id := 'event_id'; moment := 'published_at';
  elsif what = 'sources' then
    relation := '"waybill".outbox_source'::regclass; id := 'source_event_id'; moment := 'emitted_at';
  elsif not "waybill".outbox_dispatching() and ended_before is null then
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
       from picked p left join (select distinct d.event_id from "waybill".outbox_dispatch d where $5 and d.event_id in (select id from picked)) w on w.event_id = p.id', picked)
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
    case when is_event then ' and r.id not in (select d.event_id from "waybill".outbox_dispatch d
       where d.event_id in (select e.id from "waybill".outbox e where e.ctid = any ($1)))' else '' end)
    using rows;
  get diagnostics removed = row_count;
  return next;
end $$;

-- Moves every waiting row to its new lane, in one transaction that stops writers and relays for its length. Writers are
-- stopped at the table that only they write: a relay that holds a lane and waits for another table would wait for us for ever.
create function "waybill".outbox_change_lanes(lanes int) returns void language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  if lanes not between 1 and 4096 or lanes & (lanes - 1) <> 0 then
    raise exception 'The number of lanes must be a power of two from 1 to 4096, not %.', lanes using errcode = '22023';
  end if;
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'outbox_change_lanes needs READ COMMITTED: it must see what committed while it waited for the writers.' using errcode = '25001';
  end if;
  lock table "waybill".aggregate_version in share row exclusive mode;
  perform from "waybill".outbox_lane order by lane for update;
  delete from "waybill".outbox_lane where lane >= lanes;
  update "waybill".outbox_lane set lock_token = null, lock_expires_at = null, batch_from = null, batch_to = null;
  insert into "waybill".outbox_lane (lane) select generate_series(0, lanes - 1) on conflict do nothing;
  -- Two heads of one key stay in one lane, so no row can collide on its way.
  update "waybill".outbox_dispatch d set lane = (d.key & (lanes - 1))::smallint where d.lane <> (d.key & (lanes - 1))::smallint;
  execute format('create or replace function %I.outbox_lanes() returns int language sql immutable parallel safe as ''select %s''', 'waybill', lanes);
end $$;

-- Change data capture on or off: off means that a connector reads the outbox and no dispatch rows are written.
create function "waybill".outbox_set_dispatching(dispatching boolean) returns void language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  lock table "waybill".outbox in share row exclusive mode;
  execute format('create or replace function %I.outbox_dispatching() returns boolean language sql immutable parallel safe as ''select %s''', 'waybill', case when dispatching then 'true' else 'false' end);
end $$;

-- Every event that is still known, with its state, in the words of an operator.
create view "waybill".outbox_status as
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
  from "waybill".outbox o
  left join "waybill".outbox_dispatch d
    on d.event_id = o.id
   and d.lane = (('x' || encode(substring(sha256(convert_to(o.aggregate_type || chr(31) || o.aggregate_id, 'UTF8')) from 1 for 8), 'hex'))::bit(64)::bigint & ("waybill".outbox_lanes() - 1))::smallint
  left join "waybill".outbox_lane l on l.lane = d.lane
  left join lateral (select r.published_at, r.attempts, r.message_id from "waybill".outbox_receipt r where r.event_id = o.id order by r.published_at desc limit 1) r on true;

insert into "waybill"."migration" (number, name, checksum, breaking, applied_by)
values (3, '0003_create_outbox', 'acd0bc4015bc1703de78c2ddaec12bcd93b6cc9ddd2b4793f16d7d5e9d5056d4', false, '0.1.0');

-- 0004_create_transport
-- Topics and subscriptions in Postgres itself, for services that have no broker yet.
--
-- A message is written once and never updated. Each subscription has a narrow delivery row for every message that its
-- consumer has not settled. Receivers lease lanes, not rows: a key hashes to one lane, so the lane's holder delivers it
-- alone and in order, and a delivery costs no write until it is settled.

-- Topics of the Postgres transport.
create table "waybill".transport_topic (
  id   int  generated always as identity primary key,
  name text not null unique
);

-- The gate of each topic. Rows are locked without a queue: publishers that share a topic's row would overtake a waiting subscriber for
-- as long as one of them follows another. So a session that wants a topic alone locks its gate first, and later publishers stop there.
create table "waybill".transport_gate (topic_id int primary key);

-- Which consumer reads which topic of the Postgres transport.
create table "waybill".transport_subscription (
  id         int         generated always as identity primary key,
  topic_id   int         not null references "waybill".transport_topic,
  consumer   text        not null,
  lanes      smallint    not null check (lanes > 0 and lanes & (lanes - 1) = 0),
  created_at timestamptz not null default clock_timestamp(),
  unique (topic_id, consumer)
);

-- One row for each lane of a subscription: which receiver delivers it, and until when. Every acquisition has a new tenure, by which all
-- later writes are fenced. `locked_at` is when the lease was last taken or renewed; with the end it tells how long the lease is, for
-- receivers may have leases of different lengths.
create table "waybill".transport_lane (
  subscription_id int      not null references "waybill".transport_subscription on delete cascade,
  lane            smallint not null,
  tenure          bigint   not null default 0,
  locked_by       uuid,
  lock_expires_at timestamptz,
  locked_at       timestamptz,
  primary key (subscription_id, lane)
) with (fillfactor = 50);

-- Heartbeats, from which every receiver computes its fair share of the lanes.
create table "waybill".transport_receiver (
  subscription_id int         not null references "waybill".transport_subscription on delete cascade,
  receiver        uuid        not null,
  seen_at         timestamptz not null,
  primary key (subscription_id, receiver)
) with (fillfactor = 50);

create sequence "waybill".transport_message_seq;

-- Messages of the Postgres transport: one row each, never updated.
create table "waybill".transport_message (
  topic_id     int         not null,
  seq          bigint      not null,
  key          text,
  attributes   jsonb       not null,
  body         bytea       not null,
  published_at timestamptz not null default clock_timestamp(),
  primary key (topic_id, seq)
);
create index transport_message_published_at_idx on "waybill".transport_message using brin (published_at) with (pages_per_range = 32, autosummarize = on);

-- One row for each message that a subscription has not settled. `key` is the hash of the ordering key. `rest_until` is set by a nack:
-- until then the message and those behind it under its key wait.
create table "waybill".transport_delivery (
  subscription_id int      not null,
  lane            smallint not null,
  seq             bigint   not null,
  key             bigint,
  bytes           int      not null,
  attempts        int      not null default 0,
  rest_until      timestamptz,
  primary key (subscription_id, lane, seq)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
create index transport_delivery_resting_idx on "waybill".transport_delivery (subscription_id, key, seq) where rest_until is not null;

-- The lane of a message: its key's, or for a message without a key any.
create function "waybill".transport_lane_of(key bigint, seq bigint, lanes smallint) returns smallint
language sql immutable parallel safe as 'select (coalesce(key, seq) & (lanes - 1))::smallint';

-- Whether a session holds a topic's gate. The row's header tells, without a lock and without a write.
create function "waybill".transport_gate_shut(topic int) returns boolean
language sql set search_path = pg_catalog, pg_temp as $$
  select coalesce((select "waybill".xid_in_progress(g.xmax) from "waybill".transport_gate g where g.topic_id = topic), false)
$$;

-- Takes the lock under which a topic's subscriptions change, and makes the topic if it is new. Publishers share it; a session that
-- subscribes, seeks or rewinds has it alone. Both look only afterwards, with a snapshot younger than the lock: either the subscriber
-- sees the message, or its publisher sees the subscription. Rows are locked, and no advisory keys: every login of the database may take
-- those, and would hold up publishers and sweeps.
create function "waybill".transport_lock_topic(topic text, alone boolean) returns int
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  own int;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'The transport needs READ COMMITTED: it must see what committed while it waited for its topic.' using errcode = '25001';
  end if;
  own := (select t.id from "waybill".transport_topic t where t.name = topic);
  if own is null then
    insert into "waybill".transport_topic (name) values (topic) on conflict do nothing;
    own := (select t.id from "waybill".transport_topic t where t.name = topic);
    insert into "waybill".transport_gate (topic_id) values (own) on conflict do nothing;
  end if;
  if alone then
    perform from "waybill".transport_gate g where g.topic_id = own for update;
    perform from "waybill".transport_topic t where t.id = own for update;
    return own;
  end if;
  if "waybill".transport_gate_shut(own) then
    begin
      perform from "waybill".transport_gate g where g.topic_id = own for share;
      raise exception 'Through the gate: the lock on it goes with this subtransaction.' using errcode = 'WB007';
    exception when sqlstate 'WB007' then
      null;
    end;
  end if;
  perform from "waybill".transport_topic t where t.id = own for share;
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
create function "waybill".transport_publish(topic text, keys text[], attributes jsonb[], bodies bytea[], sizes int[])
returns table (seq bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '1s' as $$
#variable_conflict use_column
declare
  own_topic int := "waybill".transport_lock_topic(topic, false);
begin
  perform pg_current_xact_id();
  return query
  with given as materialized (
    select g.*, nextval('"waybill".transport_message_seq') as seq
      from (select * from unnest(keys, attributes, bodies, sizes) with ordinality as u (key, attributes, body, bytes, place) order by u.place) g),
  stored as (
    insert into "waybill".transport_message (topic_id, seq, key, attributes, body)
    select own_topic, g.seq, g.key, g.attributes, g.body from given g order by g.place),
  spread as (
    insert into "waybill".transport_delivery (subscription_id, lane, seq, key, bytes)
    select s.id, "waybill".transport_lane_of(hashtextextended(g.key, 0), g.seq, s.lanes), g.seq, hashtextextended(g.key, 0), g.bytes
      from given g cross join "waybill".transport_subscription s
     where s.topic_id = own_topic
     order by s.id, g.place)
  select g.seq from given g order by g.place;
end $$;

-- Gives a subscription a delivery for each retained message since a moment (null: all). The caller has the topic alone.
create function "waybill".transport_fill(subscription int, since timestamptz) returns void
language sql set search_path = pg_catalog, pg_temp as $$
  insert into "waybill".transport_delivery (subscription_id, lane, seq, key, bytes)
  select s.id, "waybill".transport_lane_of(hashtextextended(m.key, 0), m.seq, s.lanes), m.seq, hashtextextended(m.key, 0), octet_length(m.body) + octet_length(m.attributes::text)
    from "waybill".transport_subscription s join "waybill".transport_message m on m.topic_id = s.topic_id
   where s.id = subscription and (since is null or m.published_at >= since)
   order by m.seq
$$;

-- Finds or makes a subscription. A new one begins with everything that is retained.
create function "waybill".transport_subscribe(topic text, consumer text, lanes smallint) returns int
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  found_id  int;
  own_topic int;
begin
  select s.id into found_id from "waybill".transport_subscription s join "waybill".transport_topic t on t.id = s.topic_id
   where t.name = transport_subscribe.topic and s.consumer = transport_subscribe.consumer;
  if found_id is not null then
    return found_id;
  end if;
  own_topic := "waybill".transport_lock_topic(topic, true);
  insert into "waybill".transport_subscription (topic_id, consumer, lanes) values (own_topic, transport_subscribe.consumer, transport_subscribe.lanes)
  on conflict do nothing returning id into found_id;
  if found_id is null then
    return (select s.id from "waybill".transport_subscription s where s.topic_id = own_topic and s.consumer = transport_subscribe.consumer);
  end if;
  insert into "waybill".transport_lane (subscription_id, lane) select found_id, generate_series(0, transport_subscribe.lanes - 1);
  perform "waybill".transport_fill(found_id, null);
  return found_id;
end $$;

-- Removes a subscription. It has the topic alone, so a publisher comes before it, or sees none: its deliveries can then be removed at
-- leisure.
create function "waybill".transport_unsubscribe(topic text, consumer text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  own_topic int;
begin
  if exists (select from "waybill".transport_topic t where t.name = topic) then
    own_topic := "waybill".transport_lock_topic(topic, true);
    delete from "waybill".transport_subscription s where s.topic_id = own_topic and s.consumer = transport_unsubscribe.consumer;
  end if;
end $$;

-- Starts a subscription over with what is retained since a moment (null: all). A new tenure of every lane makes whatever
-- is in hand lost to its receiver.
create function "waybill".transport_seek(topic text, subscription int, since timestamptz) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform "waybill".transport_lock_topic(topic, true);
  perform from "waybill".transport_subscription s where s.id = subscription for update;
  update "waybill".transport_lane l set tenure = l.tenure + 1, locked_by = null, lock_expires_at = null where l.subscription_id = subscription;
  delete from "waybill".transport_delivery d where d.subscription_id = subscription;
  perform "waybill".transport_fill(subscription, since);
end $$;

-- Gives a subscription again what is retained since a moment, and keeps what is older and not settled. A new tenure of every lane
-- makes whatever is in hand lost to its receiver; a lane is read in order of seq, so each key comes in order. Deliveries since the
-- moment are made anew, not kept: an ack that began before would still delete one that it saw.
create function "waybill".transport_rewind(topic text, subscription int, since timestamptz) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform "waybill".transport_lock_topic(topic, true);
  perform from "waybill".transport_subscription s where s.id = subscription for update;
  update "waybill".transport_lane l set tenure = l.tenure + 1, locked_by = null, lock_expires_at = null where l.subscription_id = subscription;
  delete from "waybill".transport_delivery d
   using "waybill".transport_subscription s, "waybill".transport_message m
   where s.id = subscription and d.subscription_id = s.id and m.topic_id = s.topic_id and m.seq = d.seq and m.published_at >= since;
  perform "waybill".transport_fill(subscription, since);
end $$;

-- A receiver's heartbeat: gives back the lanes that it is leaving, renews the others, and takes free ones up to its fair
-- share. Returns the lanes that are its own now. A receiver that does not stay gives everything back. A heartbeat from a
-- future that no clock reaches is not one: the clock stepped back. A receiver with a lease that runs lives until that ends, even if its
-- heartbeats are rarer than ours: no other can take its lanes before.
create function "waybill".transport_lease(subscription int, receiver uuid, lease_ms int, leaving smallint[], stays boolean)
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
  perform from "waybill".transport_subscription s where s.id = subscription for update;
  if not found then
    raise exception 'The subscription is gone.' using errcode = 'WB002';
  end if;
  update "waybill".transport_lane l set locked_by = null, locked_at = null, lock_expires_at = null
   where l.subscription_id = subscription and l.locked_by = transport_lease.receiver and (not stays or l.lane = any (leaving));
  if not stays then
    delete from "waybill".transport_receiver r where r.subscription_id = subscription and r.receiver = transport_lease.receiver;
    return;
  end if;
  insert into "waybill".transport_receiver as r (subscription_id, receiver, seen_at) values (subscription, transport_lease.receiver, clock_timestamp())
  on conflict (subscription_id, receiver) do update set seen_at = excluded.seen_at;
  update "waybill".transport_lane l set locked_at = clock_timestamp(), lock_expires_at = clock_timestamp() + lease
   where l.subscription_id = subscription and l.locked_by = transport_lease.receiver;

  -- Not over, and not written ahead of us by more than it lasts, which only a clock that stepped back explains. One that does not say when
  -- it was written counts as the longest that there is: its owner lives, and says so at its next heartbeat, or it ends within twice that.
  select coalesce(array_agg(l.lane), '{}'), coalesce(array_agg(distinct l.locked_by), '{}') into leased, owners
    from (select f.lane, f.locked_by, f.lock_expires_at, coalesce(f.locked_at, f.lock_expires_at - interval '10 minutes') as locked_at
            from "waybill".transport_lane f where f.subscription_id = subscription and f.locked_by is not null) l
   where l.lock_expires_at > clock_timestamp() and l.locked_at - clock_timestamp() <= l.lock_expires_at - l.locked_at;

  delete from "waybill".transport_receiver r where r.subscription_id = subscription and r.receiver <> all (owners)
     and (r.seen_at < clock_timestamp() - 20 * lease or r.seen_at > clock_timestamp() + 20 * lease);
  select s.lanes / w.alive + (w.rank < s.lanes % w.alive)::int into fair
    from "waybill".transport_subscription s,
         (select count(*)::int as alive, count(*) filter (where r.receiver < transport_lease.receiver)::int as rank
            from "waybill".transport_receiver r
           where r.subscription_id = subscription
             and (r.receiver = any (owners) or (r.seen_at > clock_timestamp() - lease and r.seen_at < clock_timestamp() + lease))) w
   where s.id = subscription;
  update "waybill".transport_lane l
     set tenure = l.tenure + 1, locked_by = transport_lease.receiver, locked_at = clock_timestamp(), lock_expires_at = clock_timestamp() + lease
   where l.subscription_id = subscription and l.lane = any (array(
           select f.lane from "waybill".transport_lane f
            where f.subscription_id = subscription and f.lane <> all (leased)
            order by f.lane
            limit greatest(0, fair - (select count(*) from "waybill".transport_lane o where o.subscription_id = subscription and o.locked_by = transport_lease.receiver))));
  return query
  select l.lane, l.tenure, fair from "waybill".transport_lane l
   where l.subscription_id = subscription and l.locked_by = transport_lease.receiver order by l.lane;
end $$;

-- Up to where seqs are taken, and by which transaction to know that none of them can be committed any more: when a later
-- call finds that `oldest`, the oldest transaction that runs, is not older than `xid`. The xid is taken after the look at
-- the sequence, so it is younger than every transaction that has a seq by then. An xmax would not do: it names the last one that ended,
-- and younger ones may be running.
create function "waybill".transport_horizon() returns table (seq bigint, xid xid8, oldest xid8)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  oldest := pg_snapshot_xmin(pg_current_snapshot());
  select s.last_value - (not s.is_called)::int into seq from "waybill".transport_message_seq s;
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
create function "waybill".transport_sweep_topic(topic int, after bigint, retention_ms float8, most int)
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
  perform from "waybill".transport_topic t
    where t.id = topic and not "waybill".transport_gate_shut(t.id) for share skip locked;
  if not found then
    return next;
    return;
  end if;
  young := (
    select c.seq
      from (select m.seq, m.published_at from "waybill".transport_message m
             where m.topic_id = topic and m.seq > after order by m.seq limit most) c
     where c.published_at between past and this_moment
     order by c.seq limit 1);
  place := null;
  if young is null then
    place := (
      select m.seq from "waybill".transport_message m
       where m.topic_id = topic and m.seq > after order by m.seq offset most - 1 limit 1);
  end if;
  delete from "waybill".transport_message m
   where m.ctid = any (array(
     select c.ctid
       from (select o.ctid, o.seq, o.key from "waybill".transport_message o
              where o.topic_id = topic and o.seq > after and o.seq < coalesce(young, place + 1, 9223372036854775807)
                and o.published_at < past offset 0) c
      where not exists (
              select from "waybill".transport_subscription s cross join lateral (
                select from "waybill".transport_delivery d
                 where d.subscription_id = s.id and d.seq = c.seq
                   and d.lane = "waybill".transport_lane_of(hashtextextended(c.key, 0), c.seq, s.lanes) offset 0) d
               where s.topic_id = topic)));
  get diagnostics swept = row_count;
  return next;
end $$;

insert into "waybill"."migration" (number, name, checksum, breaking, applied_by)
values (4, '0004_create_transport', 'ae023a6e6cf7d99b2f792566fd0d2d43cc69a931235df9ed403f3bf08ad2d204', false, '0.1.0');

-- 0005_create_consumer
-- The consumer's side: what was applied, how far each aggregate is, what waits, and what was given up.
--
-- A consumer is a named reader of streams. Everything it remembers is kept per generation: one life of its projections. A
-- rebuild starts the next generation, so that the inbox of the old one does not swallow the replay.

-- The consumers of this service. `generation` is the one that readers see; `next_generation` is being built beside it. What a consumer
-- processed before `forgotten_before` may be gone from its inbox, so a message from that time would pass for a new one; it is written with
-- the deletion, and read before every redrive and replay.
create table "waybill".consumer (
  name             text        primary key,
  generation       int         not null default 1 check (generation > 0),
  next_generation  int         check (next_generation > generation),
  state            text        not null default 'live',
  paused           boolean     not null default false,
  paused_by        text,
  paused_at        timestamptz,
  ready_at         timestamptz,
  created_at       timestamptz not null default clock_timestamp(),
  forgotten_before timestamptz
);

-- One row for each running instance of a consumer, with what it reads. While two versions of a consumer run side by side, the older one
-- gets events that only the newer one knows: it puts them aside in inbox_message, where the newer one finds them. A row ends with its
-- heartbeat: what has expired counts for nothing, and is removed an hour later by any instance.
--   reads    the streams by the types of their aggregates, each with the names of its event types
--   digest   of `reads`: instances with the same one are of one version
create table "waybill".consumer_reader (
  consumer   text        not null,
  instance   uuid        not null,
  generation int         not null,
  host       text        not null,
  reads      jsonb       not null,
  digest     text        not null,
  started_at timestamptz not null default clock_timestamp(),
  expires_at timestamptz not null,
  primary key (consumer, instance)
);

-- One row per event whose effect committed, written in the transaction of that effect. Its key is the producer's event id: the
-- broker's own ids change when a message is published again. `content_hash` tells another event under the same id from a repeat; it is
-- null of an event without content. `conflicted_at` is when the first such event came.
create table "waybill".inbox (
  consumer      text        not null,
  generation    int         not null,
  event_id      uuid        not null,
  source        text        not null,
  processed_at  timestamptz not null default clock_timestamp(),
  content_hash  bytea,
  conflicted_at timestamptz,
  primary key (consumer, generation, event_id)
);
create index inbox_processed_at_idx on "waybill".inbox using brin (processed_at) with (pages_per_range = 32, autosummarize = on);

-- How far a consumer is with each aggregate. Advances with every event, also with those that it ignores: tokens wait for it,
-- and deltas apply only at version + 1. Its row lock puts all who work on the aggregate in line.
--   waiting      messages of this aggregate that are stored in inbox_message, behind a gap or behind a dead letter
--   held_by      the dead letter that later versions wait for
--   taken_from, taken_to
--                every version from the one to the other was taken, each under an id that the inbox got. An event of one of these
--                versions that the inbox does not know is a fork: an owner that lost commits in a fail-over gave the version again.
--                Null where nothing is known. What moves `version` and knows nothing of ids leaves both as they are: they stay
--                true, and what is taken next begins anew where `taken_to` is not `version`.
--   overlapped   where `taken_to` was when the last batch came, if that had versions up to there; null otherwise
--   jumped_from  where the position stood before the last batch that moved it, if that was a jump
create table "waybill".consumer_position (
  consumer       text        not null,
  generation     int         not null,
  aggregate_type text        not null,
  aggregate_id   text        not null,
  version        bigint      not null check (version >= 0),
  waiting        int         not null default 0 check (waiting >= 0),
  held_by        uuid,
  updated_at     timestamptz not null default clock_timestamp(),
  taken_from     bigint,
  taken_to       bigint,
  overlapped     bigint,
  jumped_from    bigint,
  primary key (consumer, generation, aggregate_type, aggregate_id)
) with (fillfactor = 70);
create index consumer_position_waiting_idx on "waybill".consumer_position (consumer, generation) where waiting > 0 or held_by is not null;

-- How far a consumer is with each partition, for consumers that keep this here instead of at the broker. Moved in the
-- transaction of the effects, under the row's lock: what is below `next_offset` is done, whatever the broker delivers again.
-- A topic that was deleted and made again has the old name and another log, so `topic_id` is what the broker calls the topic. Null where
-- it gives no id: such a row is believed, and gets the id when it is next read or written.
create table "waybill".consumer_offset (
  consumer    text        not null,
  generation  int         not null,
  topic       text        not null,
  partition   text        not null,
  next_offset bigint      not null check (next_offset >= 0),
  updated_at  timestamptz not null default clock_timestamp(),
  topic_id    text,
  primary key (consumer, generation, topic, partition)
) with (fillfactor = 50);

-- Failures of events that have not been applied, counted in transactions of their own: the one that failed was rolled back.
-- `unfinished` counts starts without an end: what ends the process, and not only its own transaction, shows here.
create table "waybill".delivery_attempt (
  consumer    text        not null,
  generation  int         not null,
  event_id    uuid        not null,
  attempts    int         not null default 0,
  unfinished  int         not null default 0,
  first_error text,
  last_error  text,
  first_at    timestamptz not null default clock_timestamp(),
  started_at  timestamptz,
  finished_at timestamptz,
  primary key (consumer, generation, event_id)
) with (fillfactor = 70);

-- Messages that are stored before they are applied: all of them in stored mode, in direct mode only those that wait.
--   0 due      in line, in order of seq
--   1 retry    head of its key: failed, due again at next_attempt_at; blocks what is behind it
--   2 held     behind a head, out of the due range
--   3 dead     head that gave up: its dead letter waits for an operator, and it blocks what is behind it
--   4 waiting  came before its predecessor, or behind a dead letter; applied in the order of versions when its turn comes
-- `unknown` is what the instance that put the message aside did not know: its `stream`, or its event `type`. Null of every other.
create table "waybill".inbox_message (
  seq             bigint generated always as identity (cache 1),
  key             bigint      not null,
  lane            smallint    not null,
  state           smallint    not null default 0 check (state between 0 and 4),
  consumer        text        not null,
  generation      int         not null,
  event_id        uuid        not null,
  aggregate_type  text        not null,
  aggregate_id    text        not null,
  version         bigint      not null,
  attempts        int         not null default 0,
  topic           text        not null,
  ordering_key    text,
  message_id      text        not null,
  attributes      jsonb       not null,
  body            bytea       not null,
  published_at    timestamptz not null,
  received_at     timestamptz not null default clock_timestamp(),
  next_attempt_at timestamptz,
  started_at      timestamptz,
  error           text,
  unknown         text,
  primary key (consumer, generation, lane, state, seq),
  unique (consumer, generation, event_id)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
create unique index inbox_message_head_idx on "waybill".inbox_message (consumer, generation, lane, key) include (seq) where state in (1, 3);
create index inbox_message_retry_idx on "waybill".inbox_message (consumer, generation, lane, next_attempt_at) where state = 1;
create index inbox_message_held_idx on "waybill".inbox_message (consumer, generation, lane, key, seq) where state = 2;
create index inbox_message_waiting_idx on "waybill".inbox_message (consumer, generation, aggregate_type, aggregate_id, version) where state = 4;

-- One row for each lane of a consumer's stored messages: which instance works it, and until when.
create table "waybill".inbox_lane (
  consumer        text     not null,
  lane            smallint not null,
  lock_token      uuid,
  locked_by       text,
  locked_at       timestamptz,
  lock_expires_at timestamptz,
  primary key (consumer, lane)
) with (fillfactor = 50);

-- Messages that stored mode has applied, as they were received, for consumers that keep them (`archive: true`). Only people read
-- them; retention removes them.
create table "waybill".inbox_archive (
  consumer       text        not null,
  generation     int         not null,
  event_id       uuid        not null,
  aggregate_type text        not null,
  aggregate_id   text        not null,
  version        bigint      not null,
  topic          text        not null,
  ordering_key   text,
  message_id     text        not null,
  attributes     jsonb       not null,
  body           bytea       not null,
  published_at   timestamptz not null,
  received_at    timestamptz not null,
  archived_at    timestamptz not null default clock_timestamp(),
  primary key (consumer, generation, event_id)
);

-- Messages that a consumer gave up on, with everything that is needed to apply them later.
--   dead ──▶ redriving ──▶ redriven        redriving ──▶ dead (it failed again)
--   dead ──▶ discarded                     a handler that says discard(reason) makes it discarded at once
-- `history` lists what happened to it since, oldest first.
create table "waybill".dead_letter (
  id              bigint generated always as identity primary key,
  consumer        text        not null,
  generation      int         not null,
  event_id        uuid        not null,
  event_type      text        not null,
  topic           text        not null,
  aggregate_type  text,
  aggregate_id    text,
  version         bigint,
  reason          text        not null,
  error           text        not null,
  attempts        int         not null,
  state           text        not null default 'dead' check (state in ('dead', 'redriving', 'redriven', 'discarded')),
  redrives        int         not null default 0,
  ordering_key    text,
  message_id      text        not null,
  attributes      jsonb       not null,
  body            bytea       not null,
  published_at    timestamptz not null,
  first_failed_at timestamptz not null,
  dead_at         timestamptz not null default clock_timestamp(),
  next_attempt_at timestamptz,
  history         jsonb       not null default '[]',
  unique (consumer, generation, event_id)
);
create index dead_letter_group_idx on "waybill".dead_letter (consumer, reason, event_type, id) where state = 'dead';
create index dead_letter_redriving_idx on "waybill".dead_letter (consumer, generation, id) where state = 'redriving';
create index dead_letter_aggregate_idx on "waybill".dead_letter (consumer, generation, aggregate_type, aggregate_id, version);
create index dead_letter_dead_at_idx on "waybill".dead_letter (dead_at);

-- Messages that are not believed: a sample of those that a consumer refused because their signature is missing or wrong, at most 100
-- of each reason, so that a flood of them fills nothing. They have taken no effect, and only people read them. `body` is the
-- beginning of the body, `body_bytes` the size of all of it.
create table "waybill".refused_message (
  consumer     text        not null,
  reason       text        not null check (reason in ('unsigned', 'unknown_key', 'forged')),
  slot         smallint    not null check (slot between 1 and 100),
  topic        text        not null,
  message_id   text        not null,
  ordering_key text,
  attributes   jsonb       not null,
  body         bytea       not null,
  body_bytes   bigint      not null,
  published_at timestamptz not null,
  refused_at   timestamptz not null default clock_timestamp(),
  primary key (consumer, reason, slot)
);

-- Locks the letters of these events that are not settled, and returns the events that have one: a transaction that applies an event
-- settles the dead letter that it may have, so that letter and inbox never contradict each other. It looks with a snapshot of its own: a
-- statement that waited for a burial to end does not see the letter that came of it, and this does. Letters are locked before inbox
-- rows, in the order of their numbers. Where a consumer has no open letter, as most of the time, it looks at two index entries.
create function "waybill".lock_letters(consumer text, generation int, events uuid[]) returns setof uuid
language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
  if exists (select from "waybill".dead_letter d where d.consumer = lock_letters.consumer and d.state = 'dead')
     or exists (select from "waybill".dead_letter d
                 where d.consumer = lock_letters.consumer and d.generation = lock_letters.generation and d.state = 'redriving') then
    return query
    select d.event_id from "waybill".dead_letter d
     where d.consumer = lock_letters.consumer and d.generation = lock_letters.generation and d.event_id = any (events)
       and d.state in ('dead', 'redriving')
     order by d.id for update;
  end if;
end $$;

insert into "waybill"."migration" (number, name, checksum, breaking, applied_by)
values (5, '0005_create_consumer', '36df2b1435f729618b88e472e7baabd8f96f71ddaab21bb7c06587cb03dcc115', false, '0.1.0');

-- 0006_create_commands
-- Idempotent commands: one row says that a request took effect. It is the first thing its transaction writes, and it commits or
-- rolls back with everything else in there.

-- One row per request that took effect. A plain table: the key must be unique for ever, so time partitions are out. Rows live for an hour
-- and a little; clean-up deletes the oldest by the index on created_at. Autovacuum keeps pace with it, because each row is written once
-- and deleted once.
create table "waybill".command_marker (
  created_at  timestamptz not null default clock_timestamp(),
  rejected    boolean     not null default false,
  principal   text        not null,
  request_id  text        not null,
  command     text        not null,
  -- The first 16 bytes of the SHA-256 of the command's name and input.
  fingerprint bytea       not null,
  -- What the first run answered, as JSON; null where the command does not keep it.
  response    text,
  token       text,
  primary key (principal, request_id)
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0,
        autovacuum_vacuum_insert_scale_factor = 0.2);
create index command_marker_created_at_idx on "waybill".command_marker (created_at);

-- For how long markers are kept at least, whatever a clean-up asks for: the TTL and its margin. The owner changes it.
create table "waybill".marker_retention (
  one     boolean primary key default true check (one),
  keep_ms bigint  not null check (keep_ms > 0)
);
insert into "waybill".marker_retention (keep_ms) values (3960000);

-- How a command's transaction begins, in one round trip: the marker first, then the aggregates. No rows, and no locks, if the
-- request is known already; otherwise one row per aggregate, and one with nulls if there is none.
--
-- A run that waits for another one of the same request waits for the short lock time-out that the transaction began with; what comes
-- after it may wait longer.
create function "waybill".claim_command(
  principal text, request_id text, command text, fingerprint bytea, types text[], ids text[], lock_timeout_ms text
) returns table (aggregate_type text, aggregate_id text, version bigint)
language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
  insert into "waybill".command_marker (principal, request_id, command, fingerprint)
  values (claim_command.principal, claim_command.request_id, claim_command.command, claim_command.fingerprint)
  on conflict (principal, request_id) do nothing;
  if not found then
    return;
  end if;
  perform set_config('lock_timeout', lock_timeout_ms, true);
  if cardinality(types) = 0 then
    return next;
  else
    return query select * from "waybill".lock_aggregates(types, ids);
  end if;
end $$;

-- Keeps a command's answer in the marker that this transaction made; a marker of another transaction is never changed.
create function "waybill".answer_command(principal text, request_id text, rejected boolean, response text, token text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  update "waybill".command_marker m set rejected = answer_command.rejected, response = answer_command.response, token = answer_command.token
   where m.principal = answer_command.principal and m.request_id = answer_command.request_id and "waybill".xid_in_progress(m.xmin);
  return found;
end $$;

-- Deletes the oldest markers whose time is over, and tells how many milliseconds the oldest that is left is late. `keep_ms` is the
-- age by the witnessed clock; less than marker_retention says counts as that.
--
-- `skip locked` lets the instances share the work. The rows are found first and deleted by their place: a join could be planned as a
-- scan of the whole table. Index: command_marker_created_at_idx.
create function "waybill".expire_markers(keep_ms bigint, most int) returns table (deleted int, lag_ms bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  kept bigint := greatest(expire_markers.keep_ms, (select r.keep_ms from "waybill".marker_retention r), 1);
  past timestamptz := clock_timestamp() - kept * interval '1 millisecond';
begin
  delete from "waybill".command_marker where ctid = any (array(
    select m.ctid from "waybill".command_marker m where m.created_at < past order by m.created_at limit most for update skip locked));
  get diagnostics deleted = row_count;
  lag_ms := (select (extract(epoch from clock_timestamp() - min(m.created_at)) * 1000)::bigint - kept from "waybill".command_marker m);
  return next;
end $$;

-- The marker of one request, for readers who name its principal and id: those of others they may not see.
create function "waybill".trace_marker(principal text, request_id text) returns table (command text, rejected boolean, created_at timestamptz)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select m.command, m.rejected, m.created_at from "waybill".command_marker m
   where m.principal = trace_marker.principal and m.request_id = trace_marker.request_id
$$;

insert into "waybill"."migration" (number, name, checksum, breaking, applied_by)
values (6, '0006_create_commands', 'cb8af8fb916aab448ebb8ef3217ca28aba2ea20c1adfd58c8a4fd5b2ada3926e', false, '0.1.0');

-- 0007_create_blobs
-- Payloads that are too large for an event: the event carries a reference, the bytes are here (a claim check).

-- One row per payload. It is written before the transaction whose event refers to it commits, in a transaction of its own, under a key
-- made from its hash. So a crash in between leaves a blob without a reference, never a reference without its blob. `used_at` is the last
-- time that the same bytes were written; retention goes by it.
create table "waybill".blob (
  key     text        primary key,
  bytes   bigint      not null check (bytes >= 0),
  used_at timestamptz not null default clock_timestamp()
);
create index blob_used_at_idx on "waybill".blob (used_at);

-- The bytes in parts, so that no statement has to carry all of them.
create table "waybill".blob_part (
  key   text  not null references "waybill".blob on delete cascade,
  part  int   not null,
  bytes bytea not null,
  primary key (key, part)
);
-- Large payloads are often compressed already, and Postgres would try for longer than it takes to write them.
alter table "waybill".blob_part alter column bytes set storage external;

insert into "waybill"."migration" (number, name, checksum, breaking, applied_by)
values (7, '0007_create_blobs', '575cf45dcb3c7d5c0eef6d3eb2a90ef4700d6ec7c58ee23c50ec3004e6929490', false, '0.1.0');

insert into "waybill"."deployment" (service, deployment_id, stamped_on)
values ('video', coalesce(null::text, gen_random_uuid()::text), "waybill"."database_identity"())
on conflict do nothing;

do $waybill$
declare
  role text;
begin
  foreach role in array array['public', 'anon', 'authenticated'] loop
    begin
      execute 'revoke all on schema "waybill" from ' || quote_ident(role);
      execute 'revoke all on all tables in schema "waybill" from ' || quote_ident(role);
      execute 'revoke all on all sequences in schema "waybill" from ' || quote_ident(role);
      execute 'revoke all on all routines in schema "waybill" from ' || quote_ident(role);
    exception when undefined_object then
      null; -- no such role here, or not any more: nothing to take from it
    end;
  end loop;
end
$waybill$;

do $waybill$
declare
  wanted record;
  role   record;
  mark   text := 'Waybill: service video, schema waybill, database ' || current_database();
  reason text;
begin
  for wanted in select * from (values ('waybill_owner', 'waybill_video_owner'), ('waybill_app', 'waybill_video_app'), ('waybill_relay', 'waybill_video_relay'), ('waybill_consumer', 'waybill_video_consumer'), ('waybill_readonly', 'waybill_video_readonly'), ('waybill_payloads', 'waybill_video_payloads')) as w (former, name) loop
    reason := null;
    if exists (select from pg_catalog.pg_namespace n join pg_catalog.pg_roles r on r.oid = n.nspowner or exists (select from pg_catalog.aclexplode(n.nspacl) a where a.grantee = r.oid)
                where n.nspname = 'waybill' and r.rolname = wanted.former)
       and not exists (select from pg_catalog.pg_roles r where r.rolname = wanted.name) then
      select pg_catalog.string_agg(distinct d.datname, ', ') into reason
        from pg_catalog.pg_shdepend s join pg_catalog.pg_database d on d.oid = s.dbid
       where s.refclassid = 'pg_catalog.pg_authid'::pg_catalog.regclass and s.refobjid = (select r.oid from pg_catalog.pg_roles r where r.rolname = wanted.former)
         and d.datname <> current_database();
      if reason is not null then
        raise exception 'The role "%" serves other databases of this server, too (%), so its members may use both. Take it out of this one (reassign owned by "%" to current_user; drop owned by "%"), run this again with roles, and grant each login its new role.', wanted.former, reason, wanted.former, wanted.former
          using errcode = 'WB008';
      end if;
      execute pg_catalog.format('alter role %I rename to %I', wanted.former, wanted.name);
    end if;
    begin
      if not exists (select from pg_catalog.pg_roles r where r.rolname = wanted.name) then
        execute pg_catalog.format('create role %I nologin', wanted.name);
        execute pg_catalog.format('comment on role %I is %L', wanted.name, mark);
      end if;
    exception when duplicate_object or unique_violation then
      null; -- another database makes it at this moment: it is looked at as any that was there before
    end;
    select r.oid, r.rolcanlogin or r.rolsuper or r.rolcreaterole or r.rolcreatedb or r.rolreplication or r.rolbypassrls as mighty,
           pg_catalog.shobj_description(r.oid, 'pg_authid') as mark,
           exists (select from pg_catalog.pg_namespace n
                    where n.nspname = 'waybill'
                      and (n.nspowner = r.oid or exists (select from pg_catalog.aclexplode(n.nspacl) a where a.grantee = r.oid))) as own,
           (select pg_catalog.string_agg(m.rolname, ', ') from pg_catalog.pg_auth_members g join pg_catalog.pg_roles m on m.oid = g.member
             where g.roleid = r.oid and m.rolname not in (current_user, session_user)) as members,
           (select pg_catalog.string_agg(distinct d.datname, ', ')
              from pg_catalog.pg_shdepend s join pg_catalog.pg_database d on d.oid = s.dbid
             where s.refclassid = 'pg_catalog.pg_authid'::pg_catalog.regclass and s.refobjid = r.oid and d.datname <> current_database()) as elsewhere
      into role from pg_catalog.pg_roles r where r.rolname = wanted.name;
    if role.mighty then
      reason := pg_catalog.format('may log in or has rights of an administrator. Take those away: alter role %I nologin nosuperuser nocreaterole nocreatedb noreplication nobypassrls', wanted.name);
    elsif role.mark like 'Waybill: %' and role.mark <> mark
          and exists (select from pg_catalog.pg_database d where d.datname = substring(role.mark from ', database (.*)$')) then
      reason := 'serves another schema or database (' || role.mark || '). Give this service another name, or its schema, or a server of its own: both are in the names of its roles';
    elsif role.mark is distinct from mark and role.elsewhere is not null then
      reason := 'has rights in other databases (' || role.elsewhere || '). Give this service another name, or its schema, or a server of its own: both are in the names of its roles';
    elsif not role.own and role.mark is distinct from mark then
      reason := pg_catalog.format('was not made for this schema. If nothing needs it, drop it: drop owned by %I; drop role %I', wanted.name, wanted.name);
    elsif not role.own and role.members is not null then
      reason := pg_catalog.format('has members already: %s. Take them out (revoke %I from …) and grant it again to those who shall have it, after this run', role.members, wanted.name);
    end if;
    if reason is not null then
      raise exception 'The role "%" exists and %.', wanted.name, reason using errcode = 'WB008';
    end if;
    if role.mark is distinct from mark then
      begin
        execute pg_catalog.format('comment on role %I is %L', wanted.name, mark);
      exception when insufficient_privilege then
        null; -- it is this schema's own all the same
      end;
    end if;
  end loop;
end
$waybill$;

do $waybill$
declare
  made record;
begin
  if not pg_catalog.pg_has_role(current_user, 'waybill_video_owner', 'usage') then
    execute pg_catalog.format('grant "waybill_video_owner" to %I', current_user);
  end if;
  alter schema "waybill" owner to "waybill_video_owner";
  for made in
    select c.oid::pg_catalog.regclass as object, case c.relkind when 'v' then 'view' when 'S' then 'sequence' else 'table' end as kind
      from pg_catalog.pg_class c
     where c.relnamespace = '"waybill"'::pg_catalog.regnamespace and c.relkind in ('r', 'p', 'v', 'S')
       and c.relowner <> '"waybill_video_owner"'::pg_catalog.regrole
       and not exists (select from pg_catalog.pg_depend d where d.objid = c.oid and d.deptype = 'i' and d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass)
  loop
    execute pg_catalog.format('alter %s %s owner to "waybill_video_owner"', made.kind, made.object);
  end loop;
  for made in
    select p.oid::pg_catalog.regprocedure as object
      from pg_catalog.pg_proc p
     where p.pronamespace = '"waybill"'::pg_catalog.regnamespace
       and p.proowner <> '"waybill_video_owner"'::pg_catalog.regrole
  loop
    execute pg_catalog.format('alter routine %s owner to "waybill_video_owner"', made.object);
  end loop;
end
$waybill$;

revoke all on schema "waybill" from "waybill_video_app", "waybill_video_relay", "waybill_video_consumer", "waybill_video_readonly", "waybill_video_payloads";
revoke all on all tables in schema "waybill" from "waybill_video_app", "waybill_video_relay", "waybill_video_consumer", "waybill_video_readonly", "waybill_video_payloads";
revoke all on all sequences in schema "waybill" from "waybill_video_app", "waybill_video_relay", "waybill_video_consumer", "waybill_video_readonly", "waybill_video_payloads";
revoke all on all routines in schema "waybill" from "waybill_video_app", "waybill_video_relay", "waybill_video_consumer", "waybill_video_readonly", "waybill_video_payloads";
grant usage on schema "waybill" to "waybill_video_app", "waybill_video_relay", "waybill_video_consumer", "waybill_video_readonly", "waybill_video_payloads";
grant select on "waybill"."migration" to "waybill_video_app";
grant select on "waybill"."migration" to "waybill_video_relay";
grant select on "waybill"."migration" to "waybill_video_consumer";
grant select on "waybill"."migration" to "waybill_video_readonly";
grant select on "waybill"."migration" to "waybill_video_payloads";
grant select on "waybill"."deployment" to "waybill_video_app";
grant select on "waybill"."deployment" to "waybill_video_relay";
grant select on "waybill"."deployment" to "waybill_video_consumer";
grant select on "waybill"."deployment" to "waybill_video_readonly";
grant select on "waybill"."deployment" to "waybill_video_payloads";
grant select on "waybill"."operation" to "waybill_video_readonly";
grant select on "waybill"."audit_log" to "waybill_video_readonly";
grant select on "waybill"."aggregate_version" to "waybill_video_app";
grant select on "waybill"."aggregate_version" to "waybill_video_readonly";
grant select on "waybill"."unlocked_write" to "waybill_video_app";
grant select on "waybill"."unlocked_write" to "waybill_video_relay";
grant select on "waybill"."unlocked_write" to "waybill_video_readonly";
grant select, delete on "waybill"."outbox" to "waybill_video_relay";
grant select (id, topic, aggregate_type, aggregate_id, version, event_type, schema_version, content_type, headers, occurred_at) on "waybill"."outbox" to "waybill_video_readonly";
grant select (id, payload) on "waybill"."outbox" to "waybill_video_payloads";
grant select (source, source_event_id, ordinal, event_id, emitted_at) on "waybill"."outbox_source" to "waybill_video_readonly";
grant select, update (state, publish_attempts, void, next_retry_at, parked_at, last_error), delete on "waybill"."outbox_dispatch" to "waybill_video_relay";
grant select on "waybill"."outbox_dispatch" to "waybill_video_readonly";
grant select, update (lock_token, locked_by, locked_at, lock_expires_at, batch_from, batch_to) on "waybill"."outbox_lane" to "waybill_video_relay";
grant select on "waybill"."outbox_lane" to "waybill_video_readonly";
grant select, insert, update, delete on "waybill"."outbox_relay" to "waybill_video_relay";
grant select on "waybill"."outbox_relay" to "waybill_video_readonly";
grant select, insert on "waybill"."outbox_receipt" to "waybill_video_relay";
grant select on "waybill"."outbox_receipt" to "waybill_video_readonly";
grant select on "waybill"."outbox_pause" to "waybill_video_relay";
grant select on "waybill"."outbox_pause" to "waybill_video_readonly";
grant select on "waybill"."outbox_status" to "waybill_video_relay";
grant select on "waybill"."outbox_status" to "waybill_video_readonly";
grant select, insert, update (used_at) on "waybill"."blob" to "waybill_video_app";
grant select, insert, update (used_at) on "waybill"."blob" to "waybill_video_consumer";
grant select, update (used_at), delete on "waybill"."blob" to "waybill_video_relay";
grant select on "waybill"."blob" to "waybill_video_readonly";
grant select, insert on "waybill"."blob_part" to "waybill_video_app";
grant select, insert on "waybill"."blob_part" to "waybill_video_consumer";
grant select on "waybill"."blob_part" to "waybill_video_payloads";
grant select, insert on "waybill"."command_marker" to "waybill_video_app";
grant select (created_at, rejected, command) on "waybill"."command_marker" to "waybill_video_readonly";
grant select (created_at, rejected, command, principal, request_id, response) on "waybill"."command_marker" to "waybill_video_payloads";
grant select on "waybill"."marker_retention" to "waybill_video_app";
grant select on "waybill"."marker_retention" to "waybill_video_readonly";
grant select, insert, update on "waybill"."retention_clock" to "waybill_video_app";
grant select, insert, update on "waybill"."retention_clock" to "waybill_video_consumer";
grant select on "waybill"."retention_clock" to "waybill_video_readonly";
grant select on "waybill"."consumer" to "waybill_video_app";
grant select, insert, update on "waybill"."consumer" to "waybill_video_consumer";
grant select on "waybill"."consumer" to "waybill_video_readonly";
grant select on "waybill"."consumer_reader" to "waybill_video_app";
grant select, insert, update, delete on "waybill"."consumer_reader" to "waybill_video_consumer";
grant select on "waybill"."consumer_reader" to "waybill_video_readonly";
grant select (consumer, generation, event_id, conflicted_at) on "waybill"."inbox" to "waybill_video_app";
grant select, insert, update (processed_at, conflicted_at), delete on "waybill"."inbox" to "waybill_video_consumer";
grant select (consumer, generation, event_id, processed_at, source, conflicted_at) on "waybill"."inbox" to "waybill_video_readonly";
grant select on "waybill"."consumer_position" to "waybill_video_app";
grant select, insert, update, delete on "waybill"."consumer_position" to "waybill_video_consumer";
grant select on "waybill"."consumer_position" to "waybill_video_readonly";
grant select, insert, update, delete on "waybill"."consumer_offset" to "waybill_video_consumer";
grant select on "waybill"."consumer_offset" to "waybill_video_readonly";
grant select, insert, update, delete on "waybill"."delivery_attempt" to "waybill_video_consumer";
grant select on "waybill"."delivery_attempt" to "waybill_video_readonly";
grant select, insert, update, delete on "waybill"."inbox_message" to "waybill_video_consumer";
grant select (consumer, generation, event_id, seq, lane, key, state, attempts, error, next_attempt_at, started_at, aggregate_type, aggregate_id, version, topic, ordering_key, message_id, attributes, published_at, received_at, unknown) on "waybill"."inbox_message" to "waybill_video_readonly";
grant select (consumer, generation, event_id, body) on "waybill"."inbox_message" to "waybill_video_payloads";
grant select, insert, update (archived_at), delete on "waybill"."inbox_archive" to "waybill_video_consumer";
grant select (consumer, generation, event_id, aggregate_type, aggregate_id, version, topic, ordering_key, message_id, attributes, published_at, received_at, archived_at) on "waybill"."inbox_archive" to "waybill_video_readonly";
grant select (consumer, generation, event_id, body) on "waybill"."inbox_archive" to "waybill_video_payloads";
grant select, insert, update on "waybill"."inbox_lane" to "waybill_video_consumer";
grant select on "waybill"."inbox_lane" to "waybill_video_readonly";
grant select, insert, update, delete on "waybill"."dead_letter" to "waybill_video_consumer";
grant select (id, consumer, generation, event_id, event_type, aggregate_type, aggregate_id, version, state, reason, error, attempts, redrives, history, topic, ordering_key, message_id, attributes, published_at, first_failed_at, dead_at, next_attempt_at) on "waybill"."dead_letter" to "waybill_video_readonly";
grant select (id, body) on "waybill"."dead_letter" to "waybill_video_payloads";
grant select, insert, update on "waybill"."refused_message" to "waybill_video_consumer";
grant select (consumer, reason, slot, topic, message_id, body_bytes, published_at, refused_at) on "waybill"."refused_message" to "waybill_video_readonly";
grant select (consumer, reason, slot, attributes, body) on "waybill"."refused_message" to "waybill_video_payloads";
grant select on "waybill"."transport_topic" to "waybill_video_consumer";
grant select on "waybill"."transport_topic" to "waybill_video_readonly";
grant select on "waybill"."transport_subscription" to "waybill_video_consumer";
grant select on "waybill"."transport_subscription" to "waybill_video_readonly";
grant select on "waybill"."transport_lane" to "waybill_video_consumer";
grant select on "waybill"."transport_lane" to "waybill_video_readonly";
grant select on "waybill"."transport_receiver" to "waybill_video_readonly";
grant select on "waybill"."transport_message" to "waybill_video_consumer";
grant select (topic_id, seq, key, attributes, published_at) on "waybill"."transport_message" to "waybill_video_readonly";
grant select (topic_id, seq, body) on "waybill"."transport_message" to "waybill_video_payloads";
grant select, update (attempts, rest_until), delete on "waybill"."transport_delivery" to "waybill_video_consumer";
grant select on "waybill"."transport_delivery" to "waybill_video_readonly";
grant execute on function "waybill"."database_identity" to "waybill_video_app", "waybill_video_relay", "waybill_video_consumer", "waybill_video_readonly", "waybill_video_payloads";
grant execute on function "waybill"."add_events" to "waybill_video_app", "waybill_video_consumer";
grant execute on function "waybill"."add_event" to "waybill_video_app", "waybill_video_consumer";
grant execute on function "waybill"."add_facts" to "waybill_video_app";
grant execute on function "waybill"."outbox_lanes" to "waybill_video_relay", "waybill_video_readonly";
grant execute on function "waybill"."outbox_dispatching" to "waybill_video_relay", "waybill_video_readonly";
grant execute on function "waybill"."outbox_read" to "waybill_video_relay";
grant execute on function "waybill"."outbox_settle" to "waybill_video_relay";
grant execute on function "waybill"."outbox_expire" to "waybill_video_relay";
grant execute on function "waybill"."lock_aggregates" to "waybill_video_app", "waybill_video_consumer";
grant execute on function "waybill"."guard_aggregate" to "waybill_video_app";
grant execute on function "waybill"."claim_command" to "waybill_video_app";
grant execute on function "waybill"."answer_command" to "waybill_video_app";
grant execute on function "waybill"."expire_markers" to "waybill_video_app";
grant execute on function "waybill"."trace_marker" to "waybill_video_readonly";
grant execute on function "waybill"."lock_letters" to "waybill_video_consumer";
grant execute on function "waybill"."transport_publish" to "waybill_video_relay";
grant execute on function "waybill"."transport_subscribe" to "waybill_video_consumer";
grant execute on function "waybill"."transport_seek" to "waybill_video_consumer";
grant execute on function "waybill"."transport_rewind" to "waybill_video_consumer";
grant execute on function "waybill"."transport_lease" to "waybill_video_consumer";
grant execute on function "waybill"."transport_lane_of" to "waybill_video_consumer";
grant execute on function "waybill"."transport_horizon" to "waybill_video_consumer";
grant execute on function "waybill"."transport_sweep_topic" to "waybill_video_consumer";

commit;
