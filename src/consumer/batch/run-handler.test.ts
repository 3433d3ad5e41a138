import { expect, test } from 'vitest'
import { createFakeClock, type FakeClock } from '../../testing/kit/fake-clock.ts'
import { createHandlerCalls, type HandlerCalls } from './run-handler.ts'

function fixture(): { clock: FakeClock; aborting: AbortController; calls: HandlerCalls } {
  const clock = createFakeClock()
  const aborting = new AbortController()
  return { clock, aborting, calls: createHandlerCalls({ handlerTimeoutMs: 60, clock }, aborting.signal) }
}

test('every handler of a batch has the whole time, and one that needs more is given up with its signal', async () => {
  const { clock, calls } = fixture()
  for (let i = 0; i < 4; i += 1) {
    const done = calls.call(() => clock.sleep(40))
    await clock.advance(40)
    await done
  }
  let signal: AbortSignal | undefined
  const slow = calls.call((calling) => {
    signal = calling.signal
    return new Promise<never>(() => {})
  })
  const end = slow.catch((error: unknown) => error)
  await clock.advance(59)
  expect(signal?.aborted).toBe(false)
  await clock.advance(1)
  expect(await end).toMatchObject({ code: 'TIMEOUT' })
  expect(signal?.aborted).toBe(true)
  calls.end()
})

test('a process that stops gives up the handler that runs, and calls no other', async () => {
  const { aborting, calls } = fixture()
  let signal: AbortSignal | undefined
  const end = calls
    .call((calling) => {
      signal = calling.signal
      return new Promise<never>(() => {})
    })
    .catch((error: unknown) => error)
  aborting.abort()
  expect(await end).toMatchObject({ code: 'ABORTED' })
  expect(signal?.aborted).toBe(true)
  let called = false
  await expect(calls.call(() => void (called = true))).rejects.toMatchObject({ code: 'ABORTED' })
  expect(called).toBe(false)
  calls.end()
})

test('what a handler throws or returns is its outcome; a query builder is awaited although it is no promise', async () => {
  const { calls } = fixture()
  await expect(
    calls.call(() => {
      throw new Error('at once')
    }),
  ).rejects.toThrow('at once')
  await expect(calls.call(() => Promise.reject(new Error('later')))).rejects.toThrow('later')
  const builder = {
    then: (_resolve: () => void, reject: (error: Error) => void) => reject(new Error('not inserted')),
  }
  await expect(calls.call(() => builder as never)).rejects.toThrow('not inserted')
  await calls.call(() => undefined)
  calls.end()
})
