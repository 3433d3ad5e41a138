import fc from 'fast-check'
import { expect, test } from 'vitest'
import { parseMoment } from './timestamps.ts'

test('a moment is what Date.parse makes of it, in our form and in any other', () => {
  const date = fc.date({ noInvalidDate: true, min: new Date(0), max: new Date(253_402_300_799_999) })
  const ours = fc.tuple(date, fc.integer({ min: 0, max: 999 })).map(([each, micros]) => {
    return each.toISOString().replace('Z', `${String(micros).padStart(3, '0')}Z`)
  })
  const nearly = fc.tuple(ours, fc.nat(26), fc.constantFrom('9', 'x', ' ', ':')).map(([text, at, letter]) => {
    return text.slice(0, at) + letter + text.slice(at + 1)
  })
  const odd = fc.constantFrom('', '2025-01-31', '0099-01-01T00:00:00.000000Z', '2025-02-30T00:00:00.000000Z', 'yesterday')
  fc.assert(
    fc.property(fc.oneof(ours, nearly, odd), (text) => {
      expect(parseMoment(text)).toBe(Date.parse(text))
    }),
  )
})
