import { expect, test } from 'vitest'
import { storableMoment } from './storable.ts'

test.each([
  [0, '1970-01-01T00:00:00.000Z'],
  [-1, '1969-12-31T23:59:59.999Z'],
  [1_700_000_000_000, '2023-11-14T22:13:20.000Z'],
  [1_700_000_000_000_000, '9999-12-31T23:59:59.999Z'],
  [1_700_000_000_000_000_000, '9999-12-31T23:59:59.999Z'],
  [-9_223_372_036_854_775_808, '0001-01-01T00:00:00.000Z'],
  [Infinity, '9999-12-31T23:59:59.999Z'],
  [Number.NaN, '1970-01-01T00:00:00.000Z'],
])('%d becomes a moment that can be kept', (ms, text) => expect(storableMoment(ms)).toBe(text))
