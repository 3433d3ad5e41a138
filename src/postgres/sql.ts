/**
 * SQL as values: a statement is its text and its parameters, and knows the type of the rows it returns.
 *
 * Every interpolation becomes a bound parameter, except a `Name`, which is an identifier from an allow-list, quoted by
 * us. There is no other way to put text into a statement, so there is nothing to inject into.
 */
import { WaybillError } from '../core/errors.ts'

declare const row: unique symbol

/** A statement and its parameters. `Row` is what it returns. */
export interface Statement<Row = unknown> {
  readonly text: string
  readonly values: readonly SqlValue[]
  readonly [row]?: Row
}

/** What every driver can bind. Bigints, dates, arrays and JSON go as text and are cast in SQL. */
export type SqlValue = string | number | boolean | null | Uint8Array

/** A quoted identifier. Only `name` makes one. */
export class Name {
  readonly quoted: string
  constructor(quoted: string) {
    this.quoted = quoted
  }
}

const identifier = /^[a-z_][a-z0-9_]{0,62}$/

/** An identifier, with its schema or without. Lower-case letters, digits and underscores; at most 63 of them. */
export function name(...parts: readonly string[]): Name {
  for (const part of parts) {
    if (typeof part !== 'string' || !identifier.test(part)) {
      throw new WaybillError(
        'INVALID_OPTION',
        `${JSON.stringify(part)} cannot be used as an SQL name: lower-case letters, digits and "_", at most 63, not starting with a digit.`,
      )
    }
  }
  return new Name(parts.map((part) => `"${part}"`).join('.'))
}

/** `"schema.table"` or `"table"` as an identifier. */
export function qualifiedName(text: string): Name {
  return name(...text.split('.'))
}

/** Binds every interpolation as a parameter, except a `Name`, which we quoted ourselves. */
export function sql<Row = unknown>(strings: TemplateStringsArray, ...args: readonly (SqlValue | Name)[]): Statement<Row> {
  const values: SqlValue[] = []
  const bind = (arg: SqlValue | Name | undefined): string => (arg instanceof Name ? arg.quoted : `$${values.push(arg ?? null)}`)
  const text = strings.reduce((out, part, i) => out + bind(args[i - 1]) + part)
  return { text, values }
}

/** An array as the text that Postgres reads with `$1::text::bigint[]`: drivers disagree about array parameters. */
export function sqlArray(items: readonly (string | number | bigint | boolean | null | undefined)[]): string {
  return `{${items.map(arrayItem).join(',')}}`
}

/** An array of byte strings, for `$1::text::bytea[]`. */
export function sqlBytesArray(items: readonly Uint8Array[]): string {
  return `{${items.map((bytes) => `"\\\\x${Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('hex')}"`).join(',')}}`
}

const needsEscape = /["\\]/

function arrayItem(item: string | number | bigint | boolean | null | undefined): string {
  if (item === null || item === undefined) return 'NULL'
  if (typeof item !== 'string') return String(item)
  return needsEscape.test(item) ? `"${item.replaceAll('\\', '\\\\').replaceAll('"', '\\"')}"` : `"${item}"`
}
