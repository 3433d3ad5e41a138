import fc from 'fast-check'
import { expect, test } from 'vitest'
import { assertStrongSecret } from './secret.ts'

test.each([
  '',
  'a'.repeat(16),
  'a'.repeat(200),
  'abcdefghijklmnopqrstuvwxyz0123456789',
  'Ab3'.repeat(20),
  'Zx9-'.repeat(20),
  'correct horse battery staple',
  'a secret of 32 characters or more',
  'my-super-secret-token-for-the-shop',
  '12345678901234567890',
  '3'.repeat(20) + '7',
  'Zm9vYmFyYmF6cXV4',
  new Uint8Array(32),
  new Uint8Array(15).map((_, place) => (place * 97) % 251),
])('a secret that can be guessed is refused: %j', (secret) => {
  expect(() => assertStrongSecret('tokens.secrets', secret)).toThrow(
    expect.objectContaining({ code: 'INVALID_OPTION', message: expect.stringMatching(/^tokens\.secrets: .*128 bits.*openssl/) }),
  )
})

test.each([undefined, null, 7, {}])('%j is no secret', (secret) => {
  expect(() => assertStrongSecret('x', secret as never)).toThrow(/must be text or bytes/)
})

test('random bytes are taken, as they are, in hexadecimal and in base64', () => {
  const bytes = fc.uint8Array({ minLength: 32, maxLength: 64 }).filter((all) => new Set(all).size > all.length * 0.8)
  fc.assert(
    fc.property(bytes, (random) => {
      const buffer = Buffer.from(random)
      for (const secret of [random, buffer.toString('hex'), buffer.toString('base64'), buffer.toString('base64url')])
        expect(() => assertStrongSecret('x', secret)).not.toThrow()
    }),
    { seed: 28, numRuns: 300 },
  )
  for (const secret of ['9f86d081884c7d659a2feaa0c55ad015', 'q83vASNFZ4mrze8Ay7F/wQ==', '0b9d1f3e-5a7c-4e21-8d60-7f42a1c3b598'])
    expect(() => assertStrongSecret('x', secret)).not.toThrow()
})
