/**
 * The scripts that close a schema to everybody and open it to its roles. Both can be run again at any time: the end
 * state is what roles.ts says, whatever was granted before.
 *
 * They are texts, not parametrised statements, because Postgres binds nothing in such commands; the only thing put into
 * them is names from the allow-list.
 */
import { functionGrants, groupRole, groupRoles, tableGrants, type GrantedRole } from './roles.ts'
import { name } from './sql.ts'

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
export function applyRoles(schema: string): string {
  const quoted = name(schema).quoted
  const granted = granteesOf(
    schema,
    groupRoles.filter((role) => role !== 'owner'),
  )
  return [
    groupRoles.map((role) => createRole(groupRole(schema, role))).join(''),
    giveToOwner(schema),
    `revoke all on schema ${quoted} from ${granted};`,
    `revoke all on all tables in schema ${quoted} from ${granted};`,
    `revoke all on all sequences in schema ${quoted} from ${granted};`,
    `revoke all on all routines in schema ${quoted} from ${granted};`,
    `grant usage on schema ${quoted} to ${granted};`,
    ...tableStatements(schema),
    ...functionStatements(schema),
    '',
  ].join('\n')
}

/** Roles belong to the whole server, so a migration of another database may make the same one at the same moment. */
function createRole(role: string): string {
  return `do $waybill$
begin
  if not exists (select from pg_catalog.pg_roles where rolname = '${role}') then
    create role ${name(role).quoted} nologin;
  end if;
exception when duplicate_object or unique_violation then
  null;
end
$waybill$;
`
}

/** Only a member may hand something over, so the one who migrates becomes one, unless it may do everything anyway. */
function giveToOwner(schema: string): string {
  const owner = groupRole(schema, 'owner')
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

function tableStatements(schema: string): string[] {
  return Object.entries(tableGrants).flatMap(([table, grants]) =>
    Object.entries(grants).map(
      ([role, privileges]) =>
        `grant ${privileges.join(', ')} on ${name(schema, table).quoted} to ${granteesOf(schema, [role as GrantedRole])};`,
    ),
  )
}

function functionStatements(schema: string): string[] {
  return Object.entries(functionGrants)
    .filter(([, roles]) => roles.length > 0)
    .map(([routine, roles]) => `grant execute on function ${name(schema, routine).quoted} to ${granteesOf(schema, roles)};`)
}

function granteesOf(schema: string, roles: readonly GrantedRole[]): string {
  return roles.map((role) => name(groupRole(schema, role)).quoted).join(', ')
}
