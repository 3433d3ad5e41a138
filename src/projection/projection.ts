/**
 * A projection: a table of the user's own that follows a stream by versioned upserts.
 *
 * The table has the key's columns (its primary key, or a unique index), a version and a moment of deletion:
 *
 *   create table catalog_read.video (
 *     video_id   text primary key,
 *     title      text,                     -- what `set` returns; nullable, because a tombstone may come first
 *     version    bigint not null,
 *     deleted_at timestamptz               -- a tombstone stays as a row, so that nothing older can resurrect it
 *   );
 *
 * Readers look at rows `where deleted_at is null`, or at a view that does.
 */
import { WaybillError } from '../core/errors.ts'
import { refuseUnknown } from '../core/options.ts'
import type { EventData } from '../core/event/event.ts'
import type { AnyStream } from '../core/event/stream.ts'
import type { Version } from '../core/event/version.ts'
import { name, qualifiedName, type Name } from '../postgres/query/sql.ts'

/** What a column can be set to. Postgres converts it to the column's type; objects and arrays suit json, jsonb and arrays. */
export type ColumnValue =
  | string
  | number
  | bigint
  | boolean
  | null
  | Date
  | Uint8Array
  | readonly unknown[]
  | { readonly [name: string]: unknown }

/** An event as a projection sees it. */
export interface ProjectedEvent<Data = unknown> {
  readonly id: string
  readonly type: string
  readonly aggregateId: string
  readonly version: Version
  readonly occurredAt: Date
  readonly data: Data
}

/** Every state event of a stream, told apart by `type`. */
export type StateEventOf<S extends AnyStream> = {
  [Type in keyof S['events']]: S['events'][Type] extends { readonly kind: 'state' }
    ? ProjectedEvent<EventData<S['events'][Type]>> & { readonly type: Type & string }
    : never
}[keyof S['events']]

export interface ProjectOptions<S extends AnyStream> {
  /** The table, with its schema: `'catalog_read.video'`. */
  readonly table: string
  /** The column of the aggregate's id, or several, with `keyOf` to take the id apart. */
  readonly key: string | readonly string[]
  /** The values of the key's columns, in their order. @default the aggregate's id */
  readonly keyOf?: (aggregateId: string) => readonly string[]
  /** The columns of a state event. Every state carries everything, so return every column every time. */
  readonly set: (event: StateEventOf<S>) => Readonly<Record<string, ColumnValue>>
  /** The column of the aggregate's version. @default 'version' */
  readonly version?: string
  /** The column that says when the aggregate was deleted. @default 'deleted_at' */
  readonly deletedAt?: string
}

/** The options of a projection, checked. */
export interface Projection {
  readonly stream: AnyStream
  readonly table: Name
  readonly tableText: string
  readonly keyColumns: readonly string[]
  readonly keyOf: (aggregateId: string) => readonly string[]
  readonly set: (event: ProjectedEvent) => Readonly<Record<string, ColumnValue>>
  readonly versionColumn: string
  readonly deletedAtColumn: string
}

/** Checks everything that can be checked without the database. */
export function createProjection<S extends AnyStream>(stream: S, options: ProjectOptions<S>): Projection {
  const what = `project ${(stream as Partial<AnyStream> | undefined)?.aggregateType ?? 'stream'}`
  refuseUnknown(what, options, ['table', 'key', 'keyOf', 'set', 'version', 'deletedAt'])
  const { table, key, set, keyOf, version = 'version', deletedAt = 'deleted_at' } = options
  const keyColumns = typeof key === 'string' ? [key] : [...(key ?? [])]
  if (typeof table !== 'string') throw invalid(`${what}: table must be a name such as 'catalog_read.video'.`)
  if (keyColumns.length === 0) throw invalid(`${what}: key must name at least one column.`)
  if (typeof set !== 'function') throw invalid(`${what}: set must be a function from an event to columns.`)
  if (keyColumns.length > 1 && keyOf === undefined)
    throw invalid(`${what}: a key of ${keyColumns.length} columns needs keyOf, which takes the aggregate's id apart.`)
  for (const column of [...keyColumns, version, deletedAt]) name(column)
  const deltas = Object.values(stream.events).filter(({ kind }) => kind === 'delta')
  if (deltas.length > 0)
    throw invalid(`${what}: ${deltas[0]?.name} is a delta, and a projection takes whole states only. Apply it with on(…).`)
  return {
    stream,
    table: qualifiedName(table),
    tableText: table,
    keyColumns,
    keyOf: keyOf ?? ((aggregateId) => [aggregateId]),
    set: set as Projection['set'],
    versionColumn: version,
    deletedAtColumn: deletedAt,
  }
}

function invalid(message: string): WaybillError {
  return new WaybillError('INVALID_OPTION', message)
}
