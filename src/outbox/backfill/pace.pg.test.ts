import { expect, test } from 'vitest'

import { library, passTime } from '../../../test/outbox/backfill-library.ts'
import { snapshotCounts } from '../../../test/outbox/backfill-world.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import type { Database } from '../../postgres/query/database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { createFakeClock } from '../../testing/kit/fake-clock.ts'
import { memory } from '../../transport/memory/memory.ts'
import { redriveParked } from '../operate/parked.ts'

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

test.each(['a topic that is missing', 'events that the broker refuses'])(
  '%s makes the backfill wait like a relay that does not keep up',
  async (what) => {
    const { backfill, relay, signals, dispatch } = await library(db, 1_000)
    const [clock, broker, stop] = [createFakeClock(), memory(), new AbortController()]
    if (what === 'a topic that is missing') broker.setMissing(['book.events'])
    else broker.setRejects(() => true)
    let [waits, ended] = [0, false]
    signals.on('backfill.waiting', ({ reason }) => void (waits += Number(reason === 'backlog')))
    const running = backfill({ maxBacklog: 100, clock, rowsPerSecond: 400 }).run({ signal: stop.signal })
    void running.finally(() => (ended = true))
    const backoff = { firstMs: 3_600_000, maxMs: 3_600_000 }
    await eventually(async () => {
      await eventually(() => clock.sleepers() === 1 || ended)
      // Without its topic it says so after it has put everything off.
      await relay(broker, { backoff })
        .once()
        .catch(() => 0)
      await clock.advance(250)
      return waits === 1 || ended
    })
    expect({ waits, ended }).toEqual({ waits: 1, ended: false })
    const found = await dispatch()
    expect(found.length).toBeLessThanOrEqual(200)
    expect(found.some((row) => row['state'] !== 1)).toBe(false)
    stop.abort()
    await clock.advance(500)
    expect(await running).toMatchObject({ state: 'stopped' })
  },
)

test('events of another stream that failed do not hold a backfill back', async () => {
  const { backfill, fill, relay, signals, dispatch } = await library(db, 5)
  const [broker, stop] = [memory(), new AbortController()]
  broker.setMissing(['video.events'])
  await fill(
    Array.from({ length: 30 }, (_, nth) => `v${nth}`),
    1,
  )
  await expect(relay(broker, { backoff: { firstMs: 3_600_000, maxMs: 3_600_000 } }).once()).rejects.toMatchObject({
    code: 'UNAVAILABLE',
  })
  expect((await dispatch()).map((row) => row['state'])).toEqual(Array.from({ length: 30 }, () => 1))
  signals.on('backfill.waiting', () => stop.abort())
  const report = await backfill({ maxBacklog: 19 }).run({ signal: stop.signal })
  expect(report).toMatchObject({ state: 'finished', emitted: 5 })
})

test.each([
  { what: 'goes on', maxBacklog: 5_000 },
  { what: 'waits', maxBacklog: 99 },
])('a backfill that $what looks at what failed every five seconds', async ({ what, maxBacklog }) => {
  const { backfill, relay } = await library(db, 100)
  await backfill({ name: 'before' }).run()
  await relay(memory({ rejects: () => true }), { backoff: { firstMs: 3_600_000, maxMs: 3_600_000 } }).once()
  const [clock, stop] = [createFakeClock(), new AbortController()]
  let looks = 0
  const query: Database['query'] = async (text, values) => {
    looks += Number(text.includes('d.state = 1'))
    return await db.query(text, values)
  }
  const running = backfill({ db: { ...db, query }, clock, rowsPerSecond: 4, maxBacklog }).run({ signal: stop.signal })
  for (let passedMs = 0; passedMs < 20_000; passedMs += 250) {
    await eventually(() => clock.sleepers() === 1)
    await clock.advance(250)
  }
  stop.abort()
  const { emitted } = await running
  expect(emitted > 0).toBe(what === 'goes on')
  expect(looks).toBeGreaterThanOrEqual(4)
  expect(looks).toBeLessThanOrEqual(5)
})

test('a backfill whose snapshots are parked stops before it has parked them all, and goes on when that is mended', async () => {
  const { backfill, relay, outbox, dispatch } = await library(db, 3_000)
  const [clock, broker] = [createFakeClock(), memory({ rejects: () => true })]
  let ended = false
  const running = backfill({ clock, rowsPerSecond: 100 }).run()
  void running.catch(() => (ended = true))
  await eventually(async () => {
    await eventually(() => clock.sleepers() === 1 || ended)
    await relay(broker, { maxAttempts: 1 }).once()
    await clock.advance(250)
    return ended
  })
  await expect(running).rejects.toMatchObject({ code: 'REFUSED', message: expect.stringContaining('snapshots are parked') })
  expect((await dispatch()).length).toBeLessThan(1_000)
  broker.setRejects(() => false)
  await redriveParked({ db, outbox, filter: { all: true }, actor: 'ada' })
  await relay(broker).once()
  expect(await backfill().run({ mode: 'resume' })).toMatchObject({ state: 'finished', emitted: 3_000 })
})
