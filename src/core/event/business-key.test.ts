import fc from 'fast-check'
import { expect, test } from 'vitest'
import { businessKeyParts, businessKeyText } from './business-key.ts'

const part = fc.string({ unit: fc.constantFrom('a', 'b', '/', '%', '2', '5', 'F', 'ü', ' '), minLength: 1, maxLength: 8 })
const keys = fc.array(part, { minLength: 1, maxLength: 4 })

test('a key comes back from its text as it was, so different keys have different texts', () => {
  fc.assert(
    fc.property(keys, (key) => {
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
