import { expect, test } from 'vitest'
import { createFakeClock } from '../../testing/kit/fake-clock.ts'
import { unlessLate } from './unless-late.ts'

test('work that is in time is what it resolves to or rejects with, and nobody sleeps on', async () => {
  const clock = createFakeClock()
  expect(await unlessLate(Promise.resolve(7), 1_000, clock)).toBe(7)
  await expect(unlessLate(Promise.reject(new Error('broken')), 1_000, clock)).rejects.toThrow('broken')
  expect(clock.sleepers()).toBe(0)
})

test('work that takes longer is waited for no longer, and may fail after that', async () => {
  const clock = createFakeClock()
  const work = Promise.withResolvers<number>()
  const waited = unlessLate(work.promise, 1_000, clock)
  await clock.advance(1_000)
  expect(await waited).toBeUndefined()
  work.reject(new Error('too late to matter'))
})
