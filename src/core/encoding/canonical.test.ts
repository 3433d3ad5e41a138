import { isDeepStrictEqual } from 'node:util'
import { runInNewContext } from 'node:vm'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { canonicalText, jsonText } from './canonical.ts'

const canonical = (value: unknown): string => canonicalText(value, { what: 'input' })

/** The same value with the keys of every object in another order. */
function shuffled(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(shuffled)
  if (typeof value !== 'object' || value === null) return value
  const copy = Object.create(null) as Record<string, unknown>
  for (const key of Object.keys(value).toReversed()) copy[key] = shuffled((value as Record<string, unknown>)[key])
  return copy
}

const form = (...pairs: readonly (readonly [string, string])[]): FormData => {
  const data = new FormData()
  for (const [name, text] of pairs) data.append(name, text)
  return data
}

const bytes = (...values: number[]): Uint8Array<ArrayBuffer> => new Uint8Array(values)

/** Whether canonical text is that of JSON values, for the properties below. */
const negativeZero = (value: unknown): boolean => canonical(value).includes('-0')

test('the order of keys does not matter, at any depth', () => {
  const isSame = (value: unknown): boolean => canonical(shuffled(value)) === canonical(value)
  fc.assert(fc.property(fc.jsonValue(), isSame))
})

test('the canonical text of a JSON value reads back as that value, so different values have different texts', () => {
  const isReadBack = (value: unknown): boolean =>
    isDeepStrictEqual(JSON.parse(canonical(value)), JSON.parse(JSON.stringify(value)))
  fc.assert(
    fc.property(
      fc.jsonValue().filter((value) => !negativeZero(value)),
      isReadBack,
    ),
  )
})

test('values that a reader can tell apart have different texts, whatever JSON makes of them', () => {
  const distinct: readonly unknown[] = [
    undefined,
    null,
    'null',
    'U',
    [undefined],
    [null],
    {},
    { a: undefined },
    [],
    [[]],
    0,
    -0,
    '0',
    Number.NaN,
    'NaN',
    Number.POSITIVE_INFINITY,
    Number.NEGATIVE_INFINITY,
    'Infinity',
    1,
    1n,
    '1',
    '1n',
    { bigint: '1' },
    9_007_199_254_740_992,
    9_007_199_254_740_993n,
    new Date(0),
    0n,
    new Date(0).toISOString(),
    new Date(Number.NaN),
    'D0',
    new Map([['a', 1]]),
    new Map([['a', 2]]),
    { map: [['a', 1]] },
    [['a', 1]],
    new Map([
      [1, 'a'],
      [2, 'b'],
    ]),
    new Map([
      [2, 'b'],
      [1, 'a'],
    ]),
    new Set([1]),
    new Set([2]),
    { set: [1] },
    new Set(),
    new Map(),
    bytes(1),
    bytes(2),
    { bytes: 'AQ==' },
    'AQ==',
    bytes(1).buffer,
    bytes(2, 3).buffer,
    new DataView(bytes(1).buffer),
    new DataView(bytes(2).buffer),
    new Int8Array([1]),
    new Float32Array([1]),
    new Float64Array([1]),
    new BigInt64Array([1n]),
    { 0: 1 },
    new URLSearchParams('a=1'),
    new URLSearchParams('a=2'),
    new URLSearchParams('a=1&a=2'),
    'a=1',
    form(['a', '1']),
    form(['a', '2']),
    form(['a', '1'], ['a', '2']),
    new URL('https://a.example/'),
    'https://a.example/',
    { toJSON: () => 1 },
    { toJSON: () => 2 },
    'a"b',
    'a\\"b',
    '\ud800',
    '\\ud800',
    'é',
    'e\u0301',
  ]
  const texts = new Map<string, unknown>()
  for (const value of distinct) {
    const text = canonical({ value })
    expect(texts.has(text) ? [text, value, texts.get(text)] : undefined).toBeUndefined()
    texts.set(text, value)
  }
})

test('the same content has the same text: parts of a larger buffer, Buffers, objects without a prototype or of another realm', () => {
  expect(canonical(bytes(9, 1, 9).subarray(1, 2))).toBe(canonical(bytes(1)))
  expect(canonical(Buffer.from([1]))).toBe(canonical(bytes(1)))
  expect(canonical(Object.assign(Object.create(null), { a: 1 }))).toBe(canonical({ a: 1 }))
  expect(canonical(runInNewContext('({ a: [1] })'))).toBe(canonical({ a: [1] }))
})

