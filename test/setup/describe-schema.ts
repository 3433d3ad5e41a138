/**
 * Everything that the catalogue knows of a schema, as sorted lines: two schemas are alike if their lines are.
 *
 * The schema's own name is written `:schema`, so that schemas of different names compare. `'outline'` has a hash of each function's
 * body, and leaves out what PostgreSQL versions print differently: defaults of arguments, and views.
 */
import type { Queryable } from '../../src/postgres/query/database.ts'

const outline: Readonly<Record<string, string>> = {
  schema: `
    select n.nspname || ' owner ' || pg_get_userbyid(n.nspowner) from pg_namespace n where n.nspname = $1`,
  relation: `
    select c.relname || ' ' || c.relkind::text || case when c.relpersistence <> 'p' then ' not logged' else '' end || ' owner ' || pg_get_userbyid(c.relowner) || ' ' || coalesce(c.reloptions::text, '')
           || case c.relreplident when 'f' then ' replica identity full' else '' end
      from pg_class c where c.relnamespace = $1::text::regnamespace and c.relkind in ('r', 'p', 'v', 'm', 'S')`,
  column: `
    select c.relname || '.' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod)
           || case when a.attnotnull then ' not null' else '' end
           || case a.attidentity when 'a' then ' identity' when 'd' then ' identity by default' else '' end
           || coalesce(case a.attgenerated when '' then ' default ' else ' generated ' end || pg_get_expr(d.adbin, d.adrelid), '')
           || case when a.attstorage <> t.typstorage then ' storage ' || a.attstorage::text else '' end
           || case when a.attcompression <> '' then ' compression ' || a.attcompression::text else '' end
           || coalesce(' statistics ' || nullif(a.attstattarget, -1), '')
      from pg_attribute a
      join pg_class c on c.oid = a.attrelid
      join pg_type t on t.oid = a.atttypid
      left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
     where c.relnamespace = $1::text::regnamespace and c.relkind in ('r', 'p', 'v') and a.attnum > 0 and not a.attisdropped`,
  order: `
    select c.relname || ' (' || string_agg(a.attname, ', ' order by a.attnum) || ')'
      from pg_attribute a join pg_class c on c.oid = a.attrelid
     where c.relnamespace = $1::text::regnamespace and c.relkind in ('r', 'p', 'v') and a.attnum > 0 and not a.attisdropped
     group by c.relname`,
  sequence: `
    select c.relname || ' ' || format_type(s.seqtypid, null)
           || format(' start %s by %s from %s to %s cache %s%s', s.seqstart, s.seqincrement, s.seqmin, s.seqmax, s.seqcache, case when s.seqcycle then ' cycle' end)
      from pg_sequence s join pg_class c on c.oid = s.seqrelid where c.relnamespace = $1::text::regnamespace`,
  index: `
    select pg_get_indexdef(i.indexrelid) from pg_index i join pg_class c on c.oid = i.indexrelid
     where c.relnamespace = $1::text::regnamespace`,
  constraint: `
    select conrelid::regclass::text || ' ' || conname || ' ' || pg_get_constraintdef(oid)
      from pg_constraint where connamespace = $1::text::regnamespace and contype <> 'n'`,
  trigger: `
    select pg_get_triggerdef(t.oid) || ' enabled ' || t.tgenabled::text from pg_trigger t join pg_class c on c.oid = t.tgrelid
     where c.relnamespace = $1::text::regnamespace and not t.tgisinternal`,
  function: `
    select p.oid::regprocedure::text || ' returns ' || pg_get_function_result(p.oid) || ' owner ' || pg_get_userbyid(p.proowner)
           || ' ' || p.provolatile::text || case when p.prosecdef then ' security definer' else '' end || ' ' || coalesce(p.proconfig::text, '')
           || format(' %s parallel %s%s%s arguments %s, %s with a default, body %s', l.lanname, p.proparallel, case when p.proisstrict then ' strict' end,
                     case when p.proleakproof then ' leakproof' end, coalesce(p.proargnames::text, '{}'), p.pronargdefaults, md5(replace(p.prosrc, $1, ':schema')))
      from pg_proc p join pg_language l on l.oid = p.prolang where p.pronamespace = $1::text::regnamespace`,
  comment: `
    select d.classoid::regclass || ' ' || coalesce(c.relname, p.proname, '') || ' ' || d.objsubid || ': ' || d.description
      from pg_description d
      left join pg_class c on d.classoid = 'pg_class'::regclass and c.oid = d.objoid
      left join pg_proc p on d.classoid = 'pg_proc'::regclass and p.oid = d.objoid
     where $1::text::regnamespace in (c.relnamespace, p.pronamespace)
        or d.classoid = 'pg_namespace'::regclass and d.objoid = $1::text::regnamespace`,
  privilege: `
    select 'default on ' || defaclobjtype::text || ': ' || defaclacl::text from pg_default_acl where defaclnamespace = $1::text::regnamespace`,
  statistics: `select pg_get_statisticsobjdef(oid) from pg_statistic_ext where stxnamespace = $1::text::regnamespace`,
  grant: `
    select granted.object || ' ' || case g.grantee when 0 then 'PUBLIC' else pg_get_userbyid(g.grantee) end || ' ' || lower(g.privilege_type)
      from (select oid::regclass::text as object, relacl as acl, relowner as owner, case relkind when 'S' then 's'::"char" else 'r' end as kind
              from pg_class where relnamespace = $1::text::regnamespace and relkind in ('r', 'p', 'v', 'S')
            union all
            select attrelid::regclass::text || '.' || attname, attacl, relowner, 'c'
              from pg_attribute join pg_class c on c.oid = attrelid
             where relnamespace = $1::text::regnamespace and attacl is not null
            union all
            select oid::regprocedure::text, proacl, proowner, 'f' from pg_proc where pronamespace = $1::text::regnamespace
            union all
            select 'schema', nspacl, nspowner, 'n' from pg_namespace where nspname = $1) granted
     cross join lateral aclexplode(coalesce(granted.acl, acldefault(granted.kind, granted.owner))) g
     where g.grantee <> granted.owner`,
}

const bodies: Readonly<Record<string, string>> = {
  body: `select pg_get_functiondef(oid) from pg_proc where pronamespace = $1::text::regnamespace`,
  view: `
    select relname || ' ' || pg_get_viewdef(oid) from pg_class where relnamespace = $1::text::regnamespace and relkind = 'v'`,
}

/** The lines of a schema, each with its kind in front. */
export async function describeSchema(db: Queryable, schema: string, detail: 'outline' | 'full'): Promise<string> {
  const lines: string[] = []
  for (const [kind, query] of Object.entries(detail === 'full' ? { ...outline, ...bodies } : outline)) {
    const { rows } = await db.query(`select line from (${query}) as found (line)`, [schema])
    const found = (rows as { line: string }[]).map(({ line }) => `${kind} ${line.trim().replaceAll(schema, ':schema')}`)
    lines.push(...found.toSorted())
  }
  return `${lines.join('\n')}\n`
}
