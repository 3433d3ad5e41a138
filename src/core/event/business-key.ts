/**
 * A business key as one text, and that text as the key again.
 *
 * The parts are joined by "/", and what could be mistaken for a joint is escaped: different keys are different texts, and a key
 * of one plain part is its own text. The text is the aggregate's id of a fact, so it must suit every broker and Postgres.
 */
import { WaybillError } from '../errors.ts'
import type { KeyPart } from './id.ts'

/** A key of one part, or of several. */
export type BusinessKey = KeyPart | readonly KeyPart[]

/** Brokers take no longer attributes. */
const longestBytes = 1_024

/** `['meter 7', 2026]` → `meter 7/2026`. INVALID_INPUT for what no broker would carry. */
export function businessKeyText(key: BusinessKey): string {
  const parts = Array.isArray(key) ? (key as readonly KeyPart[]) : [key as KeyPart]
  const text = parts.map((part) => String(part).replaceAll('%', '%25').replaceAll('/', '%2F')).join('/')
  if (text === '' || text.includes('\u0000'))
    throw new WaybillError('INVALID_INPUT', 'A business key must be text that is not empty and has no NUL.')
  if (Buffer.byteLength(text) > longestBytes)
    throw new WaybillError('INVALID_INPUT', `The business key has more than ${longestBytes} bytes; use its hash.`)
  return text
}

/** The parts of a key's text, as texts: `keyOf` of a projection with a column for each part. */
export function businessKeyParts(text: string): readonly string[] {
  return text.split('/').map((part) => part.replaceAll('%2F', '/').replaceAll('%25', '%'))
}
