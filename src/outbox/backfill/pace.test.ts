import { expect, test } from 'vitest'

import { createFakeClock } from '../../testing/kit/fake-clock.ts'
import { createBackfillPace } from './pace.ts'

const never = new AbortController().signal

test('rows are spent at the given rate, and time that was not used is not caught up with', async () => {
  const clock = createFakeClock()
  const pace = createBackfillPace(clock, { rowsPerSecond: 100, batchSize: 1_000 })
  expect(pace.mostRows).toBe(25)
  let spent = 0
  const spending = (async () => {
    for (let i = 0; i < 40; i += 1) {
      await pace.spend(25, never)
      spent += 25
      if (spent === 100) await clock.sleep(60_000)
    }
  })()
  await clock.advance(1_000)
  expect(spent).toBe(100)
  await clock.advance(60_000)
  expect(spent).toBe(100)
  await clock.advance(1_000)
  expect(spent).toBe(200)
  await clock.advance(8_000)
  await spending
  expect(spent).toBe(1_000)
})

test('the time that is left follows from the pace so far, and is unknown before there is one', async () => {
  const clock = createFakeClock()
  const pace = createBackfillPace(clock, { rowsPerSecond: 100, batchSize: 10 })
  expect(pace.progress({ rows: 0, done: 0, left: 500 }).etaMs).toBeUndefined()
  await clock.advance(2_000)
  expect(pace.progress({ rows: 100, done: 4_000, left: 6_000 })).toEqual({ rowsPerSecond: 50, etaMs: 3_000 })
  expect(pace.progress({ rows: 100, done: 4_000, left: undefined }).etaMs).toBeUndefined()
})

test('a small rate makes small batches, and never empty ones', () => {
  expect(createBackfillPace(createFakeClock(), { rowsPerSecond: 1, batchSize: 100 }).mostRows).toBe(1)
  expect(createBackfillPace(createFakeClock(), { rowsPerSecond: 1_000, batchSize: 100 }).mostRows).toBe(100)
})
