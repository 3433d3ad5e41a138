import fc from 'fast-check'
import { expect, test } from 'vitest'
import type { Clock } from '../service/clock.ts'
import { businessKeyId, createIds, newId, parseId, type KeyPart, businessKeyParts, businessKeyText } from './id.ts'
import { seededRandom } from '../service/random.ts'

const v7 = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/
const v8 = /^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/

/** A clock that shows the given times in turn, then the last one for ever. */
function clockShowing(times: readonly number[]): Clock {
  let next = 0
  return { nowMs: () => times[Math.min(next++, times.length - 1)] ?? 0, monotonicMs: () => 0, sleep: async () => undefined }
}

test('ids grow within a process whatever the clock does, and are UUIDs of version 7', () => {
  const times = fc.array(fc.integer({ min: 0, max: 2 ** 47 }), { minLength: 1, maxLength: 200 })
  fc.assert(
    fc.property(times, fc.integer(), (shown, seed) => {
      const next = createIds(clockShowing(shown), seededRandom(seed))
      const ids = shown.map(() => next())
      expect(ids.every((id) => v7.test(id))).toBe(true)
      expect(ids).toEqual(ids.toSorted())
      expect(new Set(ids).size).toBe(ids.length)
    }),
  )
})

test('a burst of 100,000 ids in a frozen millisecond stays unique and in order', () => {
  const next = createIds(clockShowing([1_750_000_000_000]), seededRandom('burst'))
  const ids = Array.from({ length: 100_000 }, next)
  expect(new Set(ids).size).toBe(100_000)
  expect(ids.every((id, i) => i === 0 || id > ids[i - 1]!)).toBe(true)
})

test('100,000 ids of the real clock are unique and in order', () => {
  const ids = Array.from({ length: 100_000 }, newId)
  expect(new Set(ids).size).toBe(100_000)
  expect(ids.every((id, i) => i === 0 || id > ids[i - 1]!)).toBe(true)
})

test('the first 48 bits are the time', () => {
  const id = createIds(clockShowing([0x0192_3456_789a]), seededRandom(1))()
  expect(id.slice(0, 13)).toBe('01923456-789a')
})

test('two processes that start in the same millisecond make different ids', () => {
  const clock = clockShowing([1_750_000_000_000])
  const made = [createIds(clock), createIds(clock)].flatMap((next) => Array.from({ length: 1_000 }, next))
  expect(new Set(made).size).toBe(2_000)
})

const golden: readonly (readonly [string, KeyPart | readonly KeyPart[], string])[] = [
  ['order', '42', '10aa0213-5c76-8e4b-bb71-e0ff3f250a8f'],
  ['order', 42, '10aa0213-5c76-8e4b-bb71-e0ff3f250a8f'],
  ['order', ['tenant-1', 42, true], 'db6ed5fd-67ae-8bc7-95de-f6dd86f63f57'],
  ['payment', ['2025-01-01', 'é', '日本'], '2e8d422a-eecc-86c2-84e3-99c696dfe014'],
  ['order', 9_007_199_254_740_993n, 'be47aa8f-b135-8887-abf4-13aafa2267e4'],
]

test.each(golden)('the id of %s %o never changes', (namespace, key, id) => {
  expect(businessKeyId(namespace, key)).toBe(id)
})

const keyParts = fc.oneof(fc.string({ unit: 'grapheme', minLength: 1 }), fc.integer(), fc.bigInt(), fc.boolean())
const keys = fc.array(keyParts, { minLength: 1, maxLength: 5 })

test('the same key has the same id, different keys have different ones, and all are UUIDs of version 8', () => {
  fc.assert(
    fc.property(keys, keys, (a, b) => {
      const id = businessKeyId('order', a)
      expect(id).toMatch(v8)
      expect(businessKeyId('order', [...a])).toBe(id)
      const same = JSON.stringify(a.map(String)) === JSON.stringify(b.map(String))
      expect(businessKeyId('order', b) === id).toBe(same)
    }),
  )
})

