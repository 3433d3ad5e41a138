/**
 * What of a table `like … including all` does not carry over: the names of what belongs to it, its comment, statistics targets, where
 * and how it is stored. Functions, migrations and tools name constraints, indexes and statistics; after a swap they find the new ones.
 *
 * The statements come out of the catalogue. What belongs together is known by what it is, without its name: `compareShapes` has seen
 * that both tables have the same.
 */
import { part, qualifiedName, sql, type Part, type Statement } from '../../postgres/query/sql.ts'
import { indexShape, statisticsShape } from './tables.sql.ts'

/** The statements that store an empty shadow as the live table is: logged or not, its access method and its tablespace. */
export function findStorage(live: string, shadow: string): Statement<{ statement: string }> {
  return sql`
    with ${bothTables(live, shadow)}
    select format('alter table %s set %s', s.called, case l.relpersistence when 'u' then 'unlogged' else 'logged' end) as statement
      from l, s where l.relpersistence <> s.relpersistence
    union all
    select format('alter table %s set access method %I', s.called, a.amname) from l join pg_am a on a.oid = l.relam, s where l.relam <> s.relam
    union all
    select format('alter table %s set tablespace %I', s.called, t.spcname)
      from l join pg_tablespace t on t.oid = coalesce(nullif(l.reltablespace, 0), (select dattablespace from pg_database where datname = current_database())), s
     where l.reltablespace <> s.reltablespace`
}

/**
 * The statements that give the parts of a shadow the names, comments and targets of those of the live table, whose own get `suffix`.
 * In their order; both tables have their names still.
 */
export function findNames(live: string, shadow: string, suffix: string): Statement<{ statement: string }> {
  return sql`
    with ${bothTables(live, shadow)}, ${partsOf}, pair as materialized (
      select o.kind, o.place, o.called as old_called, o.name, o.oid, n.called as new_called, n.name as new_name, n.oid as new_oid,
             case when octet_length(o.name) + length(${suffix}::text) <= 63 then o.name
                  else case when octet_length(o.name) = length(o.name) then substr(o.name, 1, 20) || '_' else '' end || substr(md5(o.name), 1, 16) end || ${suffix}::text as away
        from both_parts o join both_parts n on n.side = 's' and n.kind = o.kind and n.shape = o.shape and n.nth = o.nth
       where o.side = 'l'
    ), step (place, statement) as (
      select 1, case p.place when 'table' then format('alter table %s rename constraint %I to %I', l.called, p.name, p.away)
                             else format('alter %s %s rename to %I', p.kind, p.old_called, p.away) end
        from pair p, l where p.kind <> 'check' and p.name <> p.new_name
      union all
      select 2, case p.place when 'table' then format('alter table %s rename constraint %I to %I', s.called, p.new_name, p.name)
                             else format('alter %s %s rename to %I', p.kind, p.new_called, p.name) end
        from pair p, s where p.name <> p.new_name
      union all
      select 3, format('comment on table %s is %L', s.called, obj_description(l.oid, 'pg_class'))
        from l, s where obj_description(l.oid, 'pg_class') is distinct from obj_description(s.oid, 'pg_class')
      union all
      select 3, format('comment on column %s.%I is %L', s.called, a.attname, col_description(l.oid, a.attnum))
        from l, s, lateral (${columnPairs}) a where col_description(l.oid, a.attnum) is distinct from col_description(s.oid, a.new_attnum)
      union all
      select 3, format('comment on constraint %I on %s is %L', p.name, s.called, obj_description(k.oid, 'pg_constraint'))
        from l, s, pair p join pg_constraint k on k.conname = p.name join pg_constraint m on m.conname = p.new_name
       where p.place = 'table' and k.conrelid = l.oid and m.conrelid = s.oid
         and obj_description(k.oid, 'pg_constraint') is distinct from obj_description(m.oid, 'pg_constraint')
      union all
      select 3, format('comment on %s %I.%I is %L', case p.kind when 'constraint' then 'index' else p.kind end, s.schema, p.name, obj_description(p.oid, c.catalogue))
        from s, pair p, lateral (select case p.kind when 'statistics' then 'pg_statistic_ext' else 'pg_class' end as catalogue) c
       where p.kind <> 'check' and obj_description(p.oid, c.catalogue) is distinct from obj_description(p.new_oid, c.catalogue)
      union all
      select 3, format('alter table %s alter column %I set statistics %s', s.called, a.attname, a.target)
        from l, s, lateral (${columnPairs}) a where a.target <> a.new_target
      union all
      select 3, format('alter table %s alter column %I set (%s)', s.called, a.attname, array_to_string(a.attoptions, ', '))
        from l, s, lateral (${columnPairs}) a where a.attoptions is distinct from a.new_attoptions and a.attoptions is not null
      union all
      select 3, format('alter index %I.%I alter column %s set statistics %s', s.schema, p.name, a.attnum, a.attstattarget)
        from s, pair p join pg_attribute a on a.attrelid = p.oid and a.attstattarget >= 0
       where p.kind in ('index', 'constraint') and exists (
         select from pg_attribute b where b.attrelid = p.new_oid and b.attnum = a.attnum and b.attstattarget is distinct from a.attstattarget)
      union all
      select 3, format('alter statistics %I.%I set statistics %s', s.schema, p.name, o.stxstattarget)
        from s, pair p join pg_statistic_ext o on o.oid = p.oid join pg_statistic_ext n on n.oid = p.new_oid
       where p.kind = 'statistics' and coalesce(o.stxstattarget, -1) <> coalesce(n.stxstattarget, -1)
      union all
      select 3, format('alter statistics %I.%I owner to %I', s.schema, p.name, pg_get_userbyid(o.stxowner))
        from s, pair p join pg_statistic_ext o on o.oid = p.oid join pg_statistic_ext n on n.oid = p.new_oid
       where p.kind = 'statistics' and o.stxowner <> n.stxowner
      union all
      select 3, format('alter table %s cluster on %I', s.called, p.name)
        from s, pair p join pg_index i on i.indexrelid = p.oid and i.indisclustered where p.kind in ('index', 'constraint')
    )
    select statement from step order by place`
}

