import { randomBytes } from 'node:crypto'
import { expect, test } from 'vitest'
import { assertStrongSecret } from './secret.ts'

test('random secrets are taken, as bytes and as text', () => {
  for (let round = 0; round < 1_000; round += 1) assertStrongSecret('key', randomBytes(16))
  assertStrongSecret('key', randomBytes(32).toString('base64'))
  assertStrongSecret('key', randomBytes(16).toString('hex'))
})

test.each([
  ['a short one', 'x7!kPq2', 'has 7 bytes, fewer than 16'],
  ['one letter', 'a'.repeat(64), 'has only 1 different bytes'],
  ['few letters', 'abcabdabeabfabcabdabe', 'has only 6 different bytes'],
  ['a word again and again', 'password1'.repeat(4), 'repeats a shorter text'],
  ['a count', '0123456789abcdef', 'counts up or down'],
  ['a count of bytes', Uint8Array.from({ length: 32 }, (_, place) => 255 - place), 'counts up or down'],
  ['nothing', undefined as never, 'must be a text or bytes'],
])('%s is refused, and the sentence says what to take', (_what, secret, why) => {
  expect(() => assertStrongSecret('signer.secret', secret)).toThrow(`signer.secret: ${why}. A secret needs 128 bits of entropy`)
})
