import { expect, test } from 'vitest'

import { library, passTime } from '../../test/outbox/backfill-library.ts'
import { snapshotCounts } from '../../test/outbox/backfill-world.ts'
import { testDatabase } from '../../test/setup/test-database.ts'
import { fromPg } from '../postgres/from-pg.ts'
import { eventually } from '../testing/eventually.ts'
import { createFakeClock } from '../testing/fake-clock.ts'
import { memory } from '../transport/memory.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

test('the rate is kept: after n seconds no more than n times the rate is emitted', async () => {
  const { backfill, signals } = await library(db, 100)
  const clock = createFakeClock()
  let rows = 0
  signals.on('backfill.progress', (progress) => void (rows = progress.rows))
  const running = backfill({ rowsPerSecond: 40, clock }).run()
  for (const expected of [10, 20, 30, 40]) {
    await eventually(() => rows === expected && clock.sleepers() === 1)
    await clock.advance(249)
    expect(clock.sleepers()).toBe(1)
    await clock.advance(1)
  }
  await eventually(async () => {
    await clock.advance(250)
    return rows === 100
  })
  expect(await passTime(clock, running)).toMatchObject({ rows: 100 })
})

test('while the relay has more to send than the limit the backfill waits, and goes on when there is room', async () => {
  const { backfill, fill, relay, signals, outbox } = await library(db, 5)
  await fill(['v1', 'v2'], 10)
  const clock = createFakeClock()
  let waits = 0
  signals.on('backfill.waiting', ({ reason }) => void (waits += Number(reason === 'backlog')))
  const running = backfill({ maxBacklog: 19, clock, rowsPerSecond: 1_000_000 }).run()
  await eventually(() => waits === 1 && clock.sleepers() === 1)
  await clock.advance(500)
  await eventually(() => clock.sleepers() === 1)
  expect(await snapshotCounts(db, outbox)).toEqual({})
  await relay(memory()).once()
  expect(await passTime(clock, running)).toMatchObject({ state: 'finished', emitted: 5 })
  expect(waits).toBe(1)
})
