/**
 * Applies a batch of events to a projection with one statement a table (one more if there are tombstones).
 *
 * Guarantee: a row's version never decreases, whatever order, duplicates or gaps the events come with. Per key only the
 * newest event of the batch is written; a tombstone keeps the row, its version and the moment; an event that is older than
 * the row changes nothing. An aggregate that is created again after a tombstone comes back with its higher version.
 */
import { WaybillError } from '../core/errors.ts'
import { execute, type Tx } from '../postgres/database.ts'
import type { ColumnValue, ProjectedEvent, Projection } from './projection.ts'
import { upsertNewer } from './versioned-upsert.sql.ts'

/** An event of the projected stream, and whether it is a tombstone. */
export interface VersionedChange {
  readonly event: ProjectedEvent
  readonly removed: boolean
}

type Cells = Record<string, ColumnValue>

/** Writes what is newer than what is stored. The order of `changes` does not matter. */
export async function upsertChanges(tx: Tx, projection: Projection, changes: readonly VersionedChange[]): Promise<void> {
  const groups = new Map<string, Cells[]>()
  for (const change of newestByAggregate(changes)) {
    const cells = cellsOf(projection, change)
    const shape = Object.keys(cells).join()
    const group = groups.get(shape)
    if (group === undefined) groups.set(shape, [cells])
    else group.push(cells)
  }
  const { table, keyColumns, versionColumn } = projection
  for (const records of groups.values()) {
    const columns = Object.keys(records[0] ?? {}).filter((column) => column !== versionColumn && !keyColumns.includes(column))
    await execute(tx, upsertNewer({ table, keyColumns, versionColumn, columns }, JSON.stringify(records, jsonValue)))
  }
}

function newestByAggregate(changes: readonly VersionedChange[]): Iterable<VersionedChange> {
  const newest = new Map<string, VersionedChange>()
  for (const change of changes) {
    const known = newest.get(change.event.aggregateId)
    if (known === undefined || known.event.version < change.event.version) newest.set(change.event.aggregateId, change)
  }
  return newest.values()
}

/** The columns of one row. A tombstone leaves the others as they were. */
function cellsOf(projection: Projection, { event, removed }: VersionedChange): Cells {
  const { keyColumns, versionColumn, deletedAtColumn, keyOf, set, tableText } = projection
  const key = keyOf(event.aggregateId)
  if (key.length !== keyColumns.length) throw wrongKey(tableText, keyColumns.length, key.length)
  const cells: Cells = Object.create(null) as Cells
  keyColumns.forEach((column, i) => (cells[column] = key[i] ?? null))
  cells[versionColumn] = event.version
  cells[deletedAtColumn] = removed ? event.occurredAt : null
  if (removed) return cells
  const values = set(event)
  for (const column of Object.keys(values)) {
    if (Object.hasOwn(cells, column)) throw reserved(tableText, column)
    cells[column] = values[column] ?? null
  }
  return cells
}

/** `JSON.stringify` has called `toJSON` already, so bytes and bigints are what is left to translate. */
function jsonValue(this: unknown, _key: string, value: unknown): unknown {
  if (typeof value === 'bigint') return value.toString()
  if (isBufferJson(value)) return `\\x${Buffer.from(value.data).toString('hex')}`
  if (value instanceof Uint8Array) return `\\x${Buffer.from(value.buffer, value.byteOffset, value.byteLength).toString('hex')}`
  return value
}

/** What a Buffer's own `toJSON` made of it. */
function isBufferJson(value: unknown): value is { readonly data: readonly number[] } {
  if (typeof value !== 'object' || value === null) return false
  const { type, data } = value as { readonly type?: unknown; readonly data?: unknown }
  return type === 'Buffer' && Array.isArray(data)
}

function wrongKey(table: string, expected: number, got: number): WaybillError {
  return new WaybillError('INVALID_INPUT', `Projection ${table}: keyOf returned ${got} values for ${expected} columns.`)
}

function reserved(table: string, column: string): WaybillError {
  return new WaybillError(
    'INVALID_OPTION',
    `Projection ${table}: set must not return "${column}"; key, version and deletion are written by us.`,
  )
}
