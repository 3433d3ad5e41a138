/**
 * The statements of a rebuild on the user's tables: the shadow, what hangs on a table, and the swap of names.
 *
 * Names are checked and quoted; the few statements that Postgres itself writes (access, views) come out of its catalogue.
 */
import { joined, name, part, qualifiedName, sql, type Name, type Part, type Statement } from '../../postgres/query/sql.ts'
import type { Projection } from '../../projection/projection.ts'

/** A table like another, with its defaults, constraints and indexes, and none of its rows. Who may use it is `findAccess`'s. */
export function createShadow(live: string, shadow: string): Statement {
  return sql`create table ${qualifiedName(shadow)} (like ${qualifiedName(live)} including all)`
}

export function dropTable(table: string): Statement {
  return sql`drop table if exists ${qualifiedName(table)}`
}

export function analyzeTable(table: string): Statement {
  return sql`analyze ${qualifiedName(table)}`
}

/** Readers go on; writers wait until this transaction ends. */
export function lockWriters(table: string): Statement {
  return sql`lock table ${qualifiedName(table)} in share row exclusive mode`
}

export function renameTable(from: string, to: string): Statement {
  return sql`alter table ${qualifiedName(from)} rename to ${name(to.split('.').at(-1) ?? to)}`
}

/**
 * What would not follow the name to another table, in words. Views do: they are made again. So do functions whose body is a text.
 *
 * What belongs to the table comes first. Then what stands elsewhere and is bound to it: policies, rules and functions with a
 * parsed body, and whatever uses the type of its rows.
 */
export function findObstacles(table: string): Statement<{ what: string }> {
  return sql`
    with t as (select c.oid, c.reltype, y.typarray from pg_class c join pg_type y on y.oid = c.reltype
                where c.oid = to_regclass(${qualifiedName(table).quoted}::text)),
    bound as (
      select d.classid, d.objid, d.objsubid from pg_depend d, t
       where d.refclassid = 'pg_class'::regclass and d.refobjid = t.oid
         and d.classid in ('pg_proc'::regclass, 'pg_policy'::regclass, 'pg_rewrite'::regclass)
      union
      select d.classid, d.objid, d.objsubid from pg_depend d, t
       where d.refclassid = 'pg_type'::regclass and d.refobjid in (t.reltype, t.typarray) and d.deptype <> 'i'
    )
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
    union all select pg_describe_object(b.classid, b.objid, b.objsubid) from bound b
               where not exists (select from pg_policy y, t where b.classid = 'pg_policy'::regclass and y.oid = b.objid and y.polrelid = t.oid)
                 and not exists (select from pg_rewrite r, t where b.classid = 'pg_rewrite'::regclass and r.oid = b.objid and (r.ev_class = t.oid
                                   or r.rulename = '_RETURN' and exists (select from pg_depend d where d.objid = r.oid and d.refobjid = t.oid)))
    order by 1`
}

/**
 * The statements that make a shadow as closed, and as open, as the live table, in their order: its owner, row level security,
 * replica identity (what readers of its changes are told), storage parameters and grants. First everything is taken from whomever
 * default privileges gave something to.
 *
 * The owner comes first: grants to the one who rebuilds would become the new owner's if it came later. Who may rename the live
 * table has its owner's rights, and so may do the rest.
 */
