/**
 * Rows for a set-based statement, as JSON that Postgres converts to the types of the table's columns: bigints as text, bytes
 * in hex, dates in ISO form.
 *
 * Each value is written by itself, because `JSON.stringify` with a replacer over a whole batch takes several times as long.
 */
import { WaybillError } from '../core/errors.ts'
import type { ColumnValue } from './projection.ts'

/** Rows with the same columns. */
export interface RecordGroup {
  /** The columns beside those that we write ourselves. */
  readonly columns: readonly string[]
  /** A JSON array of objects by column. */
  readonly json: string
}

interface OpenGroup {
  readonly columns: readonly string[]
  /** `"column":` of each, ours first. */
  readonly names: readonly string[]
  readonly records: string[]
}

/** Collects rows by the columns they have. */
export class JsonRecords {
  readonly #table: string
  readonly #ours: readonly string[]
  readonly #groups = new Map<string, OpenGroup>()

  /** `ours` are the columns that every row has and that `set` must not return. */
  constructor(table: string, ours: readonly string[]) {
    this.#table = table
    this.#ours = ours
  }

  /** Adds a row: the values of our columns, in their order, and what `set` returned. */
  add(ours: readonly ColumnValue[], values: Readonly<Record<string, ColumnValue>>): void {
    const columns = Object.keys(values)
    const { names, records } = this.#group(columns)
    const cells = [...ours, ...columns.map((column) => values[column])]
    records.push(`{${cells.map((cell, i) => `${names[i]}${jsonText(cell)}`).join(',')}}`)
  }

  groups(): readonly RecordGroup[] {
    return [...this.#groups.values()].map(({ columns, records }) => ({ columns, json: `[${records.join(',')}]` }))
  }

  #group(columns: readonly string[]): OpenGroup {
    const shape = columns.join('\u0000')
    const known = this.#groups.get(shape)
    if (known !== undefined) return known
    const taken = columns.find((column) => this.#ours.includes(column))
    if (taken !== undefined) throw reserved(this.#table, taken)
    const names = [...this.#ours, ...columns].map((column) => `${JSON.stringify(column)}:`)
    const group: OpenGroup = { columns, names, records: [] }
    this.#groups.set(shape, group)
    return group
  }
}

/** The JSON of one value; what JSON cannot hold is null. */
function jsonText(value: unknown): string {
  switch (typeof value) {
    case 'string':
      return JSON.stringify(value)
    case 'number':
      return Number.isFinite(value) ? String(value) : 'null'
    case 'boolean':
      return value ? 'true' : 'false'
    case 'bigint':
      return `"${value}"`
    default:
      if (value === null || value === undefined) return 'null'
      return value instanceof Uint8Array ? `"\\${hex(value)}"` : (JSON.stringify(value, replace) ?? 'null')
  }
}

/** `JSON.stringify` has called `toJSON` already, so bytes and bigints are what is left to translate. */
function replace(this: unknown, _key: string, value: unknown): unknown {
  if (typeof value === 'bigint') return value.toString()
  if (isBufferJson(value)) return hex(Buffer.from(value.data))
  return value instanceof Uint8Array ? hex(value) : value
}

/** What a Buffer's own `toJSON` made of it. */
function isBufferJson(value: unknown): value is { readonly data: readonly number[] } {
  if (typeof value !== 'object' || value === null) return false
  const { type, data } = value as { readonly type?: unknown; readonly data?: unknown }
  return type === 'Buffer' && Array.isArray(data)
}

function hex(bytes: Uint8Array): string {
  return `\\x${Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('hex')}`
}

function reserved(table: string, column: string): WaybillError {
  return new WaybillError(
    'INVALID_OPTION',
    `${table}: set must not return "${column}"; key, version and deletion are written by us.`,
  )
}
