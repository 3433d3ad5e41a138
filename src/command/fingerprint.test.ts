import { isDeepStrictEqual } from 'node:util'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { canonicalJson, fingerprint } from './fingerprint.ts'

/** The same value with the keys of every object in another order. */
function shuffled(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(shuffled)
  if (typeof value !== 'object' || value === null) return value
  const copy = Object.create(null) as Record<string, unknown>
  for (const key of Object.keys(value).toReversed()) copy[key] = shuffled((value as Record<string, unknown>)[key])
  return copy
}

test('the order of keys does not matter, at any depth', () => {
  const isSame = (value: unknown): boolean => fingerprint('Buy', shuffled(value)) === fingerprint('Buy', value)
  fc.assert(fc.property(fc.jsonValue(), isSame))
})

test('canonical JSON reads back as the value, so different values have different texts', () => {
  const isReadBack = (value: unknown): boolean =>
    isDeepStrictEqual(JSON.parse(canonicalJson(value)), JSON.parse(JSON.stringify(value)))
  fc.assert(fc.property(fc.jsonValue(), isReadBack))
})

test('what JSON leaves out does not matter, and what it cannot hold is told apart', () => {
  expect(canonicalJson({ b: undefined, a: [undefined, () => 1] })).toBe('{"a":[null,null]}')
  expect(canonicalJson(new Date(0))).toBe('"1970-01-01T00:00:00.000Z"')
  const odd = [1n, 2n, new Set([1]), new Set([2]), new Map([[1, 2]]), new Map([[1, 3]]), new Uint8Array([1]), new Uint8Array([2])]
  expect(new Set(odd.map((each) => fingerprint('Buy', each))).size).toBe(odd.length)
})

test('the command is part of it, and a cycle is refused as bad input', () => {
  expect(fingerprint('Buy', { a: 1 })).not.toBe(fingerprint('Sell', { a: 1 }))
  expect(fingerprint('Buy', { a: 1 })).toMatch(/^[0-9a-f]{32}$/)
  const cycle: Record<string, unknown> = {}
  cycle['self'] = cycle
  expect(() => fingerprint('Buy', cycle)).toThrow(expect.objectContaining({ code: 'INVALID_INPUT' }))
})