function bothTables(live: string, shadow: string): Part {
  const row = (table: string): Part => part`
      select c.*, n.nspname as schema, format('%I.%I', n.nspname, c.relname) as called
        from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = to_regclass(${qualifiedName(table).quoted}::text)`
  return part`l as materialized (${row(live)}), s as materialized (${row(shadow)})`
}

/** The columns of both tables, by name. A target of -1 is that of the server. */
const columnPairs = part`
  select a.attname, a.attnum, a.attoptions, coalesce(a.attstattarget, -1) as target,
         b.attnum as new_attnum, b.attoptions as new_attoptions, coalesce(b.attstattarget, -1) as new_target
    from pg_attribute a join pg_attribute b on b.attrelid = s.oid and b.attname = a.attname and not b.attisdropped
   where a.attrelid = l.oid and a.attnum > 0 and not a.attisdropped`

/**
 * What has a name of its own, of both sides: constraints with an index, and those without (checks, and `not null` where it is one),
 * whose names are the table's own; other indexes, statistics, and the sequences of identity columns. `nth` tells equal ones apart.
 */
const partsOf = part`
    side (side, oid, schema) as (select 'l', oid, schema from l union all select 's', oid, schema from s),
    named (side, kind, place, schema, name, oid, shape) as (
      select t.side, case when k.conindid <> 0 then 'constraint' else 'check' end, 'table', t.schema, k.conname, nullif(k.conindid, 0), pg_get_constraintdef(k.oid)
        from side t join pg_constraint k on k.conrelid = t.oid and k.contype in ('c', 'n', 'p', 'u', 'x')
      union all
      select t.side, 'index', 'schema', t.schema, x.relname, x.oid, ${indexShape}
        from side t join pg_class c on c.oid = t.oid join pg_namespace n on n.oid = c.relnamespace
             join pg_index i on i.indrelid = t.oid join pg_class x on x.oid = i.indexrelid
       where not exists (select from pg_constraint k where k.conrelid = t.oid and k.conindid = i.indexrelid and k.contype in ('p', 'u', 'x'))
      union all
      select t.side, 'statistics', 'schema', n.nspname, e.stxname, e.oid, ${statisticsShape}
        from side t join pg_statistic_ext e on e.stxrelid = t.oid join pg_namespace n on n.oid = e.stxnamespace
      union all
      select t.side, 'sequence', 'schema', n.nspname, q.relname, q.oid, a.attname
        from side t join pg_depend d on d.refobjid = t.oid and d.refclassid = 'pg_class'::regclass and d.classid = 'pg_class'::regclass and d.deptype = 'i'
             join pg_class q on q.oid = d.objid and q.relkind = 'S' join pg_namespace n on n.oid = q.relnamespace
             join pg_attribute a on a.attrelid = t.oid and a.attnum = d.refobjsubid
    ), both_parts as materialized (
      select n.*, format('%I.%I', n.schema, n.name) as called, row_number() over (partition by n.side, n.kind, n.shape order by n.name) as nth from named n
    )`
