import fc from 'fast-check'
import * as v from 'valibot'
import { expect, test } from 'vitest'
import { z } from 'zod'
import { decodeJson, encodeJson, jsonCodec } from './codec.ts'
import type { StandardSchema } from './standard-schema.ts'

const bytesOf = (text: string): Uint8Array => new TextEncoder().encode(text)
const anything = jsonCodec(z.unknown())
const doubles = fc.double({ noNaN: true, noDefaultInfinity: true }).filter((each) => !Object.is(each, -0))
const jsonValues = fc.jsonValue({ stringUnit: 'binary' })
const cents = z.number().transform((euro) => euro * 100)
const byRate = ({ rate, fee }: { rate: number; fee: number }): { fee: number } => ({ fee: rate * fee })

test('any JSON value comes back as it was written, and its bytes are the same when written again', () => {
  fc.assert(
    fc.property(jsonValues, (value) => {
      const bytes = encodeJson(value)
      const written = new TextDecoder('utf-8', { fatal: true }).decode(bytes)
      expect(written).toBe(JSON.stringify(value))
      // What is dropped on purpose has a test of its own.
      fc.pre(!/__proto__|constructor/.test(written))
      expect(Buffer.compare(encodeJson(decodeJson(bytes)), bytes)).toBe(0)
    }),
  )
})

test('lone surrogates, NUL, every other character and every finite number survive', () => {
  const survives = (each: unknown): void => {
    expect(decodeJson(encodeJson({ each }))).toEqual({ each })
  }
  const text = fc.array(fc.integer({ min: 0, max: 0xffff })).map((units) => String.fromCharCode(...units))
  fc.assert(fc.property(text, survives))
  fc.assert(fc.property(doubles, survives))
  for (const each of ['\u0000', '\ud800', 'x\udfff', '\u2028', '😀', '\ufeff']) expect(decodeJson(encodeJson(each))).toBe(each)
})

/** The name with each of its characters written plainly or escaped, in upper or lower hex. */
const spelt = (name: string): fc.Arbitrary<string> =>
  fc.array(fc.constantFrom('plain', 'lower', 'upper'), { minLength: name.length, maxLength: name.length }).map((ways) =>
    ways
      .map((way, i) => {
        const hex = name.charCodeAt(i).toString(16).padStart(4, '0')
        return way === 'plain' ? name[i] : `\\u${way === 'upper' ? hex.toUpperCase() : hex}`
      })
      .join(''),
  )

test('__proto__ cannot survive in any escaped form, at any depth', () => {
  fc.assert(
    fc.property(spelt('__proto__'), fc.constantFrom('%', '{"a":%}', '[1,%]', '{"a":[{"b":%}]}'), (key, around) => {
      const value = decodeJson(bytesOf(around.replace('%', `{"kept":1,"${key}":{"admin":true}}`)))
      expect(ownKeys(value)).not.toContain('__proto__')
      expect(ownKeys(value)).toContain('kept')
      expect(Object.assign({}, value)).not.toHaveProperty('admin')
    }),
  )
})

test('a constructor with a prototype cannot survive in any escaped form; other constructors do', () => {
  fc.assert(
    fc.property(spelt('constructor'), spelt('prototype'), (key, inner) => {
      expect(decodeJson(bytesOf(`{"${key}":{"${inner}":{"admin":true}}}`))).toEqual({})
      expect(decodeJson(bytesOf(`{"${key}":"Acme Builders"}`))).toEqual({ constructor: 'Acme Builders' })
    }),
  )
})

test('the words themselves may be values', () => {
  expect(decodeJson(bytesOf('{"name":"__proto__","by":"constructor"}'))).toEqual({ name: '__proto__', by: 'constructor' })
})

