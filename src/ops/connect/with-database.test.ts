import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { errorMessage } from '../../core/errors.ts'
import { closedAfter } from './with-database.ts'

beforeEach(() => void vi.useFakeTimers())
afterEach(() => void vi.useRealTimers())

test('what was flushed in vain is a failure, early or late', async () => {
  const failing = { close: () => Promise.reject(new Error('not flushed')) }
  await expect(closedAfter(failing, () => Promise.resolve('done'))).rejects.toThrow('not flushed')
  const later = {
    close: () => new Promise<void>((_resolve, reject) => void setTimeout(() => reject(new Error('not flushed')), 1_000)),
  }
  const closing = closedAfter(later, () => Promise.resolve('done')).catch(errorMessage)
  await vi.runAllTimersAsync()
  expect(await closing).toBe('not flushed')
})

test('what never closes is left after its time, and no timer outlives a close', async () => {
  const closing = closedAfter({ close: () => new Promise(() => {}) }, () => Promise.resolve('done'))
  await vi.runAllTimersAsync()
  expect(await closing).toBe('done')
  expect(await closedAfter({ close: () => Promise.resolve() }, () => Promise.resolve('done'))).toBe('done')
  expect(vi.getTimerCount()).toBe(0)
})

test('work that failed is what is told, also if closing fails as well', async () => {
  const failing = { close: () => Promise.reject(new Error('no connection')) }
  await expect(closedAfter(failing, () => Promise.reject(new Error('no such topic')))).rejects.toThrow('no such topic')
})
