-- One key with other content: a fact carries a hash of its content. The outbox keeps it beside the source of the event, a consumer
-- beside the event's id, and a repeat that has another hash is told apart from one that has the same. Null: not known, as of rows
-- that are older than this, and of events that are no facts.

alter table :schema.outbox_source add column content_hash bytea;
alter table :schema.inbox add column content_hash bytea, add column conflicted_at timestamptz;

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
