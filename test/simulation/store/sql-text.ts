/**
 * Reading the texts that statements carry as values: arrays as `sqlArray` and `sqlBytesArray` write them.
 */
import { createHash } from 'node:crypto'
import type { SqlValue } from '../../../src/postgres/query/sql.ts'

/** The items of an array literal; null for SQL's null. A null array has none. */
export function parseArray(value: SqlValue | undefined): (string | null)[] {
  if (value === null || value === undefined) return []
  const text = String(value).slice(1, -1)
  const items: (string | null)[] = []
  const item = /"((?:[^"\\]|\\.)*)"|([^",]+)/g
  for (let found = item.exec(text); found !== null; found = item.exec(text)) {
    const [, quoted, bare] = found
    if (quoted !== undefined) items.push(quoted.replaceAll(/\\(.)/g, '$1'))
    else items.push(bare === 'NULL' ? null : (bare ?? ''))
  }
  return items
}

export function texts(value: SqlValue | undefined): string[] {
  return parseArray(value).map((item) => item ?? '')
}

export function numbers(value: SqlValue | undefined): number[] {
  return parseArray(value).map(Number)
}

export function knownNumbers(value: SqlValue | undefined): (number | null)[] {
  return parseArray(value).map((item) => (item === null ? null : Number(item)))
}

export function booleans(value: SqlValue | undefined): boolean[] {
  return parseArray(value).map((item) => item === 'true' || item === 't')
}

/** Byte strings, written as `\x…`. */
export function bytes(value: SqlValue | undefined): Buffer[] {
  return texts(value).map((item) => Buffer.from(item.slice(2), 'hex'))
}

/** The key of an aggregate, as the SQL computes it: the first 8 bytes of a hash, as a signed number. */
export function keyOf(aggregateType: string, aggregateId: string): bigint {
  return createHash('sha256').update(`${aggregateType}\u001f${aggregateId}`).digest().readBigInt64BE(0)
}

export function laneOf(key: bigint, lanes: number): number {
  return Number(BigInt.asUintN(16, key & BigInt(lanes - 1)))
}