test.each([
  ['a bigint', 1n, /cannot be written as JSON .+Convert bigints to text/],
  ['a bigint inside', { total: { cents: 1n } }, /Convert bigints to text/],
  ['undefined', undefined, /Use null or an object/],
  ['a function', () => 1, /Use null or an object/],
  ['a symbol', Symbol('x'), /Use null or an object/],
])('%s is refused with a sentence', (_what, value, message) => {
  expect(() => encodeJson(value)).toThrow(message)
})

test('a cycle is refused with a sentence', () => {
  const cycle: Record<string, unknown> = {}
  cycle['self'] = cycle
  expect(() => encodeJson(cycle)).toThrow(
    expect.objectContaining({ code: 'INVALID_INPUT', message: expect.stringContaining('a cycle') }),
  )
})

test.each([
  ['a lone continuation byte', [0x22, 0x80, 0x22]],
  ['an overlong NUL', [0x22, 0xc0, 0x80, 0x22]],
  ['a surrogate as UTF-8', [0x22, 0xed, 0xa0, 0x80, 0x22]],
  ['a cut character', [0x22, 0xe2, 0x82]],
  ['UTF-16', [0xff, 0xfe, 0x31, 0x00]],
])('%s is not UTF-8 and is refused', (_what, bytes) => {
  expect(() => decodeJson(Uint8Array.from(bytes))).toThrow('The payload is not UTF-8 text.')
})

test.each(['', '{', '{"a":1,}', 'undefined', 'NaN', "{'a':1}", '1 2'])('%j is not JSON and is refused', (text) => {
  expect(() => decodeJson(bytesOf(text))).toThrow(/not JSON/)
})

test('arbitrary bytes are decoded or refused with our error, never with another', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 50 }), (bytes) => {
      expect(outcomeOf(bytes)).toMatch(/^(?:decoded|WaybillError INVALID_INPUT)$/)
    }),
  )
})

test.each(['[', '{"a":', '{"__proto__":', '[{"\\u0061":'])('a million bytes of %s do not crash the process', (piece) => {
  const times = Math.floor(1e6 / piece.length)
  const close = piece.startsWith('{') ? '}' : piece === '[' ? ']' : '}]'
  const text = piece.repeat(times) + '1' + close.repeat(times)
  expect(outcomeOf(bytesOf(text))).toBe('WaybillError TOO_LARGE')
})

test('data that is nested too deep to be written is refused with a sentence', () => {
  let deep: unknown = 1
  for (let i = 0; i < 100_000; i += 1) deep = [deep]
  expect(() => encodeJson(deep)).toThrow(/too many levels/)
})

test('data is validated before it is written and after it is read, and what is written is the output', async () => {
  const codec = jsonCodec(z.object({ title: z.string().trim(), tags: z.array(z.string()).default([]) }))
  const bytes = await codec.encode({ title: ' Alien ' })
  expect(Buffer.from(bytes).toString()).toBe('{"title":"Alien","tags":[]}')
  expect(() => codec.encode({ title: 7 } as never)).toThrow(/does not fit its schema: title: /)
  expect(() => codec.validate({ tags: [] })).toThrow(/does not fit its schema: title: /)
})

test('unknown keys that the schema strips are not written', () => {
  const codec = jsonCodec(z.object({ id: z.string() }))
  expect(Buffer.from(codec.encode({ id: 'a', password: 'x' } as never) as Uint8Array).toString()).toBe('{"id":"a"}')
})

test('an asynchronous schema works, and its refusal is a rejection', async () => {
  const codec = jsonCodec(z.object({ id: z.string().refine(async (id) => await Promise.resolve(id !== 'taken'), 'is taken') }))
  expect(Buffer.from(await codec.encode({ id: 'a' })).toString()).toBe('{"id":"a"}')
  await expect(codec.encode({ id: 'taken' })).rejects.toThrow(/id: is taken/)
})

