import fc from 'fast-check'
import { expect, test } from 'vitest'
import { backoffMs, resolveBackoff, type BackoffOptions } from './backoff.ts'
import { seededRandom, type Random } from './random.ts'

const always = (value: number): Random => ({ next: () => value, fill: (bytes) => bytes })
const plain: BackoffOptions = { firstMs: 100, maxMs: 60_000, jitter: 'none' }

test('delays double from the first to the cap and stay there', () => {
  const delays = Array.from({ length: 12 }, (_, i) => backoffMs(plain, i + 1, always(0)))
  expect(delays).toEqual([100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 51_200, 60_000, 60_000])
})

test('another factor is obeyed', () => {
  expect([1, 2, 3].map((n) => backoffMs({ ...plain, factor: 3 }, n, always(0)))).toEqual([100, 300, 900])
})

test('full jitter draws from zero to the delay; equal jitter keeps half; equal is the default', () => {
  const full: BackoffOptions = { ...plain, jitter: 'full' }
  const equal: BackoffOptions = { firstMs: 100, maxMs: 60_000 }
  expect([0, 0.5, 0.999_999].map((r) => backoffMs(full, 2, always(r)))).toEqual([0, 100, 200])
  expect([0, 0.5, 0.999_999].map((r) => backoffMs(equal, 2, always(r)))).toEqual([100, 150, 200])
})

test('any number of failures gives a whole delay within the bounds of its jitter', () => {
  const kinds = fc.constantFrom('none' as const, 'equal' as const, 'full' as const)
  const random = seededRandom('backoff')
  fc.assert(
    fc.property(fc.integer({ min: -5, max: 1e9 }), fc.integer({ min: 1, max: 1e4 }), kinds, (failures, firstMs, jitter) => {
      const options = { firstMs, maxMs: 300_000 }
      const whole = backoffMs({ ...options, jitter: 'none' }, failures, random)
      const delay = backoffMs({ ...options, jitter }, failures, random)
      expect(Number.isInteger(delay)).toBe(true)
      expect(whole).toBeLessThanOrEqual(300_000)
      expect(whole).toBeGreaterThanOrEqual(firstMs)
      expect(delay).toBeLessThanOrEqual(whole)
      expect(delay).toBeGreaterThanOrEqual(jitter === 'full' ? 0 : jitter === 'equal' ? Math.floor(whole / 2) : whole)
    }),
  )
})

test('those who failed together do not come back together', () => {
  const random = seededRandom('herd')
  const delays = Array.from({ length: 100 }, () => backoffMs({ firstMs: 10_000, maxMs: 10_000 }, 1, random))
  expect(new Set(delays).size).toBeGreaterThan(90)
})

test('an option fills what it leaves out from the defaults of its owner', () => {
  const fallback = { firstMs: 100, maxMs: 10_000, jitter: 'full' } as const
  expect(resolveBackoff('relay.backoff', fallback)).toEqual({ ...fallback, factor: 2 })
  expect(resolveBackoff('relay.backoff', fallback, { firstMs: 1 })).toEqual({ ...fallback, firstMs: 1, factor: 2 })
})

test.each([
  [{ initialMs: 1 }, 'relay.backoff.initialMs: unknown option'],
  [{ firstMs: NaN }, 'relay.backoff.firstMs: must be a whole number'],
  [{ maxMs: Infinity }, 'relay.backoff.maxMs: must be a whole number'],
  [{ firstMs: 60_000 }, 'relay.backoff.firstMs: must be at most maxMs, which is 10000, got 60000.'],
  [{ factor: 0.5 }, 'relay.backoff.factor: must be a number from 1 to 100'],
  [{ jitter: 'some' }, 'relay.backoff.jitter: must be one of'],
  [null, 'relay.backoff: options must be an object'],
])('%j is refused by its name', (given, message) => {
  const resolving = (): unknown => resolveBackoff('relay.backoff', { firstMs: 100, maxMs: 10_000 }, given as BackoffOptions)
  expect(resolving).toThrow(expect.objectContaining({ code: 'INVALID_OPTION', message: expect.stringContaining(message) }))
})
