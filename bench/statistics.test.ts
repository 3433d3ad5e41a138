import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { judge, median, quantile, spread } from './statistics.ts'

describe('statistics', () => {
  test('the median of an odd count is its middle, of an even count between the two middles', () => {
    expect(median([9, 1, 5])).toBe(5)
    expect(median([4, 1, 3, 2])).toBe(2.5)
  })

  test('one outlier moves neither median nor spread out of the range of the rest', () => {
    const calm = [10, 11, 12, 13, 14, 15, 16]
    expect(median([...calm.slice(0, 6), 1_000_000])).toBe(13)
    expect(spread([...calm.slice(0, 6), 1_000_000])).toBe(spread(calm))
  })

  test('half of the rounds lie within a quartile of the median', () => {
    expect(spread([1, 2, 3, 4, 5, 6, 7])).toBe(1.5)
    expect(spread([5, 5, 5])).toBe(0)
  })

  test('samples are not reordered in place', () => {
    const samples = [3, 1, 2]
    median(samples)
    expect(samples).toEqual([3, 1, 2])
  })

  test('nothing measured is an error, never a zero', () => {
    expect(() => median([])).toThrow('at least one sample')
  })

  test('a quantile lies within the samples and grows with its share', () => {
    const samples = fc.array(fc.double({ noNaN: true, min: -1e9, max: 1e9 }), { minLength: 1, maxLength: 30 })
    fc.assert(
      fc.property(samples, fc.double({ noNaN: true, min: 0, max: 1 }), (values, share) => {
        const found = quantile(values, share)
        expect(found).toBeGreaterThanOrEqual(Math.min(...values))
        expect(found).toBeLessThanOrEqual(Math.max(...values))
        expect(quantile(values, 1)).toBeGreaterThanOrEqual(found)
      }),
    )
  })
})

describe('a bar', () => {
  const atMost = { target: 100, direction: 'at-most' } as const
  const atLeast = { target: 100, direction: 'at-least' } as const

  test('is met or missed when the margin is larger than the spread', () => {
    expect(judge({ value: 80, spread: 10 }, atMost)).toBe(true)
    expect(judge({ value: 120, spread: 10 }, atMost)).toBe(false)
    expect(judge({ value: 120, spread: 10 }, atLeast)).toBe(true)
    expect(judge({ value: 80, spread: 10 }, atLeast)).toBe(false)
  })

  test('is inconclusive when the rounds differ more than the margin', () => {
    expect(judge({ value: 95, spread: 10 }, atMost)).toBe('inconclusive')
    expect(judge({ value: 105, spread: 10 }, atMost)).toBe('inconclusive')
    expect(judge({ value: 95, spread: 10 }, atLeast)).toBe('inconclusive')
  })

  test('is met exactly at its target when nothing varies', () => {
    expect(judge({ value: 100, spread: 0 }, atMost)).toBe(true)
    expect(judge({ value: 100, spread: 0 }, atLeast)).toBe(true)
  })

  test('is missed by a value that is no number', () => {
    expect(judge({ value: Number.NaN, spread: 0 }, atMost)).toBe(false)
    expect(judge({ value: Number.POSITIVE_INFINITY, spread: 0 }, atLeast)).toBe(false)
  })
})