class Hidden {
  readonly #amount: number
  readonly currency = 'EUR'
  constructor(amount: number) {
    this.#amount = amount
  }
  amount(): number {
    return this.#amount
  }
}

test.each<[string, unknown]>([
  ['an instance of Blob', new Blob(['one'])],
  ['an instance of File', new File(['one'], 'a')],
  ['an instance of RegExp', /a/],
  ['an instance of Error', new Error('a')],
  ['an instance of Hidden', new Hidden(1)],
  ['an instance of Promise', Promise.resolve()],
  ['an instance of WeakMap', new WeakMap()],
  ['an instance of ReadableStream', new ReadableStream()],
  ['a function', () => 1],
  ['a symbol', Symbol('a')],
  ['a list with more than its elements', Object.assign([1], { more: 2 })],
  ['a symbol as a key', { [Symbol('a')]: 1 }],
])('what hides its content is refused by its path: %s', (what, file) => {
  expect(() => canonicalText({ items: [{}, { 'the file': file }] }, { what: 'input', remedy: 'Do this.' })).toThrow(
    expect.objectContaining({
      code: 'INVALID_INPUT',
      message: expect.stringMatching(new RegExp(String.raw`^input\.items\[1\]\["the file"\] .*${what}.*\. Do this\.$`)),
    }),
  )
})

test('a file in a form is refused by the place of its field', () => {
  const data = form(['a', '1'])
  data.append('photo', new File(['one'], 'a'))
  expect(() => canonical({ data })).toThrow(/^input\.data\[1\]\[1\] is an instance of File/)
})

test('cycles, too many levels and too much text are refused; the deepest and largest that are allowed are not', () => {
  const cycle: Record<string, unknown> = {}
  cycle['self'] = cycle
  const nested = (levels: number): unknown => JSON.parse('['.repeat(levels) + ']'.repeat(levels))
  for (const bad of [cycle, new Map([[1, cycle]]), nested(1_001)])
    expect(() => canonical(bad)).toThrow(
      expect.objectContaining({ code: 'INVALID_INPUT', message: expect.stringContaining('cycle') }),
    )
  expect(canonical(nested(1_000))).toHaveLength(2_000)
  expect(() => canonicalText(['é'.repeat(10)], { what: 'input', maxBytes: 23 })).toThrow('input has more than 23 bytes')
  expect(canonicalText(['é'.repeat(10)], { what: 'input', maxBytes: 24 })).toHaveLength(14)
})

test('a toJSON or getter that throws is a refusal with its reason', () => {
  const broken = {
    toJSON: () => {
      throw new TypeError('gone')
    },
  }
  for (const write of [canonical, (value: unknown) => jsonText(value, { what: 'input' })])
    expect(() => write({ broken })).toThrow(
      expect.objectContaining({ code: 'INVALID_INPUT', message: expect.stringContaining('gone') }),
    )
})

test.each<[string, unknown]>([
  ['a bigint', 3n],
  ['NaN', Number.NaN],
  ['Infinity', Number.POSITIVE_INFINITY],
  ['an instance of Map', new Map([['a', 1]])],
  ['an instance of Set', new Set([1])],
  ['an instance of Uint8Array', bytes(1)],
  ['an instance of ArrayBuffer', bytes(1).buffer],
  ['an instance of Blob', new Blob(['one'])],
  ['an invalid date', new Date(Number.NaN)],
  ['a function', () => 1],
  ['a symbol', Symbol('a')],
])('what JSON would change or lose is refused by its path: %s', (what, value) => {
  expect(() => jsonText({ list: [{ value }] }, { what: 'the response' })).toThrow(
    expect.objectContaining({
      code: 'INVALID_INPUT',
      message: expect.stringMatching(new RegExp(`^the response.list\\[0\\].value is ${what}`)),
    }),
  )
})

test('what JSON carries is its JSON, and a bigint is its digits where that is asked for', () => {
  class Row {
    id = 1
  }
  const value = { at: new Date(0), row: new Row(), gone: undefined, list: [undefined, null], text: 'é' }
  expect(jsonText(value, { what: 'x' })).toBe(JSON.stringify(value))
  expect(jsonText(undefined, { what: 'x' })).toBeUndefined()
  expect(jsonText({ have: 3n, in: [{ n: -1n }] }, { what: 'x', bigint: 'text' })).toBe('{"have":"3","in":[{"n":"-1"}]}')
  expect(() => jsonText('é'.repeat(10), { what: 'x', maxBytes: 21 })).toThrow('x has more than 21 bytes')
})
