import fc from 'fast-check'
import { expect, test } from 'vitest'

import { columnList, joined, Name, name, part, qualifiedName, sql, sqlArray, sqlBytesArray, type SqlValue } from './sql.ts'

const value: fc.Arbitrary<SqlValue> = fc.oneof(
  fc.string({ unit: 'binary' }),
  fc.constantFrom(`'; drop table note; --`, '$1', '"', '\\'),
  fc.double(),
  fc.boolean(),
  fc.constant(null),
  fc.uint8Array(),
)

test('every value is bound, in order, and no part of one reaches the text', () => {
  fc.assert(
    fc.property(fc.array(value, { maxLength: 12 }), (values) => {
      const strings = Array.from({ length: values.length + 1 }, (_, i) => ` part${i} `)
      const statement = sql(Object.assign(strings, { raw: strings }), ...values)
      expect(statement.values).toEqual(values)
      expect(statement.text).toBe(strings.map((part, i) => (i === 0 ? part : `$${i}${part}`)).join(''))
    }),
  )
})

test('a name stands in the text, quoted; values around it keep their numbers', () => {
  const statement = sql`select ${1} from ${name('my_schema', 'note')} where a = ${'x'} or b = ${null}`
  expect(statement).toEqual({ text: 'select $1 from "my_schema"."note" where a = $2 or b = $3', values: [1, 'x', null] })
})

test('what a part binds is numbered along with the rest, as often as the part stands there', () => {
  const isOurs = part`(a = ${'x'} or ${name('b')} = ${2})`
  const statement = sql`select ${1} where ${isOurs} and c = ${3} and ${part`not ${isOurs}`}`
  expect(statement).toEqual({
    text: 'select $1 where (a = $2 or "b" = $3) and c = $4 and not (a = $5 or "b" = $6)',
    values: [1, 'x', 2, 3, 'x', 2],
  })
})

test('parts and names are joined, whether there are several or none', () => {
  const matches = ['a', 'b'].map((column) => part`${name(column)} = ${column}`)
  expect(sql`where ${joined(matches, ' and ')}`).toEqual({ text: 'where "a" = $1 and "b" = $2', values: ['a', 'b'] })
  expect(sql`(${columnList(['a'])})`.text).toBe('("a")')
  expect(sql`(${columnList([])})`.text).toBe('()')
})

test('only allow-listed names pass, whatever else is tried', () => {
  fc.assert(
    fc.property(
      fc.oneof(fc.string({ unit: 'binary' }), fc.string({ unit: fc.constantFrom('a', '_', '9', '"', '.', ' ', 'A') })),
      (text) => {
        const isAllowed = text.length <= 63 && /^[a-z_][a-z0-9_]*$/.test(text) && !text.includes('\n')
        expect(attempt(() => name(text).quoted)).toBe(isAllowed ? `"${text}"` : 'INVALID_OPTION')
      },
    ),
  )
  expect(() => new Name(['a', 'b" --'])).toThrow(/cannot be used as an SQL name/)
  expect(() => name('note\n')).toThrow(/cannot be used as an SQL name/)
  expect(() => qualifiedName('a."b')).toThrow(/cannot be used as an SQL name/)
  expect(qualifiedName('catalog_read.video').quoted).toBe('"catalog_read"."video"')
})

test('an array is written as Postgres reads it', () => {
  expect(sqlArray([])).toBe('{}')
  expect(sqlArray([1, 2n, true, null, undefined, 'a"b', 'c\\d', '', 'NULL'])).toBe(
    '{1,2,true,NULL,NULL,"a\\"b","c\\\\d","","NULL"}',
  )
  expect(sqlBytesArray([Uint8Array.of(0, 255), new Uint8Array()])).toBe('{"\\\\x00ff","\\\\x"}')
})

function attempt(work: () => string): unknown {
  try {
    return work()
  } catch (error) {
    return (error as { code?: unknown }).code
  }
}
