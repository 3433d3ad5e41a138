import fc from 'fast-check'
import { expect, test } from 'vitest'
import { fairShare } from './lane-leases.ts'

test('the shares of any number of workers add up to all lanes, and no two differ by more than one', () => {
  const lanes = fc.integer({ min: 0, max: 12 }).map((power) => 2 ** power)
  fc.assert(
    fc.property(lanes, fc.integer({ min: 1, max: 200 }), (count, workers) => {
      const shares = Array.from({ length: workers }, (_, rank) => fairShare(count, workers, rank))
      expect(shares.reduce((a, b) => a + b)).toBe(count)
      expect(Math.max(...shares) - Math.min(...shares)).toBeLessThanOrEqual(1)
    }),
  )
})

test('a newcomer gets lanes where the old ones held an equal number before', () => {
  expect(Array.from({ length: 5 }, (_, rank) => fairShare(16, 5, rank))).toEqual([4, 3, 3, 3, 3])
  expect(Array.from({ length: 9 }, (_, rank) => fairShare(64, 9, rank))).toEqual([8, 7, 7, 7, 7, 7, 7, 7, 7])
})
