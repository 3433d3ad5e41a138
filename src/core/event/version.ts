/**
 * Versions of an aggregate: 1, 2, 3 … without gaps, as `bigint` in memory and decimal text on every wire.
 *
 * Postgres counts to 2^63 − 1; a JavaScript number is exact only to 2^53, and text compares wrongly ("10" < "9").
 * So a version is parsed here once, at each border, and compared as a bigint or in SQL.
 */
import { WaybillError } from '../errors.ts'

export type Version = bigint

/** The largest version that a Postgres bigint holds. */
export const maxVersion: Version = 9_223_372_036_854_775_807n

/** Reads a version from decimal text, a bigint or a safe integer; throws INVALID_INPUT for anything else. */
export function parseVersion(value: unknown, what = 'version'): Version {
  const version = toBigInt(value)
  if (version === undefined || version < 1n || version > maxVersion) {
    throw new WaybillError('INVALID_INPUT', `${what}: expected a whole number from 1 to 2^63 - 1, got ${describe(value)}.`)
  }
  return version
}

function toBigInt(value: unknown): bigint | undefined {
  if (typeof value === 'bigint') return value
  if (typeof value === 'number') return Number.isSafeInteger(value) ? BigInt(value) : undefined
  // Nearly all are small, and by way of a number they take a fraction of the time.
  if (typeof value === 'string' && /^[0-9]{1,15}$/.test(value)) return BigInt(Number(value))
  if (typeof value === 'string' && /^[0-9]{1,19}$/.test(value)) return BigInt(value)
  return undefined
}

function describe(value: unknown): string {
  if (typeof value === 'string') return JSON.stringify(value.slice(0, 40))
  return typeof value === 'number' || typeof value === 'bigint' ? String(value) : typeof value
}
