/**
 * SQL as values: a statement is its text and its parameters, and knows the type of the rows it returns.
 *
 * Every interpolation becomes a bound parameter, except a `Name`, which is an identifier from an allow-list, quoted by us, and a `Part`,
 * which is text of our own source with parameters of its own. There is no other way to put text into a statement, so there is nothing
 * to inject into.
 */
import { WaybillError } from '../../core/errors.ts'

declare const row: unique symbol

/** A statement and its parameters. `Row` is what it returns. */
export interface Statement<Row = unknown> {
  readonly text: string
  readonly values: readonly SqlValue[]
  readonly [row]?: Row
}

/** What every driver can bind. Bigints, dates, arrays and JSON go as text and are cast in SQL. */
export type SqlValue = string | number | boolean | null | Uint8Array

const identifier = /^[a-z_][a-z0-9_]{0,62}$/

/** A quoted identifier, with its schema or without. Lower-case letters, digits and underscores; at most 63 of them. */
export class Name {
  readonly quoted: string
  constructor(parts: readonly string[]) {
    for (const part of parts) {
      if (typeof part !== 'string' || !identifier.test(part)) {
        throw new WaybillError(
          'INVALID_OPTION',
          `${JSON.stringify(part)} cannot be used as an SQL name: lower-case letters, digits and "_", at most 63, not starting with a digit.`,
        )
      }
    }
    this.quoted = parts.map((part) => `"${part}"`).join('.')
  }
}

export function name(...parts: readonly string[]): Name {
  return new Name(parts)
}

/** `"schema.table"` or `"table"` as an identifier. */
export function qualifiedName(text: string): Name {
  return name(...text.split('.'))
}

type Interpolation = SqlValue | Name | Part

/** A piece of a statement that several have in common, with its parameters. Only `part` and `joined` make one. */
export class Part {
  readonly strings: readonly string[]
  readonly args: readonly Interpolation[]
  constructor(strings: readonly string[], args: readonly Interpolation[]) {
    this.strings = strings
    this.args = args
  }
}

export function part(strings: TemplateStringsArray, ...args: readonly Interpolation[]): Part {
  return new Part(strings, args)
}

/** Names or parts, one after the other. */
export function joined(items: readonly (Name | Part)[], separator: ', ' | ' and '): Part {
  return new Part(['', ...items.map((_, i) => (i < items.length - 1 ? separator : ''))], items)
}

/** Columns, one after the other. */
export function columnList(columns: readonly string[]): Part {
  return joined(
    columns.map((column) => name(column)),
    ', ',
  )
}

/** Binds every interpolation as a parameter, except names and parts. What a part binds is numbered along with the rest. */
export function sql<Row = unknown>(strings: TemplateStringsArray, ...args: readonly Interpolation[]): Statement<Row> {
  const values: SqlValue[] = []
  return { text: written(strings, args, values), values }
}

function written(strings: readonly string[], args: readonly Interpolation[], values: SqlValue[]): string {
  return strings.reduce((out, text, i) => out + bound(args[i - 1] ?? null, values) + text)
}

function bound(arg: Interpolation, values: SqlValue[]): string {
  if (arg instanceof Name) return arg.quoted
  if (arg instanceof Part) return written(arg.strings, arg.args, values)
  return `$${values.push(arg)}`
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
