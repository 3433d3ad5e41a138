import { expect, test } from 'vitest'
import { systemRandom } from '../../core/service/random.ts'
import { createOutageBackoff } from './outage-backoff.ts'

test('delays grow with the time a trouble lasts, not with how many it meets, and begin anew after a quiet time', () => {
  let nowMs = 1_000
  const clock = { nowMs: () => 0, monotonicMs: () => nowMs, sleep: () => Promise.resolve() }
  const next = createOutageBackoff(
    { clock, random: systemRandom, backoff: { firstMs: 100, maxMs: 60_000, jitter: 'none' } },
    5_000,
  )
  expect([next(), next(), next()]).toEqual([100, 100, 100])
  const later = [200, 1_000, 4_000, 20_000].map((afterMs) => {
    nowMs += afterMs
    return next()
  })
  expect(later).toEqual([200, 1_200, 5_000, 5_000])
  nowMs += 60_000
  expect(next()).toBe(100)
})
