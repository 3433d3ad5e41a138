import fc from 'fast-check'
import { expect, test } from 'vitest'
import { createTokens } from './token.ts'
import { maxVersion } from './version.ts'

const secret = 'a secret of more than 16 characters'
const newer = 'another secret, which replaces it'
const at = { aggregateType: 'order', aggregateId: '42', version: 7n }

const aggregates = fc.record({
  aggregateType: fc.string({ unit: 'binary', maxLength: 40 }),
  aggregateId: fc.string({ unit: 'binary', maxLength: 200 }),
  version: fc.bigInt({ min: 1n, max: maxVersion }),
})

test.each([
  ['unsigned', createTokens()],
  ['signed', createTokens({ secrets: [secret] })],
])('%s tokens carry any aggregate and version unchanged, safe in a URL and a header', (_kind, tokens) => {
  fc.assert(
    fc.property(aggregates, (aggregate) => {
      const token = tokens.encode(aggregate)
      expect(token).toMatch(/^[\w.-]+$/)
      expect(tokens.decode(token)).toEqual(aggregate)
    }),
  )
  const lone = { aggregateType: 'a', aggregateId: 'x\ud800', version: maxVersion }
  expect(tokens.decode(tokens.encode(lone))).toEqual(lone)
})

test('a signed token with any one character changed, added or removed is refused', () => {
  const tokens = createTokens({ secrets: [secret] })
  const token = tokens.encode(at)
  for (let i = 0; i < token.length; i += 1) {
    for (const other of ['A', 'B', 'z', '-', '.', '=', 'é']) {
      if (token[i] === other) continue
      expect(() => tokens.decode(token.slice(0, i) + other + token.slice(i + 1)), `${other} at ${i}`).toThrow(/refused/)
    }
    expect(() => tokens.decode(token.slice(0, i) + token.slice(i + 1)), `without ${i}`).toThrow(/refused/)
    expect(() => tokens.decode(`${token.slice(0, i)}A${token.slice(i)}`), `more at ${i}`).toThrow(/refused/)
  }
  for (const more of ['.', '.x', `.${token}`]) expect(() => tokens.decode(token + more)).toThrow(/refused/)
})

test('a forged version is refused: unsigned, signed with another secret, or with the signature of another token', () => {
  const tokens = createTokens({ secrets: [secret] })
  const forged = { ...at, version: maxVersion }
  const [format, , signature] = tokens.encode(at).split('.')
  const body = createTokens().encode(forged).split('.')[1]
  expect(() => tokens.decode(createTokens().encode(forged))).toThrow(/signature is missing or wrong/)
  expect(() => tokens.decode(createTokens({ secrets: [newer] }).encode(forged))).toThrow(/signature/)
  expect(() => tokens.decode(`${format}.${body}.${signature}`)).toThrow(/signature/)
})

test('secrets rotate: the first signs, all verify, and a removed one verifies no more', () => {
  const old = createTokens({ secrets: [secret] })
  const both = createTokens({ secrets: [newer, secret] })
  const after = createTokens({ secrets: [newer] })
  expect(both.decode(old.encode(at))).toEqual(at)
  expect(after.decode(both.encode(at))).toEqual(at)
  expect(() => after.decode(old.encode(at))).toThrow(/signature/)
})

test.each([
  '',
  'x',
  'w1',
  'w1.',
  'w2.W10',
  'w1.!!!!',
  `w1.${Buffer.from('[]').toString('base64url')}`,
  'w1.a.b.c',
  'w1.bnVsbA',
  `w1.${Buffer.from('["a",1,"1"]').toString('base64url')}`,
  `w1.${'a'.repeat(10_000)}`,
  7,
  null,
  undefined,
  {},
])('%j is no token, and the sentence says which one to pass', (token) => {
  expect(() => createTokens().decode(token as string)).toThrow(
    /^Consistency token refused: .+\. Pass the token as the write returned it\.$/,
  )
})

test.each(['0', '-1', '9223372036854775808', 'x', null])('a token that says version %j is refused', (version) => {
  const token = `w1.${Buffer.from(JSON.stringify(['a', 'b', version])).toString('base64url')}`
  expect(() => createTokens().decode(token)).toThrow(/consistency token: expected a whole number/)
})

test('what could not be read back is not written', () => {
  expect(() => createTokens().encode({ ...at, aggregateId: 'x'.repeat(4_000) })).toThrow(/shorter aggregate id/)
  expect(() => createTokens().encode({ ...at, version: 0n })).toThrow(/whole number/)
})

test.each([
  [{ secret }, /tokens\.secret: unknown option\. Did you mean "secrets"\?/],
  [{ secrets: ['short'] }, /at least 16 characters/],
  [{ secrets: [secret, ''] }, /at least 16 characters/],
  [{ secrets: [undefined] }, /at least 16 characters/],
  [{ secrets: [] }, /leave it out for unsigned tokens/],
  [{ secrets: secret }, /must be a list/],
])('options that would leave tokens unsigned or weak are refused: %j', (options, message) => {
  expect(() => createTokens(options as never)).toThrow(message)
})
