/** What the catalogue says of a schema's roles: on which databases they work, who else works here, and what keeps the audit log. */
import { name, sql, sqlArray, type Statement } from '../../postgres/query/sql.ts'

/**
 * Roles with the rights of these group roles that may connect to other databases and have rights there. Administrators are left out:
 * a role that makes roles can take any right. What depends on a role is known for the whole server.
 */
export function selectCrossings(roles: readonly string[]): Statement<{ role: string; databases: string }> {
  return sql`
    with recursive holder as (
      select r.oid from pg_roles r where r.rolname = any (${sqlArray(roles)}::text::text[])
      union
      select m.member from pg_auth_members m join holder h on h.oid = m.roleid
    ), reach as (
      select h.oid as holder, h.oid as role from holder h
      union
      select r.holder, m.roleid from reach r join pg_auth_members m on m.member = r.role
    )
    select h.rolname::text as role, string_agg(distinct d.datname::text, ', ') as databases
      from reach r
      join pg_roles h on h.oid = r.holder
      join pg_shdepend s on s.refclassid = 'pg_authid'::regclass and s.refobjid = r.role
      join pg_database d on d.oid = s.dbid
     where d.datname <> current_database() and not h.rolsuper and not h.rolcreaterole and has_database_privilege(h.oid, d.oid, 'connect')
     group by 1
     order by 1`
}

/** Roles of other services, which their comment names, and the members of these, that may use this schema. */
export function selectForeignRoles(schema: string, roles: readonly string[]): Statement<{ role: string; mark: string }> {
  return sql`
    with recursive foreigner as (
      select r.oid, shobj_description(r.oid, 'pg_authid') as mark from pg_roles r
       where shobj_description(r.oid, 'pg_authid') like 'Waybill: service %' and r.rolname <> all (${sqlArray(roles)}::text::text[])
      union
      select m.member, f.mark from pg_auth_members m join foreigner f on f.oid = m.roleid
    )
    select r.rolname::text as role, min(f.mark) as mark
      from foreigner f join pg_roles r on r.oid = f.oid
     where not r.rolsuper and not r.rolcreaterole and has_schema_privilege(f.oid, ${schema}::text::regnamespace::oid, 'usage')
     group by 1
     order by 1`
}

export interface RoleGuards {
  readonly database: string
  readonly open_to_public: boolean
  readonly audit_kept: boolean
}

export function selectRoleGuards(schema: string): Statement<RoleGuards> {
  return sql`
    select current_database()::text as database, has_database_privilege('public', current_database(), 'connect') as open_to_public,
           (select count(*) from pg_trigger t
             where t.tgrelid = ${name(schema, 'audit_log').quoted}::text::regclass and t.tgname in ('audit_log_stamp', 'audit_log_keep')
               and t.tgenabled = 'A') = 2 as audit_kept`
}
