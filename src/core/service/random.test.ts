import { expect, test } from 'vitest'
import { randomInt, seededRandom, systemRandom } from './random.ts'

const draw = (seed: number | string, count: number): number[] => {
  const random = seededRandom(seed)
  return Array.from({ length: count }, () => random.next())
}

test('the same seed gives the same sequence, also on another machine', () => {
  expect(draw('order', 50)).toEqual(draw('order', 50))
  expect(draw(7, 5)).toEqual(draw('7', 5))
  // Committed on purpose: a change here makes every recorded seed worthless.
  expect(draw(1, 3).map((each) => Math.floor(each * 2 ** 32))).toEqual([3_581_614_736, 2_763_284_293, 4_264_252_481])
})

test('different seeds give different sequences', () => {
  const firsts = Array.from({ length: 1_000 }, (_, seed) => draw(seed, 1)[0])
  expect(new Set(firsts).size).toBe(1_000)
})

test('numbers are at least 0, below 1, and spread evenly', () => {
  const numbers = draw('spread', 100_000)
  expect(numbers.every((each) => each >= 0 && each < 1)).toBe(true)
  const buckets = new Array<number>(10).fill(0)
  for (const each of numbers) buckets[Math.floor(each * 10)]! += 1
  for (const count of buckets) expect(Math.abs(count - 10_000)).toBeLessThan(500)
})

test('fill fills every byte with every value', () => {
  const bytes = seededRandom('bytes').fill(new Uint8Array(20_000))
  expect(new Set(bytes).size).toBe(256)
})

test('the system source fills arrays of any size, and differs from call to call', () => {
  const large = systemRandom.fill(new Uint8Array(100_000))
  expect(new Set(large).size).toBe(256)
  expect(systemRandom.fill(new Uint8Array(16))).not.toEqual(systemRandom.fill(new Uint8Array(16)))
})

test('randomInt reaches both ends and nothing beyond', () => {
  const random = seededRandom('dice')
  const thrown = new Set(Array.from({ length: 1_000 }, () => randomInt(random, 1, 6)))
  expect([...thrown].toSorted((a, b) => a - b)).toEqual([1, 2, 3, 4, 5, 6])
})
