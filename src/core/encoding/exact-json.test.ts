import fc from 'fast-check'
import { expect, test } from 'vitest'
import { assertExact, parseExactJson } from './exact-json.ts'

const refused = (message: string | RegExp): unknown =>
  expect.objectContaining({ code: 'INVALID_INPUT', message: expect.stringMatching(message) })

test('what JSON.stringify writes of finite numbers and any text is read back as it is', () => {
  const isKept = (value: unknown): boolean => {
    const text = JSON.stringify(value)
    return JSON.stringify(parseExactJson(text)) === text
  }
  const number = fc.oneof(fc.maxSafeInteger(), fc.double({ noNaN: true, noDefaultInfinity: true, min: -1e15, max: 1e15 }))
  const name = fc.string().filter((each) => each !== '__proto__' && each !== 'constructor')
  const value = fc.letrec((tie) => ({
    value: fc.oneof(
      { maxDepth: 4 },
      fc.string({ unit: 'binary' }),
      number,
      fc.constant(null),
      fc.boolean(),
      tie('list'),
      tie('object'),
    ),
    list: fc.array(tie('value')),
    object: fc.dictionary(name, tie('value'), { noNullPrototype: true }),
  })).value
  fc.assert(fc.property(value, isKept))
})

test.each([
  '9007199254740993',
  '9007199254740992',
  '-9007199254740993',
  '1e400',
  '-1e400',
  '1e-400',
  '12345678901234567890123',
  '9007199254740993.0',
  '9007199254740993e0',
])('a number that JSON.parse would round is refused with what to send instead: %s', (number) => {
  for (const text of [number, `[1,${number}]`, `{"a":{"b":[${number}]}}`, ` {"a" : ${number} }`])
    expect(() => parseExactJson(text)).toThrow(refused(/Send it as a string/))
})

test.each([
  '9007199254740991',
  '-0',
  '0.1',
  '0.12345678901234567890',
  '1e21',
  '5e18',
  '6.02214076e23',
  '1.7976931348623157e308',
  '0e5',
  '0.0',
])('a number whose digits are kept, or that is written as an approximate one, is read: %s', (number) => {
  expect(parseExactJson(`{"a":[${number}]}`)).toEqual({ a: [Number(number)] })
})

test('a name that stands twice in one object is refused by its name, however it is spelled, and not where objects differ', () => {
  for (const text of ['{"a":1,"a":2}', '[{"x":{"a":{},"b":1,"\\u0061":[]}}]', '{"a" \n :1, "a"\t:2}', '{"a":{"a":1},"a":2}'])
    expect(() => parseExactJson(text)).toThrow(refused(/the name "(a|\\u0061)" twice/))
  expect(() => parseExactJson(String.raw`{"\"a\\":1,"\"a\\":2}`)).toThrow(refused('twice'))
  const fine = String.raw`{"a":[{"a":1},{"a":2}],"b":"{\"a\":1,\"a\":2}","c\\":":","d\"":"\\"}`
  expect(parseExactJson(fine)).toEqual(JSON.parse(fine))
})

test('a name that would change an object by its prototype is refused, however deep and however spelled', () => {
  for (const text of ['{"__proto__":1}', '[{"a":{"\\u005f_proto__":{}}}]', '{"constructor":{"prototype":{"a":1}}}'])
    expect(() => parseExactJson(text)).toThrow(refused('prototype'))
  expect(parseExactJson('{"constructor":"Acme Ltd","proto":1}')).toEqual({ constructor: 'Acme Ltd', proto: 1 })
})

test('text that only looks like an odd number does not matter, nor does what is no JSON', () => {
  const ids = { id: '9007199254740993', at: '1e400', uuid: '01e9007199254740-1e4' }
  expect(parseExactJson(JSON.stringify(ids))).toEqual(ids)
  for (const text of ['', '{"a":', 'a=1', '{"a":01}', '"\\']) expect(() => parseExactJson(text)).toThrow(refused('not JSON'))
})

test('more levels than the budget has are refused, and read where it allows them', () => {
  const tooLarge = expect.objectContaining({ code: 'TOO_LARGE' }) as Error
  const nested = (levels: number): string => '['.repeat(levels) + ']'.repeat(levels)
  expect(Array.isArray(parseExactJson(nested(500)))).toBe(true)
  for (const levels of [501, 400_000]) expect(() => parseExactJson(nested(levels))).toThrow(tooLarge)
  expect(Array.isArray(parseExactJson(nested(400_000), { maxValues: 400_001, maxDepth: 400_000 }))).toBe(true)
})

test('of a value that was parsed elsewhere, rounded numbers and names of prototypes are refused', () => {
  for (const text of ['[9007199254740993]', '{"a":1e400}', '{"a":{"__proto__":1}}'])
    expect(() => assertExact(JSON.parse(text))).toThrow(refused(/Send it as a string|prototype/))
  for (const value of [undefined, 7, 'x', { a: [1.5, 1e21, null, { b: 9_007_199_254_740_991 }] }])
    expect(() => assertExact(value)).not.toThrow()
})
