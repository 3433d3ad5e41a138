/**
 * Whether the user's table can be projected to, asked at start; if not, the error says which SQL makes it so.
 */
import { WaybillError } from '../core/errors.ts'
import { rows, type Queryable } from '../postgres/query/database.ts'
import type { Projection } from './projection.ts'
import { findColumns, findUniqueKeys, type TableColumn } from './versioned-upsert.sql.ts'

/** Throws SCHEMA_MISMATCH, with the SQL to run, unless the table has everything that versioned upserts need. */
export async function assertProjectionTable(db: Queryable, projection: Projection): Promise<void> {
  const quoted = projection.table.quoted
  const columns = new Map((await rows(db, findColumns(quoted))).map((column) => [column.name, column]))
  if (columns.size === 0) throw mismatch(projection, 'does not exist', createTable(projection))
  const missing = missingColumns(projection, columns)
  if (missing.length > 0)
    throw mismatch(projection, `lacks ${missing.map(({ column }) => column).join(', ')}`, addColumns(projection, missing))
  const version = columns.get(projection.versionColumn)
  if (version?.type !== 'bigint') {
    throw mismatch(
      projection,
      `has a ${projection.versionColumn} of type ${version?.type}`,
      `alter table ${quoted} alter column "${projection.versionColumn}" type bigint using "${projection.versionColumn}"::bigint;`,
    )
  }
  const keys = (await rows(db, findUniqueKeys(quoted))).map((key) => (JSON.parse(key.columns) as string[]).join())
  if (!keys.includes([...projection.keyColumns].toSorted().join()))
    throw mismatch(
      projection,
      `has no unique index on ${projection.keyColumns.join(', ')}`,
      `create unique index on ${quoted} (${projection.keyColumns.map((column) => `"${column}"`).join(', ')});`,
    )
  assertTombstonesFit(projection, [...columns.values()])
}

/** A tombstone that comes before everything else is a row without data. */
function assertTombstonesFit(projection: Projection, columns: readonly TableColumn[]): void {
  if (!Object.values(projection.stream.events).some(({ kind }) => kind === 'tombstone')) return
  const ours = new Set([...projection.keyColumns, projection.versionColumn, projection.deletedAtColumn])
  const needed = columns.filter((column) => !ours.has(column.name) && !column.nullable && !column.has_default)
  if (needed.length === 0) return
  throw mismatch(
    projection,
    `demands a value for ${needed.map((column) => column.name).join(', ')}, but a tombstone that comes first has none`,
    needed.map((column) => `alter table ${projection.table.quoted} alter column "${column.name}" drop not null;`).join('\n'),
  )
}

function missingColumns(
  projection: Projection,
  columns: ReadonlyMap<string, TableColumn>,
): { column: string; definition: string }[] {
  return [
    ...projection.keyColumns.map((column) => ({ column, definition: `"${column}" text` })),
    { column: projection.versionColumn, definition: `"${projection.versionColumn}" bigint not null default 0` },
    { column: projection.deletedAtColumn, definition: `"${projection.deletedAtColumn}" timestamptz` },
  ].filter(({ column }) => !columns.has(column))
}

function addColumns({ table }: Projection, missing: readonly { readonly definition: string }[]): string {
  return `alter table ${table.quoted} ${missing.map(({ definition }) => `add column ${definition}`).join(', ')};`
}

function createTable({ table, keyColumns, versionColumn, deletedAtColumn }: Projection): string {
  const key = keyColumns.map((column) => `"${column}"`)
  return `create table ${table.quoted} (${key.map((column) => `${column} text not null, `).join('')}/* your columns, */ "${versionColumn}" bigint not null, "${deletedAtColumn}" timestamptz, primary key (${key.join(', ')}));`
}

function mismatch({ tableText }: Projection, problem: string, fix: string): WaybillError {
  return new WaybillError('SCHEMA_MISMATCH', `The projection table ${tableText} ${problem}. Run:\n${fix}`)
}
