-- Refuses an event whose row a trigger of the user's has dropped or given another id, instead of a dispatch row without an event, which
-- relays park. And writes the payload beside added columns without a backslash in a literal: a session in which those escape
-- (standard_conforming_strings = off) kept other bytes.

create function :schema.outbox_refuse_dropped(event uuid, aggregate_type text, aggregate_id text) returns boolean language plpgsql as $$
begin
  raise exception 'A trigger on the outbox or on outbox_dispatch dropped event % of % %, or changed its id.', event, aggregate_type, aggregate_id
    using errcode = 'WB006';
end $$;

-- As before, but for that.
create or replace function :schema.add_event(
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

  -- Asked after the event is written: whoever changes these settings locks one of the tables above, so from here on they hold.
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

-- The same for many events.
create or replace function :schema.add_events(
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
