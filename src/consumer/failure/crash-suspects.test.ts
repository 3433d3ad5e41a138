import { expect, test } from 'vitest'
import { createCrashSuspects } from './crash-suspects.ts'
import type { Item } from '../model/batch-item.ts'

/** A delivery of a broker that does not count. */
const item = (id: string, deliveryAttempt?: number): Item =>
  ({ event: { id }, origin: { kind: 'delivery', delivery: { message: { deliveryAttempt } } } }) as unknown as Item
const [allNew, someDone] = [{ duplicates: 0 }, { duplicates: 1 }]

test('the start is over when as many as can be in hand came in a row and were new', () => {
  const { isSuspect, committed } = createCrashSuspects(2)
  committed([item('a')], allNew)
  committed([item('b')], someDone)
  committed([item('c')], allNew)
  expect(isSuspect(item('d'))).toBe(true)
  committed([item('d')], allNew)
  expect(isSuspect(item('e'))).toBe(false)
  committed([item('e')], someDone)
  expect(isSuspect(item('f'))).toBe(false)
  expect(isSuspect(item('f', 2))).toBe(true)
})

test('where duplicates never end, the start does', () => {
  const { isSuspect, committed } = createCrashSuspects(2)
  for (let i = 0; i < 199; i += 1) committed([item('a')], someDone)
  expect(isSuspect(item('b'))).toBe(true)
  committed([item('b')], someDone)
  expect(isSuspect(item('c'))).toBe(false)
})

test('what was charged or marked is suspect until it is committed, and the newest 10,000 are remembered', () => {
  const { isSuspect, markFailed, committed } = createCrashSuspects(1)
  expect(isSuspect(item('marked'))).toBe(true)
  committed([item('other')], allNew)
  markFailed(item('charged'))
  expect([item('marked'), item('charged'), item('other')].map(isSuspect)).toEqual([true, true, false])
  committed([item('marked')], allNew)
  expect([item('marked'), item('charged')].map(isSuspect)).toEqual([false, true])
  for (let i = 0; i < 10_000; i += 1) markFailed(item(`${i}`))
  expect([item('charged'), item('0'), item('9999')].map(isSuspect)).toEqual([false, true, true])
})
