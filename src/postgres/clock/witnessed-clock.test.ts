import { expect, test } from 'vitest'
import { ageByClock } from './witnessed-clock.ts'

const ages = (leaps: readonly { readonly from: number; readonly to: number }[], nowMs = 1_000): ((ageMs: number) => number) =>
  ageByClock({ now_ms: String(nowMs), leaps: JSON.stringify(leaps) })

test('without a leap a row is as old as it looks, also where nobody has looked at the clock yet', () => {
  expect(ages([])(100)).toBe(100)
  expect(ageByClock(undefined)(100)).toBe(100)
})

test('a row from before a leap must look older by the leap, and one from after it need not', () => {
  const age = ages([{ from: 500, to: 900 }])
  expect(age(50)).toBe(50)
  expect(age(100)).toBe(100)
  expect(age(101)).toBe(501)
})

test('each leap behind the last adds to the age, and one that is older than what is kept does not', () => {
  const age = ages([
    { from: 900, to: 950 },
    { from: 600, to: 800 },
    { from: 100, to: 200 },
  ])
  expect([age(60), age(150), age(151), age(540), age(551)]).toEqual([110, 200, 401, 790, 901])
})