export function findAccess(live: string, shadow: string): Statement<{ statement: string }> {
  const target = qualifiedName(shadow).quoted
  return sql`
    with l as (select c.* from pg_class c where c.oid = to_regclass(${qualifiedName(live).quoted}::text)),
         s as (select c.* from pg_class c where c.oid = to_regclass(${target}::text)),
    option (name, value) as (
      select option_name, option_value from l, pg_options_to_table(l.reloptions)
      union all
      select 'toast.' || option_name, option_value from l join pg_class t on t.oid = l.reltoastrelid, pg_options_to_table(t.reloptions)
    ), held (grantee) as (
      select a.grantee from s, aclexplode(s.relacl) a
      union
      select a.grantee from s join pg_attribute c on c.attrelid = s.oid, aclexplode(c.attacl) a
    ), given (privilege, grantee, is_grantable) as (
      select a.privilege_type, a.grantee, a.is_grantable from l, aclexplode(l.relacl) a
      union all
      select format('%s (%I)', a.privilege_type, c.attname), a.grantee, a.is_grantable
        from l join pg_attribute c on c.attrelid = l.oid and not c.attisdropped, aclexplode(c.attacl) a
    ), keyed (table_oid, name, is_identity, is_immediate, shape) as (
      select c.oid, x.relname, i.indisreplident, i.indimmediate, ${indexShape}
        from pg_class c join pg_namespace n on n.oid = c.relnamespace join pg_index i on i.indrelid = c.oid join pg_class x on x.oid = i.indexrelid
       where c.oid in (select oid from l union select oid from s)
    ), step (place, statement) as (
      select 1, format('alter table %s owner to %I', ${target}::text, pg_get_userbyid(l.relowner)) from l, s where l.relowner <> s.relowner
      union all
      select 2, format('alter table %s %s row level security', ${target}::text, case when l.relrowsecurity then 'enable' else 'disable' end)
        from l, s where l.relrowsecurity <> s.relrowsecurity
      union all
      select 2, format('alter table %s %s row level security', ${target}::text, case when l.relforcerowsecurity then 'force' else 'no force' end)
        from l, s where l.relforcerowsecurity <> s.relforcerowsecurity
      union all
      select 2, format('alter table %s replica identity %s', ${target}::text, case l.relreplident when 'f' then 'full' when 'n' then 'nothing' else 'default' end)
        from l, s where l.relreplident <> s.relreplident and l.relreplident <> 'i'
      union all
      select 2, format('alter table %s replica identity using index %I', ${target}::text, min(k.name))
        from l join keyed i on i.table_oid = l.oid and i.is_identity, s join keyed k on k.table_oid = s.oid and k.is_immediate
       where k.shape = i.shape having count(*) > 0
      union all
      select 3, format('alter table %s set (%s = %L)', ${target}::text, o.name, o.value) from option o
      union all
      select 4, format('revoke all on %s from %s cascade', ${target}::text, case h.grantee when 0 then 'public' else quote_ident(pg_get_userbyid(h.grantee)) end)
        from l, s, held h where h.grantee not in (l.relowner, s.relowner)
      union all
      select 5, format('grant %s on %s to %s%s', g.privilege, ${target}::text,
                       case g.grantee when 0 then 'public' else quote_ident(pg_get_userbyid(g.grantee)) end,
                       case when g.is_grantable then ' with grant option' else '' end)
        from l, given g where g.grantee <> l.relowner
    )
    select statement from step order by place`
}

/** Extended statistics (`e`) without the names. */
export const statisticsShape: Part = part`concat_ws(' ', 'statistics', e.stxkind::text, 'on', substring(pg_get_statisticsobjdef(e.oid) from ' ON (.*) FROM '))`

/** An index (`x`, of the table `c` in `n`) without the names, which those that `like` gives have others. */
export const indexShape: Part = part`replace(pg_get_indexdef(x.oid), format('INDEX %I ON %I.%I', x.relname, n.nspname, c.relname), 'INDEX')`

export interface ShapeRow {
  /** Which of the two has it. */
  readonly owner: 'live' | 'shadow'
  readonly what: string
}

/**
 * What only one of the two tables has of columns, constraints, indexes and statistics, in words. Names and order do not count: those that
 * `like` gives are others. Nor does it count whether a constraint was ever validated: that of a copy always is.
 *
 * Foreign keys and sequences of its own are none of it, for a table that has them is not replaced. PostgreSQL 18 keeps `not null`
 * as a constraint too, and earlier ones with the column alone, so it is read there.
 */
export function compareShapes(live: string, shadow: string): Statement<ShapeRow> {
  return sql`
    with t (owner, oid) as (
      values ('live', to_regclass(${qualifiedName(live).quoted}::text)), ('shadow', to_regclass(${qualifiedName(shadow).quoted}::text))
    ), shape (owner, what) as (
      select t.owner, concat_ws(' ', 'column', quote_ident(a.attname), format_type(a.atttypid, a.atttypmod),
                                case when a.attcollation <> y.typcollation then 'collate ' || a.attcollation::regcollation end,
                                case when a.attnotnull then 'not null' end,
                                case a.attidentity when 'a' then 'generated always as identity' when 'd' then 'generated by default as identity' end,
                                case a.attgenerated when '' then 'default ' || e.text when 's' then format('generated always as (%s) stored', e.text)
                                                    else format('generated always as (%s) virtual', e.text) end)
        from t join pg_attribute a on a.attrelid = t.oid and a.attnum > 0 and not a.attisdropped join pg_type y on y.oid = a.atttypid
               left join lateral (select pg_get_expr(d.adbin, d.adrelid) as text from pg_attrdef d
                                   where d.adrelid = a.attrelid and d.adnum = a.attnum) e on true
      union
      select t.owner, regexp_replace(pg_get_constraintdef(k.oid), ' NOT VALID$', '')
        from t join pg_constraint k on k.conrelid = t.oid and k.contype in ('c', 'p', 'u', 'x')
      union
      select t.owner, ${indexShape}
        from t join pg_class c on c.oid = t.oid join pg_namespace n on n.oid = c.relnamespace
               join pg_index i on i.indrelid = t.oid join pg_class x on x.oid = i.indexrelid
      union
      select t.owner, ${statisticsShape} from t join pg_statistic_ext e on e.stxrelid = t.oid
    )
    select min(owner) as owner, what from shape group by what having count(*) = 1 order by what`
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
  const { key, version, both, live, rebuilt } = comparison(projection, shadow)
  return sql`
    select count(l.${key})::int as live, count(s.${key})::int as rebuilt,
           count(*) filter (where s.${key} is null)::int as missing, count(*) filter (where l.${key} is null)::int as extra,
           count(*) filter (where s.${version} < l.${version})::int as older, count(*) filter (where l.${key} is not null and s.${version} > coalesce(l.${version}, 0))::int as newer,
           count(*) filter (where s.${version} = l.${version} and ${rebuilt} <> ${live})::int as different,
           coalesce(sum(hashtextextended((${live})::text, 0)::numeric) filter (where l.${key} is not null), 0)::text as live_checksum,
           coalesce(sum(hashtextextended((${rebuilt})::text, 0)::numeric) filter (where s.${key} is not null), 0)::text as rebuilt_checksum
      from ${both}`
}

