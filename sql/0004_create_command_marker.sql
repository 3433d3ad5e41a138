-- Idempotent commands: one row says that a request took effect. It is the first thing its transaction writes, and it commits or
-- rolls back with everything else in there.
--
-- A plain table: the key must be unique for ever, so time partitions are out. Rows live for an hour and a little; clean-up deletes
-- the oldest by the index on created_at. Autovacuum keeps pace with it, because each row is written once and deleted once.
create table :schema.command_marker (
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
create index command_marker_created_at_idx on :schema.command_marker (created_at);

-- The lock that every writer of an aggregate takes first: its row in aggregate_version, made if it is new. Several are locked
-- one after the other in the order of type and id, the same for everybody, so that no two writers can wait for each other.
create function :schema.lock_aggregates(types text[], ids text[])
returns table (aggregate_type text, aggregate_id text, version bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  wanted record;
begin
  for wanted in select distinct w.type, w.id from unnest(types, ids) as w (type, id) order by 1, 2 loop
    select a.version into version from :schema.aggregate_version a
     where a.aggregate_type = wanted.type and a.aggregate_id = wanted.id for update;
    if not found then
      insert into :schema.aggregate_version (aggregate_type, aggregate_id, version)
      values (wanted.type, wanted.id, 0) on conflict do nothing;
      select a.version into version from :schema.aggregate_version a
       where a.aggregate_type = wanted.type and a.aggregate_id = wanted.id for update;
    end if;
    aggregate_type := wanted.type;
    aggregate_id := wanted.id;
    return next;
  end loop;
end $$;

-- How a command's transaction begins, in one round trip: the marker first, then the aggregates. No rows, and no locks, if the
-- request is known already; otherwise one row per aggregate, and one with nulls if there is none.
--
-- Who waits for another run of the same request waits for the short lock time-out that the transaction began with; what comes
-- after it may wait longer.
create function :schema.claim_command(
  principal text, request_id text, command text, fingerprint bytea, types text[], ids text[], lock_timeout_ms text
) returns table (aggregate_type text, aggregate_id text, version bigint)
language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
  insert into :schema.command_marker (principal, request_id, command, fingerprint)
  values (claim_command.principal, claim_command.request_id, claim_command.command, claim_command.fingerprint)
  on conflict (principal, request_id) do nothing;
  if not found then
    return;
  end if;
  perform set_config('lock_timeout', lock_timeout_ms, true);
  if cardinality(types) = 0 then
    return next;
  else
    return query select * from :schema.lock_aggregates(types, ids);
  end if;
end $$;