test.each([
  ['refuses a text that became a number', z.string().transform(Number), '7', /refuses its own output/],
  ['refuses a date that became a text', z.date(), new Date(0), /refuses its own output/],
  ['refuses a map that became an empty object', v.map(v.string(), v.number()), new Map([['a', 1]]), /refuses its own output/],
  ['changes an amount twice', z.number().transform((euro) => euro * 100), 5, /changes its own output/],
  ['changes with time', z.object({}).transform(() => ({ at: performance.now() })), {}, /changes its own output/],
  [
    'turns a text into a bigint on the way back',
    z.preprocess((text) => (text === 'a' ? 'b' : 1n), z.unknown()),
    'a',
    /refuses its own output/,
  ],
] as [string, StandardSchema<unknown>, unknown, RegExp][])(
  'a schema that %s fails its first event, and the next',
  async (_what, schema, data, message) => {
    const codec = jsonCodec(schema)
    for (const attempt of [1, 2]) {
      await expect((async () => await codec.encode(data))(), `attempt ${attempt}`).rejects.toThrow(
        expect.objectContaining({ code: 'INVALID_OPTION', message: expect.stringMatching(message) }),
      )
    }
  },
)

test('an asynchronous schema that refuses or changes its own output is found out as well', async () => {
  const refusing = jsonCodec(z.string().transform(async (text) => await Promise.resolve(Number(text))))
  await expect(refusing.encode('7')).rejects.toThrow(/refuses its own output/)
  const changing = jsonCodec(z.string().transform(async (text) => await Promise.resolve(`${text}!`)))
  await expect(changing.encode('a')).rejects.toThrow(/changes its own output/)
})

test.each([
  ['a coerced date', z.object({ at: z.coerce.date() }), { at: new Date(0) }],
  ['a trimmed text', z.string().trim().toLowerCase(), ' A '],
  ['defaults', z.object({ a: z.number().default(1), b: z.string().optional() }), {}],
  ['an undefined property', z.object({ a: z.undefined().optional() }), { a: undefined }],
  ['a renaming that is stable', v.pipe(v.string(), v.toUpperCase()), 'a'],
] as [string, StandardSchema<unknown>, unknown][])('a schema with %s is left in peace', async (_what, schema, data) => {
  expect(await jsonCodec(schema).encode(data)).toBeInstanceOf(Uint8Array)
})

test.each([
  ['that is optional', z.object({ total: z.number(), fee: cents.optional() }), { total: 5 }, { total: 5, fee: 1.5 }],
  ['of a rarer kind', z.union([z.object({ paid: z.literal(true) }), z.object({ due: cents })]), { paid: true }, { due: 3 }],
  ['that was nothing at first', z.object({ fee: cents }), { fee: 0 }, { fee: 3 }],
  ['in a list that was empty', z.array(cents), [], [3]],
  [
    'by a field that is not kept',
    z.object({ rate: z.number().default(100), fee: z.number() }).transform(byRate),
    { fee: 0 },
    { rate: 1, fee: 3 },
  ],
] as [string, StandardSchema<unknown>, unknown, unknown][])(
  'a schema that changes an amount %s is found out by the event that has it, whatever came before',
  (_what, schema, innocent, data) => {
    const codec = jsonCodec(schema)
    expect(codec.encode(innocent)).toBeInstanceOf(Uint8Array)
    expect(() => codec.encode(data)).toThrow(expect.objectContaining({ code: 'INVALID_OPTION' }))
  },
)

test('a schema that changes what it is given in place fails its first event, and the next', () => {
  const validate = (value: unknown): { readonly value: { n: number } } => {
    const given = value as { n: number }
    given.n += 1
    return { value: given }
  }
  const codec = jsonCodec({ '~standard': { version: 1, vendor: 'test', validate } })
  for (const n of [1, 2]) expect(() => codec.encode({ n })).toThrow(/changes its own output/)
})

