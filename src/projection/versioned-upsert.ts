/**
 * Applies a batch of events to a projection with one statement a table (one more if there are tombstones).
 *
 * Guarantee: a row's version never decreases, whatever order, duplicates or gaps the events come with. Per key only the
 * newest event of the batch is written; a tombstone keeps the row, its version and the moment; an event that is older than
 * the row changes nothing. An aggregate that is created again after a tombstone comes back with its higher version.
 */
import { WaybillError } from '../core/errors.ts'
import { execute, type Tx } from '../postgres/query/database.ts'
import { JsonRecords } from './json-records.ts'
import type { ProjectedEvent, Projection } from './projection.ts'
import { upsertNewer } from './versioned-upsert.sql.ts'

/** An event of the projected stream, and whether it is a tombstone. */
export interface VersionedChange {
  readonly event: ProjectedEvent
  readonly removed: boolean
}

/** Writes what is newer than what is stored. The order of `changes` does not matter. */
export async function upsertChanges(tx: Tx, projection: Projection, changes: readonly VersionedChange[]): Promise<void> {
  const { table, tableText, keyColumns, versionColumn, deletedAtColumn, keyOf, set } = projection
  const records = new JsonRecords(`Projection ${tableText}`, [...keyColumns, versionColumn, deletedAtColumn])
  for (const { event, removed } of newestByAggregate(changes)) {
    const key = keyOf(event.aggregateId)
    if (key.length !== keyColumns.length) throw wrongKey(tableText, keyColumns.length, key.length)
    // A tombstone leaves the other columns as they were.
    records.add([...key, event.version, removed ? event.occurredAt : null], removed ? {} : set(event))
  }
  for (const { columns, json } of records.groups())
    await execute(tx, upsertNewer({ table, keyColumns, versionColumn, columns: [deletedAtColumn, ...columns] }, json))
}

function newestByAggregate(changes: readonly VersionedChange[]): Iterable<VersionedChange> {
  const newest = new Map<string, VersionedChange>()
  for (const change of changes) {
    const known = newest.get(change.event.aggregateId)
    if (known === undefined || known.event.version < change.event.version) newest.set(change.event.aggregateId, change)
  }
  return newest.values()
}

function wrongKey(table: string, expected: number, got: number): WaybillError {
  return new WaybillError('INVALID_INPUT', `Projection ${table}: keyOf returned ${got} values for ${expected} columns.`)
}
