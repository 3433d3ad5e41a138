-- What every part of Waybill stands on: which migrations ran, whose schema this is, what operators did, and how far the clock was
-- followed.

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

-- How far clean-ups have followed the database's clock, in one row. A step of the clock would make everything old at once: what the
-- clock gains while no clean-up looks is written down, and counts for no row that was there before.
--   seen_at  what it said when one of them looked last
--   leaps    what it went over since without being followed, newest first: [{"from": ms, "to": ms}]
create table :schema.retention_clock (
  one     boolean     primary key default true check (one),
  seen_at timestamptz not null,
  leaps   jsonb       not null default '[]'
) with (fillfactor = 50);

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

-- The audit log is closed to the programs that write it. Every row has the session's own user and time, whatever its writer gives; no
-- row is changed or removed. The triggers hold for the owner role and for replication roles alike. A superuser, and an owner who alters
-- the table, can still go past them: the doctor reports triggers that are missing or off.
create function :schema.audit_stamp() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  new.at := clock_timestamp();
  new.database_user := session_user;
  return new;
end $$;

create function :schema.audit_refuse() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  raise exception 'The audit log of the schema % keeps what it has: its rows cannot be changed or removed.', tg_table_schema
    using errcode = '42501', hint = 'Add a row that corrects it, or have an administrator archive the table.';
end $$;

create trigger audit_log_stamp before insert on :schema.audit_log for each row execute function :schema.audit_stamp();
create trigger audit_log_keep before update or delete or truncate on :schema.audit_log for each statement execute function :schema.audit_refuse();
alter table :schema.audit_log enable always trigger audit_log_stamp;
alter table :schema.audit_log enable always trigger audit_log_keep;

-- Adds a row to the audit log, with the session's user beside the actor. The only way in for roles that are not the owner.
create function :schema.record_audit(actor text, action text, details jsonb) returns bigint
language sql security definer set search_path = pg_catalog, pg_temp as $$
  insert into :schema.audit_log (actor, action, details) values (record_audit.actor, record_audit.action, record_audit.details) returning id
$$;

-- Whether a transaction id, as a row has it, is of a transaction that has not ended. Rows have the lower half of an id, which is near
-- the present one.
create function :schema.xid_in_progress(half xid) returns boolean
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
