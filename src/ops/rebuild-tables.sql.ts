/**
 * The statements of a rebuild on the user's tables: the shadow, what hangs on a table, and the swap of names.
 *
 * Names are checked and quoted; the few statements that Postgres itself writes (grants, views) come out of its catalogue.
 */
import { Name, name, qualifiedName, sql, type Statement } from '../postgres/sql.ts'
import type { Projection } from '../projection/projection.ts'

/** A table like another, with its defaults, constraints and indexes, and none of its rows. */
export function createShadow(live: string, shadow: string): Statement {
  return sql`create table ${qualifiedName(shadow)} (like ${qualifiedName(live)} including all)`
}

export function dropTable(table: string): Statement {
  return sql`drop table if exists ${qualifiedName(table)}`
}

/** Readers go on; writers wait until this transaction ends. */
export function lockWriters(table: string): Statement {
  return sql`lock table ${qualifiedName(table)} in share row exclusive mode`
}

export function renameTable(from: string, to: string): Statement {
  return sql`alter table ${qualifiedName(from)} rename to ${name(to.split('.').at(-1) ?? to)}`
}

/** What would not follow the name to another table, in words. Views do: they are made again. */
export function findObstacles(table: string): Statement<{ what: string }> {
  return sql`
    with t as (select to_regclass(${qualifiedName(table).quoted}::text)::oid as oid)
    select 'foreign key ' || k.conname as what from pg_constraint k, t where k.contype = 'f' and t.oid in (k.conrelid, k.confrelid)
    union all select 'trigger ' || g.tgname from pg_trigger g, t where g.tgrelid = t.oid and not g.tgisinternal
    union all select 'policy ' || y.polname from pg_policy y, t where y.polrelid = t.oid
    union all select 'rule ' || r.rulename from pg_rewrite r, t where r.ev_class = t.oid
    union all select 'publication ' || p.pubname from pg_publication_rel b join pg_publication p on p.oid = b.prpubid, t where b.prrelid = t.oid
    union all select 'inheritance or partitions' from pg_inherits i, t where t.oid in (i.inhrelid, i.inhparent)
    union all select 'a kind that is no plain table' from pg_class c, t where c.oid = t.oid and c.relkind <> 'r'
    union all select 'sequence ' || s.relname from pg_depend d join pg_class s on s.oid = d.objid and s.relkind = 'S', t
               where d.refobjid = t.oid and d.deptype = 'a' and d.classid = 'pg_class'::regclass
    union all select 'materialized view ' || v.relname
                from pg_depend d join pg_rewrite r on r.oid = d.objid join pg_class v on v.oid = r.ev_class and v.relkind = 'm', t
               where d.refobjid = t.oid and d.classid = 'pg_rewrite'::regclass
    order by 1`
}

/** The statements that give the shadow the owner and the grants of the live table. */
export function findGrants(live: string, shadow: string): Statement<{ statement: string }> {
  const target = qualifiedName(shadow).quoted
  return sql`
    with t as (select c.oid, c.relacl, c.relowner from pg_class c where c.oid = to_regclass(${qualifiedName(live).quoted}::text))
    select format('grant %s on %s to %s%s', a.privilege_type, ${target}::text,
                  case a.grantee when 0 then 'public' else quote_ident(pg_get_userbyid(a.grantee)) end,
                  case when a.is_grantable then ' with grant option' else '' end) as statement
      from t, aclexplode(t.relacl) a where a.grantee <> t.relowner
    union all
    select format('grant %s (%I) on %s to %s', a.privilege_type, c.attname, ${target}::text,
                  case a.grantee when 0 then 'public' else quote_ident(pg_get_userbyid(a.grantee)) end)
      from t join pg_attribute c on c.attrelid = t.oid and c.attacl is not null, aclexplode(c.attacl) a where a.grantee <> t.relowner
    union all
    select format('alter table %s owner to %I', ${target}::text, pg_get_userbyid(t.relowner))
      from t where pg_get_userbyid(t.relowner) <> current_user`
}

/** The statements that make the views of a table again: run after the swap they find the other table under its name. */
export function findViews(table: string): Statement<{ statement: string }> {
  return sql`
    select format('create or replace view %s%s as %s', v.oid::regclass,
                  case when v.reloptions is null then '' else ' with (' || array_to_string(v.reloptions, ', ') || ')' end,
                  pg_get_viewdef(v.oid)) as statement
      from pg_class v
     where v.relkind = 'v' and v.oid in (
       select r.ev_class from pg_depend d join pg_rewrite r on r.oid = d.objid
        where d.classid = 'pg_rewrite'::regclass and d.refclassid = 'pg_class'::regclass
          and d.refobjid = to_regclass(${qualifiedName(table).quoted}::text))`
}

export interface ComparisonRow {
  readonly live: number
  readonly rebuilt: number
  readonly missing: number
  readonly extra: number
  readonly older: number
  readonly newer: number
  readonly different: number
  readonly live_checksum: string
  readonly rebuilt_checksum: string
}

/** Counts what two tables agree on, row by row. The checksums do not depend on the order of rows. */
export function compareTables(projection: Projection, shadow: string): Statement<ComparisonRow> {
  const { key, version, both } = comparison(projection, shadow)
  return sql`
    select count(l.${key})::int as live, count(s.${key})::int as rebuilt,
           count(*) filter (where s.${key} is null)::int as missing, count(*) filter (where l.${key} is null)::int as extra,
           count(*) filter (where s.${version} < l.${version})::int as older, count(*) filter (where s.${version} > l.${version})::int as newer,
           count(*) filter (where s.${version} = l.${version} and to_jsonb(s) <> to_jsonb(l))::int as different,
           coalesce(sum(hashtextextended(to_jsonb(l)::text, 0)::numeric) filter (where l.${key} is not null), 0)::text as live_checksum,
           coalesce(sum(hashtextextended(to_jsonb(s)::text, 0)::numeric) filter (where s.${key} is not null), 0)::text as rebuilt_checksum
      from ${both}`
}

/** A few rows that differ, as JSON. */
export function sampleDifferences(
  projection: Projection,
  shadow: string,
  limit: number,
): Statement<{ live: string | null; rebuilt: string | null }> {
  const { both } = comparison(projection, shadow)
  return sql`
    select to_jsonb(l)::text as live, to_jsonb(s)::text as rebuilt from ${both}
     where to_jsonb(l) is distinct from to_jsonb(s) limit ${limit}::int`
}

function comparison({ table, keyColumns, versionColumn }: Projection, shadow: string): Record<'key' | 'version' | 'both', Name> {
  const match = keyColumns.map((column) => `l.${name(column).quoted} = s.${name(column).quoted}`).join(' and ')
  return {
    key: name(keyColumns[0] ?? ''),
    version: name(versionColumn),
    both: new Name(`${table.quoted} l full join ${qualifiedName(shadow).quoted} s on ${match}`),
  }
}
