/**
 * What tells one request from another that came under the same id: a hash of the command's name and its input.
 *
 * The input is written in a canonical form first, so that the order of keys and what JSON leaves out do not matter.
 */
import { createHash } from 'node:crypto'
import { WaybillError } from '../core/errors.ts'

/** 32 hexadecimal digits. */
export function fingerprint(command: string, input: unknown): string {
  return createHash('sha256')
    .update(`${command}\n${canonicalJson(input)}`)
    .digest('hex')
    .slice(0, 32)
}

/** JSON with sorted keys. Bigints are written as text; a value that JSON leaves out is left out. */
export function canonicalJson(value: unknown): string {
  try {
    return write(value) ?? 'null'
  } catch (cause) {
    if (!(cause instanceof RangeError)) throw cause
    throw new WaybillError('INVALID_INPUT', 'The input has a cycle or too many levels.', { cause })
  }
}

function write(given: unknown): string | undefined {
  const value = toPlain(given)
  if (typeof value === 'bigint') return `"${value}n"`
  if (typeof value !== 'object' || value === null) return JSON.stringify(value)
  if (Array.isArray(value)) return `[${value.map((each) => write(each) ?? 'null').join(',')}]`
  const parts: string[] = []
  for (const key of Object.keys(value).toSorted()) {
    const text = write((value as Record<string, unknown>)[key])
    if (text !== undefined) parts.push(`${JSON.stringify(key)}:${text}`)
  }
  return `{${parts.join(',')}}`
}

/** What JSON would write in its place; maps, sets and bytes would be written as nothing, and so are spelled out. */
function toPlain(value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return value
  if (value instanceof Map) return { map: [...value] }
  if (value instanceof Set) return { set: [...value] }
  if (value instanceof Uint8Array) return { bytes: Buffer.from(value).toString('base64') }
  const { toJSON } = value as { toJSON?: unknown }
  return typeof toJSON === 'function' ? (toJSON.call(value) as unknown) : value
}
