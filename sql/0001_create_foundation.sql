-- What every part of Waybill stands on: which migrations ran, whose schema this is, and what operators did.

-- One row for each migration that was applied. `breaking` stops processes of older packages that do not know it.
create table :schema.migration (
  number     integer     primary key,
  name       text        not null,
  checksum   text        not null,
  breaking   boolean     not null,
  applied_at timestamptz not null default clock_timestamp(),
  applied_by text        not null
);

-- One row: the service this schema belongs to, and the database it was stamped on. A copy of the database carries the
-- row along, but not the identity, and so its relays refuse to publish what the original publishes.
create table :schema.deployment (
  only_row      boolean     primary key default true check (only_row),
  service       text        not null,
  deployment_id text        not null,
  stamped_on    jsonb       not null,
  created_at    timestamptz not null default clock_timestamp(),
  adopted_at    timestamptz
);

-- Long work that an operator started: it saves its cursor as it goes, and goes on from there after a crash.
create table :schema.operation (
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
create index operation_started_idx on :schema.operation (started_at);

-- Who did what, when. Rows are only ever added.
create table :schema.audit_log (
  id            bigint      generated always as identity primary key,
  at            timestamptz not null default clock_timestamp(),
  actor         text        not null,
  database_user text        not null default session_user,
  action        text        not null,
  details       jsonb       not null default '{}'
);
create index audit_log_at_idx on :schema.audit_log (at);

-- What tells this database from its copies: the cluster (another after a restore elsewhere, the same after a
-- failover), the database within it, and the table (another after a restore into the same database). `system` is null
-- where the provider does not let us ask; then it is not compared.
create function :schema.database_identity() returns jsonb
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
               where n.nspname = :'schema' and c.relname = 'deployment'));
end
$$;
