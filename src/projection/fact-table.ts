/**
 * A fact table: a table of the user's own that gets one row a fact, keyed by the business key.
 *
 *   create table reading (device_id text, taken_at timestamptz, value numeric, primary key (device_id, taken_at));
 *
 * Guarantee: the row that comes first stays. A fact that is there already changes nothing, so duplicates need no memory but
 * the key itself. For facts that are corrected or deleted later there are projections.
 */
import { WaybillError } from '../core/errors.ts'
import { refuseUnknown } from '../core/options.ts'
import type { AnyStream } from '../core/event/stream.ts'
import { execute, rows, type Queryable, type Tx } from '../postgres/query/database.ts'
import { name, qualifiedName, type Name } from '../postgres/query/sql.ts'
import { insertRows, findColumns, findUniqueKeys } from './versioned-upsert.sql.ts'
import { JsonRecords } from './json-records.ts'
import type { ColumnValue, ProjectedEvent, StateEventOf } from './projection.ts'

export interface InsertOptions<S extends AnyStream> {
  /** The table, with its schema: `'telemetry.reading'`. */
  readonly table: string
  /** The column of the business key, or several, with `keyOf`; they are its primary key or have a unique index. */
  readonly key: string | readonly string[]
  /** The values of the key's columns, in their order. @default the aggregate's id */
  readonly keyOf?: (event: StateEventOf<S>) => readonly ColumnValue[]
  /** The other columns. */
  readonly set: (event: StateEventOf<S>) => Readonly<Record<string, ColumnValue>>
}

/** The options of a fact table, checked. */
export interface FactTable {
  readonly stream: AnyStream
  readonly table: Name
  readonly tableText: string
  readonly keyColumns: readonly string[]
  readonly keyOf: (event: ProjectedEvent) => readonly ColumnValue[]
  readonly set: (event: ProjectedEvent) => Readonly<Record<string, ColumnValue>>
}

/** Checks everything that can be checked without the database. */
export function createFactTable<S extends AnyStream>(stream: S, options: InsertOptions<S>): FactTable {
  const what = `insert ${(stream as Partial<AnyStream> | undefined)?.aggregateType ?? 'stream'}`
  refuseUnknown(what, options, ['table', 'key', 'keyOf', 'set'])
  const { table, key, set, keyOf } = options
  const keyColumns = typeof key === 'string' ? [key] : [...(key ?? [])]
  if (typeof table !== 'string') throw invalid(`${what}: table must be a name such as 'telemetry.reading'.`)
  if (keyColumns.length === 0) throw invalid(`${what}: key must name at least one column.`)
  if (typeof set !== 'function') throw invalid(`${what}: set must be a function from an event to columns.`)
  if (keyColumns.length > 1 && keyOf === undefined)
    throw invalid(`${what}: a key of ${keyColumns.length} columns needs keyOf, which takes it from the event.`)
  for (const column of keyColumns) name(column)
  const change = Object.values(stream.events).find(({ kind }) => kind !== 'state')
  if (change !== undefined)
    throw invalid(`${what}: ${change.name} is a ${change.kind}, and facts never change. Use project(…) or on(…).`)
  return {
    stream,
    table: qualifiedName(table),
    tableText: table,
    keyColumns,
    keyOf: (keyOf as FactTable['keyOf'] | undefined) ?? (({ aggregateId }) => [aggregateId]),
    set: set as FactTable['set'],
  }
}

/** Adds the facts that are not there yet. */
export async function insertFacts(tx: Tx, facts: FactTable, events: readonly ProjectedEvent[]): Promise<void> {
  const { table, tableText, keyColumns, keyOf, set } = facts
  const records = new JsonRecords(`insert into ${tableText}`, keyColumns)
  for (const event of events) {
    const key = keyOf(event)
    if (key.length !== keyColumns.length)
      throw new WaybillError(
        'INVALID_INPUT',
        `insert into ${tableText}: keyOf returned ${key.length} values for ${keyColumns.length} columns.`,
      )
    const missing = keyColumns[key.findIndex(isNothing)]
    if (missing !== undefined) throw withoutKey(tableText, missing, event)
    records.add(key, set(event))
  }
  for (const { columns, json } of records.groups()) await execute(tx, insertRows({ table, keyColumns, columns }, json))
}

/** What becomes null in its column. */
function isNothing(value: ColumnValue | undefined): boolean {
  if (value === null || value === undefined) return true
  return typeof value === 'number' ? !Number.isFinite(value) : value instanceof Date && Number.isNaN(value.getTime())
}

/** A unique index lets null stand beside null: the row would come again with every delivery. */
function withoutKey(table: string, column: string, { id }: ProjectedEvent): WaybillError {
  return new WaybillError(
    'INVALID_INPUT',
    `insert into ${table}: keyOf returned nothing for "${column}" of event ${id}, and without its whole key a fact cannot be told from a repeat. Return a value for each column of the key.`,
  )
}

/** Throws SCHEMA_MISMATCH, with the SQL to run, unless the table has the key's columns and a unique index on them. */
export async function assertFactTable(db: Queryable, { table, tableText, keyColumns }: FactTable): Promise<void> {
  const key = keyColumns.map((column) => name(column).quoted).join(', ')
  const columns = (await rows(db, findColumns(table.quoted))).map((column) => column.name)
  const missing = keyColumns.filter((column) => !columns.includes(column))
  if (missing.length > 0)
    throw mismatch(
      tableText,
      columns.length === 0 ? 'does not exist' : `lacks ${missing.join(', ')}`,
      `create table ${table.quoted} (${keyColumns.map((column) => `${name(column).quoted} text, `).join('')}/* your columns, */ primary key (${key}));`,
    )
  const keys = (await rows(db, findUniqueKeys(table.quoted))).map((each) => (JSON.parse(each.columns) as string[]).join())
  if (!keys.includes([...keyColumns].toSorted().join()))
    throw mismatch(
      tableText,
      `has no unique index on ${keyColumns.join(', ')}`,
      `create unique index on ${table.quoted} (${key});`,
    )
}

function mismatch(table: string, problem: string, fix: string): WaybillError {
  return new WaybillError('SCHEMA_MISMATCH', `The fact table ${table} ${problem}. Run:\n${fix}`)
}

function invalid(message: string): WaybillError {
  return new WaybillError('INVALID_OPTION', message)
}
