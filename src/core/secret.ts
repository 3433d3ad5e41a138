/**
 * Refuses secrets that can be guessed: whatever signs or seals with one checks it here, before it is used.
 *
 * The estimate errs on the side of refusing: characters count by the smallest usual alphabet that holds them all, words count
 * little, and text that repeats or counts upwards counts nothing. 16 random bytes pass, as bytes, hex or base64.
 */
import { WaybillError } from './errors.ts'

const leastBits = 128

/** Throws INVALID_OPTION for a secret with less than 128 bits of entropy. `what` names the option. */
export function assertStrongSecret(what: string, secret: string | Uint8Array): void {
  const isSecret = typeof secret === 'string' || secret instanceof Uint8Array
  if (isSecret && entropyOf(secret) >= leastBits) return
  throw new WaybillError(
    'INVALID_OPTION',
    `${what}: ${isSecret ? `the secret has less than ${leastBits} bits of entropy` : 'must be text or bytes'}. Use 32 random bytes, as from: openssl rand -base64 32`,
  )
}

function entropyOf(secret: string | Uint8Array): number {
  const signs = typeof secret === 'string' ? Array.from(secret, (sign) => sign.codePointAt(0) ?? 0) : [...secret]
  const steps = signs.slice(1).map((sign, place) => sign - (signs[place] ?? 0))
  if (!isVaried(signs) || !isVaried(steps)) return 0
  return signs.length * (typeof secret === 'string' ? bitsOfSign(secret) : 8)
}

/** Bits of one character: of words as they are written, of digits, of hexadecimal, of one case, of anything else. */
function bitsOfSign(text: string): number {
  if (/\s/.test(text) || /^[A-Z]?[a-z.,:;!?'_-]*$/.test(text)) return 2
  if (/^\d*$/.test(text)) return Math.log2(10)
  if (/^(?:[\da-f-]*|[\dA-F-]*)$/.test(text)) return 4
  return /^(?:[\da-z_-]*|[\dA-Z_-]*)$/.test(text) ? 5 : 6
}

/** Whether most of its groups of three occur once. */
function isVaried(numbers: readonly number[]): boolean {
  const groups = numbers.slice(2).map((number, place) => `${numbers[place]} ${numbers[place + 1]} ${number}`)
  return groups.length > 0 && new Set(groups).size > groups.length * 0.75
}
