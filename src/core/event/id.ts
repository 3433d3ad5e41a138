/**
 * Ids of events: UUIDs of version 7 (time-ordered) or made from a business key (version 8, a hash).
 *
 * Time-ordered ids keep index inserts at the right edge. Business-key ids make the id a function of the fact: whoever
 * sends the same fact again, from any process and after any crash, sends the same id, so that it is applied once.
 *
 * A business key is also written as one text, and read back: the parts are joined by "/", and what could be mistaken for a joint is
 * escaped, so different keys are different texts, and a key of one plain part is its own text. The text is the aggregate's id of a fact,
 * so it must suit every broker and Postgres.
 */
import { createHash } from 'node:crypto'
import { systemClock, type Clock } from '../service/clock.ts'
import { WaybillError } from '../errors.ts'
import { systemRandom, type Random } from '../service/random.ts'

/** A maker of UUIDv7s that never go backwards within this process, even when the clock does. */
export function createIds(clock: Clock = systemClock, random: Random = systemRandom): () => string {
  const bytes = new Uint8Array(10)
  let lastMs = 0
  let counter = 0
  return () => {
    const nowMs = clock.nowMs()
    random.fill(bytes)
    if (nowMs > lastMs) {
      lastMs = nowMs
      // Half of the range is left free, so that a burst within one millisecond can count up.
      counter = ((at(bytes, 0) << 8) | at(bytes, 1)) & 0x7ff
    } else {
      counter += 1
      if (counter > 0xfff) {
        lastMs += 1
        counter = 0
      }
    }
    return formatV7(lastMs, counter, bytes)
  }
}

/** A new time-ordered id. */
export const newId: () => string = createIds()

/** A value that can be a part of a business key. Numbers count as their decimal text: `7`, `7n` and `'7'` are one key. */
export type KeyPart = string | number | bigint | boolean

/**
 * The id of the fact that `namespace` and the key's parts name, always the same.
 *
 * Parts are length-prefixed before they are hashed, so `['ab', 'c']` and `['a', 'bc']` are different keys.
 */
export function businessKeyId(namespace: string, key: KeyPart | readonly KeyPart[]): string {
  const parts = Array.isArray(key) ? (key as readonly KeyPart[]) : [key as KeyPart]
  if (parts.length === 0)
    throw new WaybillError('INVALID_INPUT', `Business key of ${namespace}: it has no parts; give at least one.`)
  const hash = createHash('sha256')
  for (const part of [namespace, ...parts]) {
    const text = keyPartText(part, namespace)
    hash.update(`${Buffer.byteLength(text)}:${text},`)
  }
  const bytes = hash.digest().subarray(0, 16)
  bytes[6] = (at(bytes, 6) & 0x0f) | 0x80
  bytes[8] = (at(bytes, 8) & 0x3f) | 0x80
  return hyphenate(bytes.toString('hex'))
}

const uuidPattern = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/

/** The id in lower case, or INVALID_INPUT if it is no UUID. */
export function parseId(value: unknown, what = 'id'): string {
  if (typeof value === 'string' && uuidPattern.test(value)) return value
  const id = typeof value === 'string' ? value.toLowerCase() : ''
  if (!uuidPattern.test(id)) {
    const got = typeof value === 'string' ? JSON.stringify(value.slice(0, 60)) : typeof value
    throw new WaybillError('INVALID_INPUT', `${what}: expected a UUID, got ${got}.`)
  }
  return id
}

function keyPartText(part: KeyPart, namespace: string): string {
  if (typeof part === 'number' && !Number.isSafeInteger(part)) {
    throw new WaybillError('INVALID_INPUT', `Business key of ${namespace}: ${part} is not a safe integer; pass it as text.`)
  }
  if (!['string', 'number', 'bigint', 'boolean'].includes(typeof part) || part === '') {
    throw new WaybillError(
      'INVALID_INPUT',
      `Business key of ${namespace}: each part must be non-empty text, a whole number or a boolean.`,
    )
  }
  const text = String(part)
  // Half a surrogate pair has no bytes of its own: different keys would be hashed as one, and one fact taken for the other.
  if (!text.isWellFormed())
    throw new WaybillError('INVALID_INPUT', `Business key of ${namespace}: a part is not well-formed Unicode text.`)
  return text
}

function formatV7(ms: number, counter: number, tail: Uint8Array): string {
  const time = ms.toString(16).padStart(12, '0')
  const high = (0x7000 | counter).toString(16)
  const rest = Buffer.from(tail.buffer, tail.byteOffset + 2, 8)
  rest[0] = (at(rest, 0) & 0x3f) | 0x80
  const low = rest.toString('hex')
  return `${time.slice(0, 8)}-${time.slice(8)}-${high}-${low.slice(0, 4)}-${low.slice(4)}`
}

function hyphenate(hex: string): string {
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20, 32)}`
}

function at(bytes: Uint8Array, index: number): number {
  return bytes[index] ?? 0
}

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
