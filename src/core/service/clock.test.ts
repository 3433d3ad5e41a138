import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { systemClock } from './clock.ts'

beforeEach(() => void vi.useFakeTimers())
afterEach(() => void vi.useRealTimers())

/** Whether the sleep has ended by now. */
async function ended(sleep: Promise<void>): Promise<boolean> {
  return await Promise.race([sleep.then(() => true), Promise.resolve().then(() => Promise.resolve(false))])
}

test('a sleep ends after its time and not before', async () => {
  const sleep = systemClock.sleep(1_000)
  await vi.advanceTimersByTimeAsync(999)
  expect(await ended(sleep)).toBe(false)
  await vi.advanceTimersByTimeAsync(1)
  expect(await ended(sleep)).toBe(true)
})

test('an abort ends a sleep at once, never as a rejection, and leaves no timer', async () => {
  const stop = new AbortController()
  const sleep = systemClock.sleep(1_000, stop.signal)
  stop.abort(new Error('stop'))
  await sleep
  await systemClock.sleep(1_000, stop.signal)
  expect(vi.getTimerCount()).toBe(0)
})

test('a long-lived signal is not left with a listener for every sleep', async () => {
  const stop = new AbortController()
  const add = vi.spyOn(stop.signal, 'addEventListener')
  const remove = vi.spyOn(stop.signal, 'removeEventListener')
  for (let i = 0; i < 10; i += 1) {
    const sleep = systemClock.sleep(1, stop.signal)
    await vi.advanceTimersByTimeAsync(1)
    await sleep
  }
  expect(add).toHaveBeenCalledTimes(10)
  expect(remove.mock.calls.map((call) => call[1])).toEqual(add.mock.calls.map((call) => call[1]))
})

test('a sleep longer than a timer can be set for is not cut to nothing', async () => {
  const thirtyDaysMs = 30 * 86_400_000
  const sleep = systemClock.sleep(thirtyDaysMs)
  await vi.advanceTimersByTimeAsync(thirtyDaysMs - 1)
  expect(await ended(sleep)).toBe(false)
  await vi.advanceTimersByTimeAsync(1)
  expect(await ended(sleep)).toBe(true)
})

test('a long sleep can be ended after its first timer', async () => {
  const stop = new AbortController()
  const sleep = systemClock.sleep(30 * 86_400_000, stop.signal)
  await vi.advanceTimersByTimeAsync(26 * 86_400_000)
  stop.abort()
  await sleep
  expect(vi.getTimerCount()).toBe(0)
})
