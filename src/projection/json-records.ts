/**
 * Rows for a set-based statement, as JSON that Postgres converts to the types of the table's columns: bigints as text, bytes
 * in hex, dates in ISO form.
 *
 * Rows come in the order of their keys, as text, so that two batches never wait for each other crosswise; sorted here, because
 * most come sorted already. Each value is written by itself, because `JSON.stringify` with a replacer over a whole batch takes several times as long.
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
  /** `{"column":` of the first and `,"column":` of the others, ours before those of `set`. */
  readonly names: readonly string[]
  readonly records: OpenRecord[]
}

interface OpenRecord {
  /** The JSON of our columns, the key's before the others. */
  readonly ours: string
  readonly rest: string
}

/** Collects rows by the columns they have. */
export class JsonRecords {
  readonly #table: string
  readonly #ours: readonly string[]
  readonly #groups = new Map<string, OpenGroup>()
  #latest: OpenGroup | undefined

  /** `ours` are the columns that every row has and that `set` must not return. */
  constructor(table: string, ours: readonly string[]) {
    this.#table = table
    this.#ours = ours
  }

  /** Adds a row: the values of our columns, in their order, and what `set` returned. */
  add(ours: readonly ColumnValue[], values: Readonly<Record<string, ColumnValue>>): void {
    const columns = Object.keys(values)
    const { names, records } = this.#group(columns)
    const record = { ours: '', rest: '' }
    let place = 0
    for (const value of ours) record.ours += `${names[place++]}${jsonText(value)}`
    for (const column of columns) record.rest += `${names[place++]}${jsonText(values[column])}`
    records.push(record)
  }

  groups(): readonly RecordGroup[] {
    return [...this.#groups.values()].map(({ columns, records }) => ({ columns, json: arrayOf(records) }))
  }

  #group(columns: readonly string[]): OpenGroup {
    // Nearly always the next row has the columns of the last.
    if (this.#latest !== undefined && isSame(this.#latest.columns, columns)) return this.#latest
    const shape = columns.join('\u0000')
    this.#latest = this.#groups.get(shape) ?? this.#open(shape, columns)
    return this.#latest
  }

  #open(shape: string, columns: readonly string[]): OpenGroup {
    const taken = columns.find((column) => this.#ours.includes(column))
    if (taken !== undefined) throw reserved(this.#table, taken)
    const names = [...this.#ours, ...columns].map((column, i) => `${i === 0 ? '{' : ','}${JSON.stringify(column)}:`)
    const group: OpenGroup = { columns, names, records: [] }
    this.#groups.set(shape, group)
    return group
  }
}

/** Rows with the same key stay in the order in which they came. */
function arrayOf(records: readonly OpenRecord[]): string {
  const sorted = records.toSorted((a, b) => (a.ours < b.ours ? -1 : a.ours > b.ours ? 1 : 0))
  return `[${sorted.map(({ ours, rest }) => `${ours}${rest}}`).join(',')}]`
}

function isSame(a: readonly string[], b: readonly string[]): boolean {
  return a.length === b.length && a.every((each, i) => each === b[i])
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
