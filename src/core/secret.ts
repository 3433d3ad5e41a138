/**
 * Refuses secrets that can be guessed: whatever is signed with one is then anybody's to sign.
 *
 * Entropy cannot be measured, only its absence: 128 bits need 16 bytes at least, many different ones, and no pattern.
 */
import { WaybillError } from './errors.ts'

const fewestBytes = 16
/** 16 random bytes have fewer different ones less than once in a billion times. */
const fewestDistinct = 8

/** Throws INVALID_OPTION for a secret with less than 128 bits of entropy, as far as that can be seen. */
export function assertStrongSecret(what: string, secret: string | Uint8Array): void {
  const weakness = weaknessOf(secret)
  if (weakness === undefined) return
  throw new WaybillError(
    'INVALID_OPTION',
    `${what}: ${weakness}. A secret needs 128 bits of entropy: take 32 random bytes as base64 (openssl rand -base64 32).`,
  )
}

function weaknessOf(secret: unknown): string | undefined {
  if (typeof secret !== 'string' && !(secret instanceof Uint8Array)) return 'must be a text or bytes'
  const bytes = Buffer.from(secret as Uint8Array)
  if (bytes.length < fewestBytes) return `has ${bytes.length} bytes, fewer than ${fewestBytes}`
  const distinct = new Set(bytes).size
  if (distinct < fewestDistinct) return `has only ${distinct} different bytes`
  if (isRepeated(bytes)) return 'repeats a shorter text'
  return isSequence(bytes) ? 'counts up or down' : undefined
}

/** A unit of fewer than 16 bytes, again and again. */
function isRepeated(bytes: Uint8Array): boolean {
  for (let unit = 1; unit < fewestBytes && unit * 2 <= bytes.length; unit += 1)
    if (bytes.every((byte, place) => byte === bytes[place % unit])) return true
  return false
}

/** Three quarters of the bytes or more are next to the one before, as in 0123456789abcdef. */
function isSequence(bytes: Uint8Array): boolean {
  let next = 0
  for (let place = 1; place < bytes.length; place += 1)
    if (Math.abs((bytes[place] ?? 0) - (bytes[place - 1] ?? 0)) === 1) next += 1
  return next >= (bytes.length - 1) * 0.75
}
