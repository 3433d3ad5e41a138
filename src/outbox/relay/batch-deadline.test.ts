import { expect, test } from 'vitest'
import { createFakeClock } from '../../testing/kit/fake-clock.ts'
import { createBatchWatch } from './batch-deadline.ts'
import type { DispatchRow } from '../tables/dispatch.sql.ts'

const rows = (...seqs: string[]): DispatchRow[] => seqs.map((seq) => ({ seq }) as DispatchRow)

test('the batch under way is announced from its lowest to its highest row, by value and not by text', () => {
  const watch = createBatchWatch(createFakeClock(), 1_000)
  expect(watch.range()).toBeUndefined()
  const batch = watch.begin()
  expect(watch.range()).toBeUndefined()
  batch.holds(rows('10', '9', '9007199254740993'))
  expect(watch.range()).toEqual({ from: '9', to: '9007199254740993' })
  const other = watch.begin()
  other.holds(rows('8', '11'))
  expect(watch.range()).toEqual({ from: '8', to: '9007199254740993' })
  batch.end()
  expect(watch.range()).toEqual({ from: '8', to: '11' })
  other.end()
  expect(watch.range()).toBeUndefined()
})

test('a batch that takes too long is stuck until it ends; a new one has its own time', async () => {
  const clock = createFakeClock()
  const watch = createBatchWatch(clock, 1_000)
  const batch = watch.begin()
  await clock.advance(1_000)
  expect(watch.isStuck()).toBe(false)
  await clock.advance(1)
  expect(watch.isStuck()).toBe(true)
  watch.begin()
  expect(watch.isStuck()).toBe(true)
  batch.end()
  expect(watch.isStuck()).toBe(false)
})
