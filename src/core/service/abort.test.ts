import { getEventListeners } from 'node:events'
import { expect, test } from 'vitest'
import { underSignals, unlessLate } from './abort.ts'
import { createFakeClock } from '../../testing/kit/fake-clock.ts'

test('work is aborted by the first of its signals, for the reason of that one', async () => {
  const [process, attempt] = [new AbortController(), new AbortController()]
  const seen = await underSignals([process.signal, attempt.signal], async (signal) => {
    expect(signal.aborted).toBe(false)
    attempt.abort('too late')
    process.abort('stopped')
    return signal
  })
  expect(seen.aborted).toBe(true)
  expect(seen.reason).toBe('too late')
})

test('under a signal that has aborted, work begins aborted', async () => {
  const seen = await underSignals([new AbortController().signal, AbortSignal.abort('over')], async (signal) => signal)
  expect(seen.aborted).toBe(true)
  expect(seen.reason).toBe('over')
})

test.each([
  ['done', async () => {}],
  ['failed', async () => Promise.reject(new Error('broken'))],
])('a signal that lives on remembers nothing of work that has %s', async (_how, work) => {
  const process = new AbortController()
  let listeners = 0
  const run = underSignals([process.signal], async () => {
    listeners = getEventListeners(process.signal, 'abort').length
    await work()
  })
  await Promise.allSettled([run])
  expect(listeners).toBe(1)
  expect(getEventListeners(process.signal, 'abort')).toHaveLength(0)
})

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
