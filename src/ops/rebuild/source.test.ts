import { expect, test } from 'vitest'
import { parseFrom, showFrom } from './source.ts'

test.each([
  ['2026-05-01', '2026-05-01T00:00:00.000Z'],
  ['2026-05-01T14:30Z', '2026-05-01T14:30:00.000Z'],
  ['2026-05-01T14:30:15+02:00', '2026-05-01T12:30:15.000Z'],
  ['2026-05-01T00:00:00.123456-05:30', '2026-05-01T05:30:00.123Z'],
  ['earliest', 'earliest'],
  ['outbox', 'outbox'],
  ['snapshot:before-1.4', 'snapshot:before-1.4'],
])('%s is %s, on every machine', (text, shown) => {
  expect(showFrom(parseFrom(text))).toBe(shown)
})

test.each([
  '7',
  'outbox-1',
  'snapshot:',
  '05/06/2026',
  '2026-05',
  '2026-05-01T14:30',
  '2026-05-01 14:30:00',
  '2026-05-01T25:00Z',
  '2026-02-30',
  '2026-02-29T00:00Z',
  '',
])('"%s" is refused: it is no moment, or another one on another machine', (text) => {
  expect(() => parseFrom(text)).toThrow(expect.objectContaining({ code: 'INVALID_OPTION' }))
  expect(() => parseFrom(text)).toThrow('2026-05-01T14:00:00Z')
})
