import { expect, test } from 'vitest'
import { headerTexts } from './attributes.ts'

test('every value becomes a text, and numbers keep their digits', () => {
  const json = '{"tenant": "acme", "big": 12345678901234567890, "list": [1.50, "a"], "none": null, "__proto__": "own"}'
  expect(Object.entries(headerTexts(json) ?? {})).toEqual([
    ['tenant', 'acme'],
    ['big', '12345678901234567890'],
    ['list', '[1.50,"a"]'],
    ['none', 'null'],
    ['__proto__', 'own'],
  ])
})

test.each(['', 'acme', '"acme"', '17', 'null', '[{}]', '{"a": '])('%j is no JSON object', (json) => {
  expect(headerTexts(json)).toBeUndefined()
})
