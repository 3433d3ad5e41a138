import fc from 'fast-check'
import { expect, test } from 'vitest'
import { z } from 'zod'
import { assertJsonBudget, bodyBudget } from './budget.ts'
import { decodeJson, jsonCodec } from './codec.ts'
import { defaults } from '../defaults.ts'
import { assertExact, parseExactJson } from './exact-json.ts'
import { parseJson, readJson } from './read-json.ts'

const tooLarge = expect.objectContaining({ code: 'TOO_LARGE' }) as Error
const bytesOf = (text: string): Uint8Array => new TextEncoder().encode(text)
const { maxValues, maxDepth } = defaults.budget
const nested = (levels: number): string => '['.repeat(levels) + ']'.repeat(levels)

/** Values and levels, counted in the parsed value. */
function sizeOf(value: unknown): { values: number; depth: number } {
  if (typeof value !== 'object' || value === null) return { values: 1, depth: 0 }
  const inner = Object.values(value).map(sizeOf)
  return {
    values: 1 + inner.reduce((sum, { values }) => sum + values, 0),
    depth: 1 + Math.max(0, ...inner.map(({ depth }) => depth)),
  }
}

test('JSON of few bytes that stands for many values or levels is refused before it is parsed', () => {
  for (const text of [`[${'[],'.repeat(maxValues)}[]]`, `["\\u0041",${'{},'.repeat(maxValues)}{}]`, nested(maxDepth + 1)]) {
    expect(() => decodeJson(bytesOf(text))).toThrow(tooLarge)
    expect(() => parseExactJson(text)).toThrow(tooLarge)
    expect(() => parseJson(text, 10_000)).not.toThrow(SyntaxError)
  }
  // What follows is no JSON, and is never reached.
  expect(() => decodeJson(bytesOf(`${nested(1)[0]}${'1,'.repeat(maxValues + 1)}}`))).toThrow(tooLarge)
})

test('data within the budget is read, and no value or level beyond it is', () => {
  fc.assert(
    fc.property(fc.jsonValue({ maxDepth: 6 }), (value) => {
      const text = JSON.stringify(value)
      const { values, depth } = sizeOf(JSON.parse(text))
      fc.pre(values > 1 && depth > 1)
      expect(() => assertJsonBudget(text, { maxValues: values - 1, maxDepth: 1e6 })).toThrow(tooLarge)
      expect(() => assertJsonBudget(text, { maxValues: 1e6, maxDepth: depth - 1 })).toThrow(tooLarge)
      // An empty list or object counts twice.
      expect(() => assertJsonBudget(text, { maxValues: 2 * values, maxDepth: depth })).not.toThrow()
    }),
  )
})

test('what is too deep is refused in JSON that is too short to have too many values, and to its writer too', () => {
  const codec = jsonCodec(z.unknown())
  for (const [open, close] of [
    ['[', ']'],
    ['{"a":', '}'],
  ] as const) {
    const text = (levels: number): string => `${open.repeat(levels)}1${close.repeat(levels)}`
    expect(codec.decode(codec.encode(JSON.parse(text(maxDepth))) as Uint8Array)).toEqual(JSON.parse(text(maxDepth)))
    expect(() => codec.decode(bytesOf(text(maxDepth + 1)))).toThrow(tooLarge)
    expect(() => codec.encode(JSON.parse(text(maxDepth + 1)))).toThrow(tooLarge)
  }
  // JSON shows what the value does not: it is read back, and refused by its reader.
  expect(() => codec.encode({ toJSON: () => JSON.parse(nested(maxDepth + 1)) as unknown })).toThrow(tooLarge)
})

test('brackets and commas in texts count for nothing', () => {
  const text = JSON.stringify({ a: `${'[{,"\\'.repeat(1_000)}`, b: '\\"' })
  expect(() => assertJsonBudget(text, { maxValues: 3, maxDepth: 1 })).not.toThrow()
})

test('a codec refuses the same to its writer and to its reader, and both take what a larger budget allows', () => {
  const many = Array.from({ length: 20 }, (_, i) => i)
  const small = jsonCodec(z.unknown(), { maxValues: 10 })
  const large = jsonCodec(z.unknown(), { maxValues: 2_000, maxDepth: 2_000 })
  // The first of a codec is read back, the others are not.
  expect(small.encode([1])).toBeInstanceOf(Uint8Array)
  expect(() => small.encode(many)).toThrow(tooLarge)
  expect(() => small.decode(bytesOf(JSON.stringify(many)))).toThrow(tooLarge)
  expect(large.decode(large.encode(many) as Uint8Array)).toEqual(many)
  expect(Array.isArray(large.decode(bytesOf(nested(maxDepth + 1).replace('[]', '[1]'))))).toBe(true)
  expect(() => jsonCodec(z.unknown(), { maxValue: 1 } as never)).toThrow(/Did you mean "maxValues"/)
  expect(() => jsonCodec(z.unknown(), { maxDepth: 0 })).toThrow(/jsonCodec.maxDepth: must be a whole number/)
})

test('the budget of a body grows with the bytes it may have, and holds for bodies that a framework has parsed', async () => {
  const text = `[${'1,'.repeat(maxValues)}1]`
  expect(() => parseJson(text, 2 * maxValues + 10)).toThrow(tooLarge)
  expect(parseJson(text, 8 * maxValues)).toHaveLength(maxValues + 1)
  const request = new Request('http://localhost', { method: 'POST', body: text })
  await expect(readJson(request, 2 * maxValues + 10)).rejects.toThrow(tooLarge)
  expect(() => assertExact(JSON.parse(text))).toThrow(tooLarge)
  expect(() => assertExact(JSON.parse(text), bodyBudget(8 * maxValues))).not.toThrow()
  expect(() => assertExact(JSON.parse(nested(maxDepth + 1)))).toThrow(tooLarge)
})
