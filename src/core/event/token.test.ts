import fc from 'fast-check'
import { expect, test } from 'vitest'
import { createTokens } from './token.ts'
import { maxVersion } from './version.ts'

const secret = 'q83vASNFZ4mrze8Ay7F/wQhT1mPz0XcE'
const newer = 'AAECAwQFBgcICQoLDA0ODw8ODQwLCgkI'
const names = { service: 'shop', environment: 'production' }
const at = { aggregateType: 'order', aggregateId: '42', version: 7n }

const aggregates = fc.record({
  aggregateType: fc.string({ unit: 'binary', maxLength: 40 }),
  aggregateId: fc.string({ unit: 'binary', maxLength: 200 }),
  version: fc.bigInt({ min: 1n, max: maxVersion }),
})

test.each([
  ['unsigned', createTokens()],
  ['signed', createTokens({ ...names, secrets: [secret] })],
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
  const tokens = createTokens({ ...names, secrets: [secret] })
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
  const tokens = createTokens({ ...names, secrets: [secret] })
  const forged = { ...at, version: maxVersion }
  const [format, , keyId, signature] = tokens.encode(at).split('.')
  const body = createTokens(names).encode(forged).split('.')[1]
  expect(() => tokens.decode(createTokens(names).encode(forged))).toThrow(/signature is missing or wrong/)
  expect(() => tokens.decode(createTokens({ ...names, secrets: [newer] }).encode(forged))).toThrow(/key that is not known here/)
  expect(() => tokens.decode(`${format}.${body}.${keyId}.${signature}`)).toThrow(/signature is missing or wrong/)
})

test('secrets rotate: the first signs, all verify, and a removed one verifies no more', () => {
  const old = createTokens({ ...names, secrets: [secret] })
  const both = createTokens({ ...names, secrets: [newer, secret] })
  const after = createTokens({ ...names, secrets: [newer] })
  expect(both.decode(old.encode(at))).toEqual(at)
  expect(after.decode(both.encode(at))).toEqual(at)
  expect(() => after.decode(old.encode(at))).toThrow(/signed with a key that is not known here/)
})

test('a token of another service or environment is refused, with the same secret too, unless it is asked for', () => {
  for (const secrets of [undefined, [secret]]) {
    const make = (more: object) => createTokens({ ...names, ...(secrets === undefined ? {} : { secrets }), ...more })
    const reader = make({})
    for (const other of [{ service: 'billing' }, { environment: 'staging' }])
      expect(() => reader.decode(make(other).encode(at))).toThrow(/of another service or environment/)
    const ofBoth = make({ service: 'reports', alsoFrom: ['shop', 'billing'] })
    for (const service of ['reports', 'shop', 'billing']) expect(ofBoth.decode(make({ service }).encode(at))).toEqual(at)
    expect(() => ofBoth.decode(make({ environment: 'staging' }).encode(at))).toThrow(/of another service or environment/)
  }
  expect(() => createTokens().decode(createTokens(names).encode(at))).toThrow(/of another service or environment/)
})

test('a token of an older format is refused as what it is', () => {
  const body = Buffer.from(JSON.stringify(['order', '42', '7'])).toString('base64url')
  expect(() => createTokens().decode(`w1.${body}`)).toThrow(/made by an older version of Waybill/)
})

test.each([
  '',
  'x',
  'w2',
  'w2.',
  'w3.W10',
  'w2.!!!!',
  `w2.${Buffer.from('[]').toString('base64url')}`,
  'w2.a.b',
  'w2.a.b.c',
  'w2.a.b.c.d',
  'w2.bnVsbA',
  `w2.${Buffer.from('["","","a",1,"1"]').toString('base64url')}`,
  `w2.${Buffer.from('[1,"","a","b","1"]').toString('base64url')}`,
  `w2.${'a'.repeat(10_000)}`,
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
  const token = `w2.${Buffer.from(JSON.stringify(['', '', 'a', 'b', version])).toString('base64url')}`
  expect(() => createTokens().decode(token)).toThrow(/consistency token: expected a whole number/)
})

test('what could not be read back is not written', () => {
  expect(() => createTokens().encode({ ...at, aggregateId: 'x'.repeat(4_000) })).toThrow(/shorter aggregate id/)
  expect(() => createTokens().encode({ ...at, version: 0n })).toThrow(/whole number/)
})

test.each([
  [{ secret }, /tokens\.secret: unknown option\. Did you mean "secrets"\?/],
  [{ ...names, secrets: ['short'] }, /less than 128 bits of entropy/],
  [{ ...names, secrets: [secret, ''] }, /less than 128 bits of entropy/],
  [{ ...names, secrets: ['a'.repeat(64)] }, /less than 128 bits of entropy/],
  [{ ...names, secrets: [undefined] }, /must be text or bytes/],
  [{ environment: 'production', secrets: [secret] }, /tokens\.service: signed tokens need one/],
  [{ service: 'shop', secrets: [secret] }, /tokens\.environment: signed tokens need one/],
  [{ service: 'a b' }, /tokens\.service/],
  [{ alsoFrom: 'shop' }, /tokens\.alsoFrom/],
  [{ ...names, secrets: [] }, /leave it out for unsigned tokens/],
  [{ ...names, secrets: secret }, /must be a list/],
])('options that would leave tokens unsigned or weak are refused: %j', (options, message) => {
  expect(() => createTokens(options as never)).toThrow(message)
})
