/**
 * The statements on projection tables and fact tables. Table and columns are the user's own; all names are checked and quoted.
 */
import { columnList, joined, name, part, sql, type Name, type Statement } from '../postgres/query/sql.ts'

export interface UpsertShape {
  readonly table: Name
  readonly keyColumns: readonly string[]
  readonly versionColumn: string
  /** What is written beside key and version. */
  readonly columns: readonly string[]
}

/**
 * Writes rows that are newer than what is stored; older ones leave everything as it is.
 *
 * `records` is a JSON array of objects by column: Postgres converts each value to its column's type. Rows come collapsed, one
 * a key, in the order of their keys, and are locked in that order. Rows from before the table had a version may have null,
 * which is older than every event.
 * Index: the unique index on the key's columns.
 */
export function upsertNewer(shape: UpsertShape, records: string): Statement {
  const { table, keyColumns, versionColumn, columns } = shape
  const version = name(versionColumn)
  const key = columnList(keyColumns)
  const written = [versionColumn, ...columns]
  const everything = columnList([...keyColumns, ...written])
  const assignments = written.map((column) => part`${name(column)} = excluded.${name(column)}`)
  return sql`
    insert into ${table} as stored (${everything})
    select ${everything} from json_populate_recordset(null::${table}, ${records}::text::json) as incoming
    on conflict (${key}) do update set ${joined(assignments, ', ')}
     where coalesce(stored.${version}, 0) < excluded.${version}`
}

export interface TableColumn {
  readonly name: string
  readonly type: string
  readonly nullable: boolean
  readonly has_default: boolean
}

/** The columns of a table. */
export function findColumns(table: string): Statement<TableColumn> {
  return sql`
    select a.attname as name, format_type(a.atttypid, null) as type, not a.attnotnull as nullable,
           (a.atthasdef or a.attidentity <> '' or a.attgenerated <> '') as has_default
      from pg_attribute a
     where a.attrelid = to_regclass(${table}::text) and a.attnum > 0 and not a.attisdropped
     order by a.attnum`
}

/** The unique indexes that `on conflict` can use: whole, immediate and on plain columns. */
export function findUniqueKeys(table: string): Statement<{ columns: string }> {
  return sql`
    select (select json_agg(a.attname order by a.attname) from pg_attribute a
             where a.attrelid = i.indrelid and a.attnum = any (i.indkey[0:i.indnkeyatts - 1]))::text as columns
      from pg_index i
     where i.indrelid = to_regclass(${table}::text) and i.indisunique and i.indisvalid and i.indimmediate
       and i.indpred is null and i.indexprs is null`
}

/**
 * The statement on fact tables. Table and columns are the user's own; all names are checked and quoted.
 */
interface FactShape {
  readonly table: Name
  readonly keyColumns: readonly string[]
  /** What is written beside the key. */
  readonly columns: readonly string[]
}

/**
 * Adds rows whose key is not there yet. `records` is a JSON array of objects by column, in the order of their keys, and they are
 * locked in that order. Index: the unique index on the key's columns.
 */
export function insertRows({ table, keyColumns, columns }: FactShape, records: string): Statement {
  const key = columnList(keyColumns)
  const everything = columnList([...keyColumns, ...columns])
  return sql`
    insert into ${table} (${everything})
    select ${everything} from json_populate_recordset(null::${table}, ${records}::text::json) as incoming
    on conflict (${key}) do nothing`
}