test('an instance that the schema makes plain is read back, although it has the same fields', () => {
  class Money {
    readonly cents = 5
  }
  const codec = jsonCodec(z.instanceof(Money).transform(({ cents: amount }) => ({ cents: amount })))
  expect(() => codec.encode(new Money())).toThrow(/refuses its own output/)
})

test('after the first event, data is read back only where the schema changed it', () => {
  let validations = 0
  const schema = z.object({ a: z.string().trim(), list: z.array(z.number()).default([]) })
  const codec = jsonCodec<{ a: string; list?: number[] }, unknown>({
    '~standard': { version: 1, vendor: 'test', validate: (value) => ((validations += 1), schema['~standard'].validate(value)) },
  })
  const validationsOf = (data: { a: string; list?: number[] }): number => {
    validations = 0
    void codec.encode(data)
    return validations
  }
  expect(validationsOf({ a: 'x', list: [1] })).toBe(2)
  expect(validationsOf({ a: 'x', list: [1] })).toBe(1)
  expect(validationsOf({ a: ' x', list: [1] })).toBe(2)
  expect(validationsOf({ a: 'x' })).toBe(2)
  expect(validationsOf({ list: [], a: 'x' })).toBe(1)
})

const loose = v.object({ at: v.nullable(v.date()), n: v.nullable(v.number()), key: v.undefinedable(v.string()) })
test.each([
  ['a date that is read as text', { at: new Date(0), n: 1, key: 'k' }, 'INVALID_OPTION', /refuses its own output/],
  ['a key that is left out', { at: null, n: 1, key: undefined }, 'INVALID_OPTION', /refuses its own output/],
  ['a number that becomes null', { at: null, n: Infinity, key: 'k' }, 'INVALID_INPUT', /the number Infinity/],
  ['such a number behind a date', { at: new Date(0), n: -Infinity, key: 'k' }, 'INVALID_INPUT', /the number -Infinity/],
])('%s is refused, whatever came before', (_what, data, code, message) => {
  const codec = jsonCodec(loose)
  expect(codec.encode({ at: null, n: 1, key: 'k' })).toBeInstanceOf(Uint8Array)
  expect(() => codec.encode(data)).toThrow(expect.objectContaining({ code, message: expect.stringMatching(message) }))
})

test.each([
  ['a date', { at: new Date(0) }],
  ['undefined', { a: undefined }],
  ['undefined in a list', { list: [1, undefined] }],
  [
    'an instance of a class',
    {
      each: new (class Money {
        readonly cents = 5
      })(),
    },
  ],
  ['a map', [new Map()]],
  ['a function', { toJSON: () => 'x' }],
  ['a depth that is not looked at', deepList(2_000)],
])('data with %s is read back each time, and what is plain is not', (_what, data) => {
  let validations = 0
  const validate = (value: unknown): { readonly value: unknown } => ((validations += 1), { value })
  const codec = jsonCodec({ '~standard': { version: 1, vendor: 'test', validate } }, { maxDepth: 5_000 })
  const plain = [{ a: [1, 'x', true, null, -0], b: Object.assign(Object.create(null), { c: {} }) }]
  for (const each of [plain, data, data, plain]) void codec.encode(each)
  expect(validations).toBe(2 + 2 + 2 + 1)
})

test('the codec says that it writes JSON', () => {
  expect(anything.contentType).toBe('application/json')
})

function deepList(levels: number): unknown {
  let deep: unknown = 1
  for (let i = 0; i < levels; i += 1) deep = [deep]
  return deep
}

function ownKeys(value: unknown): string[] {
  if (typeof value !== 'object' || value === null) return []
  return Reflect.ownKeys(value).flatMap((key) => [String(key), ...ownKeys((value as Record<PropertyKey, unknown>)[key])])
}

function outcomeOf(bytes: Uint8Array): string {
  try {
    decodeJson(bytes)
    return 'decoded'
  } catch (error) {
    const { name, code } = error as { readonly name: string; readonly code?: string }
    return `${name} ${code}`
  }
}