test('where a part ends cannot be confused, whatever characters it has', () => {
  const text = fc.string({ unit: fc.constantFrom('1', ':', ',', 'a', '[', '"'), minLength: 2, maxLength: 12 })
  fc.assert(
    fc.property(text, fc.nat(), fc.nat(), (whole, i, j) => {
      const cut = (at: number): [string, string] => [whole.slice(0, at), whole.slice(at)]
      const [first, second] = [1 + (i % (whole.length - 1)), 1 + (j % (whole.length - 1))]
      fc.pre(first !== second)
      expect(businessKeyId('k', cut(first))).not.toBe(businessKeyId('k', cut(second)))
      expect(businessKeyId('k', cut(first))).not.toBe(businessKeyId('k', whole))
    }),
  )
  expect(businessKeyId('a', ['b', 'c'])).not.toBe(businessKeyId('b', ['a', 'c']))
  expect(businessKeyId('a', ['b', 'c'])).not.toBe(businessKeyId('a', ['c', 'b']))
})

test('7, 7n and "7" are one key, also as the only part of a list', () => {
  const id = businessKeyId('order', 7)
  for (const key of [7n, '7', [7], [7n], ['7']]) expect(businessKeyId('order', key)).toBe(id)
  expect(businessKeyId('order', -0)).toBe(businessKeyId('order', 0))
})

test.each([
  ['an empty list', [], /no parts; give at least one/],
  ['an empty text', ['a', ''], /non-empty text/],
  ['a fraction', 0.1, /0\.1 is not a safe integer; pass it as text/],
  ['a number beyond 2^53', 2 ** 53, /not a safe integer/],
  ['null', null, /each part must be/],
  ['undefined', ['a', undefined], /each part must be/],
  ['an object', {}, /each part must be/],
  ['a nested list', [['a']], /each part must be/],
  ['half a surrogate pair', 'a\ud800', /not well-formed Unicode/],
])('a business key with %s is refused', (_what, key, message) => {
  expect(() => businessKeyId('order', key as KeyPart)).toThrow(message)
})

test('an empty namespace is refused', () => {
  expect(() => businessKeyId('', 'a')).toThrow(/non-empty/)
})

test('an id is read in any case and written in lower case', () => {
  const id = newId()
  expect(parseId(id.toUpperCase())).toBe(id)
  expect(parseId(businessKeyId('a', 1))).toBe(businessKeyId('a', 1))
})

test.each(['', 'x', '0192', `{${newId()}}`, `${newId()} `, 7, 7n, null, undefined, {}, ['a']])('%o is no id', (value) => {
  expect(() => parseId(value, 'event id')).toThrow(/^event id: expected a UUID, got .{1,70}\.$/)
})

const keyPart = fc.string({ unit: fc.constantFrom('a', 'b', '/', '%', '2', '5', 'F', 'ü', ' '), minLength: 1, maxLength: 8 })
const businessKeys = fc.array(keyPart, { minLength: 1, maxLength: 4 })

test('a key comes back from its text as it was, so different keys have different texts', () => {
  fc.assert(
    fc.property(businessKeys, (key) => {
      expect(businessKeyParts(businessKeyText(key))).toEqual(key)
    }),
  )
})

test('a plain key of one part is its own text, and numbers count as their decimal text', () => {
  expect(businessKeyText('order 7')).toBe('order 7')
  expect(businessKeyText(['meter', 7, 8n, true])).toBe('meter/7/8/true')
  expect(businessKeyText(['a/b'])).not.toBe(businessKeyText(['a', 'b']))
})

test.each([[[]], [''], ['a\u0000b'], ['x'.repeat(1_025)], ['ü'.repeat(513)]])(
  'refuses a key that no broker would carry',
  (key) => {
    expect(() => businessKeyText(key)).toThrow(expect.objectContaining({ code: 'INVALID_INPUT' }))
  },
)
