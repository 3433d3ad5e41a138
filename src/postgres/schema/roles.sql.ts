/**
 * The scripts that close a schema to everybody and open it to its roles. Both can be run again at any time: the end
 * state is what roles.ts says, whatever was granted before.
 *
 * They are texts, not parametrised statements, because Postgres binds nothing in such commands; the only thing put into
 * them is names from the allow-list.
 */
import { formerGroupRole, functionGrants, groupRole, groupRoles, tableGrants, type GrantedRole, type RoleNames } from './roles.ts'
import { name } from '../query/sql.ts'

/**
 * Takes every privilege from PUBLIC and from the roles that Supabase's REST layer serves the world with.
 *
 * Functions are executable by PUBLIC when they are made, and default privileges of a single schema cannot take that
 * back. So this runs after each migration run.
 */
export function lockSchemaDown(schema: string): string {
  const quoted = name(schema).quoted
  return `do $waybill$
declare
  role text;
begin
  foreach role in array array['public', 'anon', 'authenticated'] loop
    begin
      execute 'revoke all on schema ${quoted} from ' || quote_ident(role);
      execute 'revoke all on all tables in schema ${quoted} from ' || quote_ident(role);
      execute 'revoke all on all sequences in schema ${quoted} from ' || quote_ident(role);
      execute 'revoke all on all routines in schema ${quoted} from ' || quote_ident(role);
    exception when undefined_object then
      null; -- no such role here, or not any more: nothing to take from it
    end;
  end loop;
end
$waybill$;
`
}

/** Makes the group roles, gives everything to the owner and grants exactly what roles.ts lists. */
export function applyRoles(names: RoleNames): string {
  const { schema } = names
  const quoted = name(schema).quoted
  const granted = granteesOf(
    names,
    groupRoles.filter((role) => role !== 'owner'),
  )
  return [
    claimRoles(names),
    giveToOwner(names),
    `revoke all on schema ${quoted} from ${granted};`,
    `revoke all on all tables in schema ${quoted} from ${granted};`,
    `revoke all on all sequences in schema ${quoted} from ${granted};`,
    `revoke all on all routines in schema ${quoted} from ${granted};`,
    `grant usage on schema ${quoted} to ${granted};`,
    ...tableStatements(names),
    ...functionStatements(names),
    '',
  ].join('\n')
}

/** Closes a database to PUBLIC and leaves it open to this service's roles. Only its owner may, and other services of it need a grant. */
export function closeDatabaseSql(database: string, names: RoleNames): string {
  const quoted = `"${database.replaceAll('"', '""')}"`
  const roles = groupRoles.map((role) => name(groupRole(names, role)).quoted).join(', ')
  return `revoke connect, temporary on database ${quoted} from public;\ngrant connect on database ${quoted} to ${roles};\n`
}

/**
 * Makes the roles that are missing, and refuses one that is not this schema's own: roles belong to the whole server, and whoever is a
 * member of one would get its rights here. Its own is a role that has a right on the schema already, which only the owner can give, or
 * that nobody is a member of yet; its comment names the service, schema and database that it serves. Roles with names of before are
 * renamed, so that their members stay.
 */
function claimRoles(names: RoleNames): string {
  const { schema, service } = names
  const wanted = groupRoles.map((role) => `('${formerGroupRole(schema, role)}', '${groupRole(names, role)}')`).join(', ')
  return `do $waybill$
declare
  wanted record;
  role   record;
  mark   text := 'Waybill: service ${service}, schema ${schema}, database ' || current_database();
  reason text;
begin
  for wanted in select * from (values ${wanted}) as w (former, name) loop
    reason := null;
    if exists (select from pg_catalog.pg_namespace n join pg_catalog.pg_roles r on r.oid = n.nspowner or exists (select from pg_catalog.aclexplode(n.nspacl) a where a.grantee = r.oid)
                where n.nspname = '${schema}' and r.rolname = wanted.former)
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
                    where n.nspname = '${schema}'
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
`
}

/** Only a member may hand something over, so the one who migrates becomes one, unless it may do everything anyway. */
function giveToOwner(names: RoleNames): string {
  const { schema } = names
  const owner = groupRole(names, 'owner')
  const to = `owner to ${name(owner).quoted}`
  return `do $waybill$
declare
  made record;
begin
  if not pg_catalog.pg_has_role(current_user, '${owner}', 'usage') then
    execute pg_catalog.format('grant ${name(owner).quoted} to %I', current_user);
  end if;
  alter schema ${name(schema).quoted} ${to};
  for made in
    select c.oid::pg_catalog.regclass as object, case c.relkind when 'v' then 'view' when 'S' then 'sequence' else 'table' end as kind
      from pg_catalog.pg_class c
     where c.relnamespace = '${name(schema).quoted}'::pg_catalog.regnamespace and c.relkind in ('r', 'p', 'v', 'S')
       and c.relowner <> '${name(owner).quoted}'::pg_catalog.regrole
       and not exists (select from pg_catalog.pg_depend d where d.objid = c.oid and d.deptype = 'i' and d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass)
  loop
    execute pg_catalog.format('alter %s %s ${to}', made.kind, made.object);
  end loop;
  for made in
    select p.oid::pg_catalog.regprocedure as object
      from pg_catalog.pg_proc p
     where p.pronamespace = '${name(schema).quoted}'::pg_catalog.regnamespace
       and p.proowner <> '${name(owner).quoted}'::pg_catalog.regrole
  loop
    execute pg_catalog.format('alter routine %s ${to}', made.object);
  end loop;
end
$waybill$;
`
}

function tableStatements(names: RoleNames): string[] {
  return Object.entries(tableGrants).flatMap(([table, grants]) =>
    Object.entries(grants).map(
      ([role, privileges]) =>
        `grant ${privileges.join(', ')} on ${name(names.schema, table).quoted} to ${granteesOf(names, [role as GrantedRole])};`,
    ),
  )
}

function functionStatements(names: RoleNames): string[] {
  return Object.entries(functionGrants)
    .filter(([, roles]) => roles.length > 0)
    .map(([routine, roles]) => `grant execute on function ${name(names.schema, routine).quoted} to ${granteesOf(names, roles)};`)
}

function granteesOf(names: RoleNames, roles: readonly GrantedRole[]): string {
  return roles.map((role) => name(groupRole(names, role)).quoted).join(', ')
}
