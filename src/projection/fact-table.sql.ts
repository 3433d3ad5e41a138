/**
 * The statement on fact tables. Table and columns are the user's own; all names are checked and quoted.
 */
import { columnList, sql, type Name, type Statement } from '../postgres/query/sql.ts'

export interface FactShape {
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
