import fc from 'fast-check'
import { expect, test } from 'vitest'
import { maxVersion, parseVersion } from './version.ts'

const versions = fc.bigInt({ min: 1n, max: maxVersion })

test('every version of a Postgres bigint survives its decimal text', () => {
  fc.assert(fc.property(versions, (version) => parseVersion(version.toString()) === version))
})

test('versions compare by number, not by text', () => {
  expect(parseVersion('10') > parseVersion('9')).toBe(true)
  fc.assert(fc.property(versions, versions, (a, b) => parseVersion(String(a)) < parseVersion(String(b)) === a < b))
})

test('versions around 2^53 are exact as text and bigint, and refused as a number that is not exact', () => {
  expect(parseVersion('9007199254740991')).toBe(2n ** 53n - 1n)
  expect(parseVersion('9007199254740992')).toBe(2n ** 53n)
  expect(parseVersion('9007199254740993')).toBe(2n ** 53n + 1n)
  expect(parseVersion(2n ** 53n + 1n)).toBe(2n ** 53n + 1n)
  expect(parseVersion(Number.MAX_SAFE_INTEGER)).toBe(2n ** 53n - 1n)
  expect(() => parseVersion(2 ** 53)).toThrow(/whole number from 1 to 2\^63 - 1, got 9007199254740992/)
})

test.each([
  0,
  -1,
  0n,
  -1n,
  1.5,
  Number.NaN,
  Infinity,
  '',
  '0',
  '-1',
  '+1',
  '1.0',
  '1e3',
  ' 1',
  '0x1',
  '١',
  '9223372036854775808',
  '99999999999999999999',
  maxVersion + 1n,
  null,
  undefined,
  true,
  {},
  [1],
])('%o is no version, and the sentence says what one is', (value) => {
  expect(() => parseVersion(value, 'order version')).toThrow(/^order version: expected a whole number from 1 to 2\^63 - 1, got /)
})

test('a refusal shows at most a piece of what was given', () => {
  expect(() => parseVersion('x'.repeat(10_000))).toThrow(/^.{1,150}$/)
})
