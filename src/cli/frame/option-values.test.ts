import { expect, test } from 'vitest'
import { durationOption } from './option-values.ts'

test.each([
  ['500ms', 500],
  ['2.01s', 2_010],
  ['1.5m', 90_000],
  ['2h', 7_200_000],
  ['1d', 86_400_000],
])('%s is %d whole milliseconds', (given, ms) => {
  expect(durationOption({ wait: given }, 'wait')).toBe(ms)
})

test.each(['5', '5 s', '-1s', '1w', '1e3ms'])('"%s" is refused with an example', (given) => {
  expect(() => durationOption({ wait: given }, 'wait')).toThrow(/--wait.*such as 500ms/)
})