/** A few rows that differ, as JSON. */
export function sampleDifferences(
  projection: Projection,
  shadow: string,
  limit: number,
): Statement<{ live: string | null; rebuilt: string | null }> {
  const { both, live, rebuilt } = comparison(projection, shadow)
  return sql`
    select to_jsonb(l)::text as live, to_jsonb(s)::text as rebuilt from ${both}
     where ${live} is distinct from ${rebuilt} limit ${limit}::int`
}

export interface UncoveredRow {
  readonly count: number
  /** The key of one of them; `null` if there is none. */
  readonly example: string | null
}

/** How many rows of the live table the shadow lacks, or has in an older version, counted up to `limit`. Index: the unique one on the key. */
export function findUncovered(projection: Projection, shadow: string, limit: number): Statement<UncoveredRow> {
  const { table, keyColumns } = projection
  return sql`
    select count(*)::int as count, min(shown) as example
      from (select ${shownKey(keyColumns)} as shown from ${table} l where ${isUncovered(projection, shadow)} limit ${limit}::int) as uncovered`
}

/** The same for some keys, a JSON array of objects by column. */
export function countUncovered(projection: Projection, shadow: string, keys: string): Statement<UncoveredRow> {
  const { table, keyColumns } = projection
  return sql`
    select count(*)::int as count, min(${shownKey(keyColumns)}) as example
      from json_populate_recordset(null::${table}, ${keys}::text::json) k
      join ${table} l on ${matching(keyColumns, 'l', 'k')}
     where ${isUncovered(projection, shadow)}`
}

/** A row from before the table had versions may have null: any row that the shadow has of its key covers it. */
function isUncovered({ keyColumns, versionColumn }: Projection, shadow: string): Part {
  const version = name(versionColumn)
  return part`not exists (select from ${qualifiedName(shadow)} s where ${matching(keyColumns, 'l', 's')} and s.${version} >= coalesce(l.${version}, 0))`
}

function shownKey(keyColumns: readonly string[]): Part {
  return part`concat_ws(', ', ${columnsOf('l', keyColumns)})`
}

/** Columns of a row, one after the other. */
function columnsOf(row: string, columns: readonly string[]): Part {
  return joined(
    columns.map((column) => name(row, column)),
    ', ',
  )
}

function matching(columns: readonly string[], one: string, other: string): Part {
  const matches = columns.map((column) => part`${name(one, column)} = ${name(other, column)}`)
  return joined(matches, ' and ')
}

/**
 * Both tables row beside row, and what is compared of each. A row that is deleted in both is its key, version and moment: what
 * else a tombstone leaves depends on whether the state before it came in the same batch.
 */
function comparison(
  { table, keyColumns, versionColumn, deletedAtColumn }: Projection,
  shadow: string,
): Record<'key' | 'version', Name> & Record<'both' | 'live' | 'rebuilt', Part> {
  const deletedAt = name(deletedAtColumn)
  const columns = [...keyColumns, versionColumn, deletedAtColumn]
  const compared = (row: 'l' | 's'): Part => part`
      case when l.${deletedAt} is not null and s.${deletedAt} is not null
           then jsonb_build_array(${columnsOf(row, columns)}) else to_jsonb(${name(row)}) end`
  return {
    key: name(keyColumns[0] ?? ''),
    version: name(versionColumn),
    live: compared('l'),
    rebuilt: compared('s'),
    both: part`${table} l full join ${qualifiedName(shadow)} s on ${matching(keyColumns, 'l', 's')}`,
  }
}
