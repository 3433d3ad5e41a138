-- breaking
-- Closes two records to the programs that write them: the audit log, and the markers of commands.

-- The audit log. Every row has the session's own user and time, whatever its writer gives; no row is changed or removed. The triggers hold
-- for the owner role and for replication roles alike. A superuser, and an owner who alters the table, can still go past them: the
-- doctor reports triggers that are missing or off.
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

-- For how long markers are kept at least, whatever a clean-up asks for: the TTL and its margin. The owner changes it.
create table :schema.marker_retention (
  one     boolean primary key default true check (one),
  keep_ms bigint  not null check (keep_ms > 0)
);
insert into :schema.marker_retention (keep_ms) values (3960000);

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

-- Keeps a command's answer in the marker that this transaction made; a marker of another transaction is never changed.
create function :schema.answer_command(principal text, request_id text, rejected boolean, response text, token text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  update :schema.command_marker m set rejected = answer_command.rejected, response = answer_command.response, token = answer_command.token
   where m.principal = answer_command.principal and m.request_id = answer_command.request_id and :schema.xid_in_progress(m.xmin);
  return found;
end $$;

-- The marker of one request, for readers who name its principal and id: those of others they may not see.
create function :schema.trace_marker(principal text, request_id text) returns table (command text, rejected boolean, created_at timestamptz)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select m.command, m.rejected, m.created_at from :schema.command_marker m
   where m.principal = trace_marker.principal and m.request_id = trace_marker.request_id
$$;
