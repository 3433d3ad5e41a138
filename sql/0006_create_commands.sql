-- Idempotent commands: one row says that a request took effect. It is the first thing its transaction writes, and it commits or
-- rolls back with everything else in there.

-- One row per request that took effect. A plain table: the key must be unique for ever, so time partitions are out. Rows live for an hour
-- and a little; clean-up deletes the oldest by the index on created_at. Autovacuum keeps pace with it, because each row is written once
-- and deleted once.
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

-- For how long markers are kept at least, whatever a clean-up asks for: the TTL and its margin. The owner changes it.
create table :schema.marker_retention (
  one     boolean primary key default true check (one),
  keep_ms bigint  not null check (keep_ms > 0)
);
insert into :schema.marker_retention (keep_ms) values (3960000);

-- How a command's transaction begins, in one round trip: the marker first, then the aggregates. No rows, and no locks, if the
-- request is known already; otherwise one row per aggregate, and one with nulls if there is none.
--
-- A run that waits for another one of the same request waits for the short lock time-out that the transaction began with; what comes
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

-- Keeps a command's answer in the marker that this transaction made; a marker of another transaction is never changed.
create function :schema.answer_command(principal text, request_id text, rejected boolean, response text, token text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  update :schema.command_marker m set rejected = answer_command.rejected, response = answer_command.response, token = answer_command.token
   where m.principal = answer_command.principal and m.request_id = answer_command.request_id and :schema.xid_in_progress(m.xmin);
  return found;
end $$;

-- Deletes the oldest markers whose time is over, and tells how many milliseconds the oldest that is left is late. `keep_ms` is the
-- age by the witnessed clock; less than marker_retention says counts as that.
--
-- `skip locked` lets the instances share the work. The rows are found first and deleted by their place: a join could be planned as a
-- scan of the whole table. Index: command_marker_created_at_idx.
create function :schema.expire_markers(keep_ms bigint, most int) returns table (deleted int, lag_ms bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  kept bigint := greatest(expire_markers.keep_ms, (select r.keep_ms from :schema.marker_retention r), 1);
  past timestamptz := clock_timestamp() - kept * interval '1 millisecond';
begin
  delete from :schema.command_marker where ctid = any (array(
    select m.ctid from :schema.command_marker m where m.created_at < past order by m.created_at limit most for update skip locked));
  get diagnostics deleted = row_count;
  lag_ms := (select (extract(epoch from clock_timestamp() - min(m.created_at)) * 1000)::bigint - kept from :schema.command_marker m);
  return next;
end $$;

-- The marker of one request, for readers who name its principal and id: those of others they may not see.
create function :schema.trace_marker(principal text, request_id text) returns table (command text, rejected boolean, created_at timestamptz)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select m.command, m.rejected, m.created_at from :schema.command_marker m
   where m.principal = trace_marker.principal and m.request_id = trace_marker.request_id
$$;
