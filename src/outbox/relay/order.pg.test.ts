import { describe, expect, test } from 'vitest'
import { firstOccurrences, log, outboxFixture, videos } from '../../../test/setup/outbox-fixture.ts'
import { openWorld, operate } from '../../../test/outbox/world.ts'
import { retryNow } from '../../../test/outbox/relay-by-hand.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { rows as readRows } from '../../postgres/query/database.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { memory } from '../../transport/memory/memory.ts'
import { event } from '../outbox.ts'
import { redriveParked, skipParked } from '../operate/parked.ts'
import { settleDispatch } from '../tables/dispatch.sql.ts'
import { relaySteps, type RelaySteps } from './steps.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

test('however many write to one aggregate, at whatever isolation, its line is in the order of its versions', async () => {
  const { outbox } = await outboxFixture(db)
  const isolations = ['read committed', 'read committed', 'repeatable read', 'serializable'] as const
  await Promise.all(
    Array.from({ length: 8 }, async (_, writer) => {
      for (let round = 0; round < 10; round += 1) {
        const events = Array.from({ length: 1 + (round % 3) }, () =>
          event(videos.VideoPublished, 'v1', { title: String(writer) }),
        )
        await transaction(db, (tx) => outbox.addMany(tx, events), {
          isolation: isolations[writer % 4] ?? 'serializable',
          retries: 100,
        })
      }
    }),
  )
  const { rows } = await db.query(
    `select o.version::int from ${outbox.tables.dispatch.quoted} d join ${outbox.tables.outbox.quoted} o on o.id = d.event_id order by d.seq`,
  )
  const versions = (rows as { version: number }[]).map(({ version }) => version)
  expect(versions).toEqual(Array.from({ length: 8 * 19 }, (_, nth) => nth + 1))
})

test('settling refuses an isolation in which it could not see what it waited for', async () => {
  const { outbox } = await outboxFixture(db)
  const nothing = { confirmed: [], stopped: [], hold: [] }
  for (const isolation of ['repeatable read', 'serializable'] as const) {
    const settling = transaction(
      db,
      (tx) =>
        readRows(tx, settleDispatch(outbox.tables, 'r', [{ lane: 1, token: null }], nothing, { receipts: true, events: true })),
      { isolation },
    )
    await expect(settling).rejects.toMatchObject({ code: '25001' })
  }
})

test('a key has one head at most', async () => {
  const { outbox, publish } = await outboxFixture(db)
  await publish('v1', 'one', 'two')
  await expect(db.query(`update ${outbox.tables.dispatch.quoted} set state = 1`)).rejects.toMatchObject({ code: '23505' })
})

test('a head that fails again with others held behind it stays the only head, and they go out in order in the end', async () => {
  const world = await openWorld(db)
  const relay = world.relay({ backoffMs: 600_000 })
  const ids = Array.from({ length: 300 }, (_, nth) => String(nth))
  world.refuse('a 1')
  await world.publish('a', 'first')
  await world.fill(['a', 'b'], 300)
  await relay.drain()
  await retryNow(world)
  await relay.drain()
  expect(firstOccurrences(world.broker, 'a')).toEqual([])
  expect(firstOccurrences(world.broker, 'b')).toHaveLength(300)
  expect((await world.dispatch()).map((row) => row['state'])).toEqual([1, ...ids.map(() => 2)])
  world.refuse('a 150')
  await retryNow(world)
  await relay.drain()
  expect(firstOccurrences(world.broker, 'a')).toHaveLength(149)
  world.refuse()
  await retryNow(world)
  await relay.drain()
  expect(await world.found()).toEqual([])
})

test('a key with ten thousand events does not keep the others of its lane waiting', async () => {
  const world = await openWorld(db)
  await world.fill(['hot'], 10_000)
  await world.fill(['b', 'c', 'd'], 2)
  const relay = world.relay()
  let passes = 0
  while (!['b', 'c', 'd'].every((id) => firstOccurrences(world.broker, id).length === 2)) {
    passes += 1
    await relay.pass()
  }
  expect(passes).toBeLessThanOrEqual(25)
  expect(world.broker.publishedCount).toBeLessThan(10_000)
  await relay.drain()
  expect(await world.found()).toEqual([])
})

test('events of one aggregate for two topics go out one after the other, and keep nobody else waiting', async () => {
  const world = await openWorld(db)
  const { schema } = world.outbox.tables
  await db.query(
    `select ${schema}.add_event(case n % 2 when 0 then 'left' else 'right' end, 'video', 'a', 'VideoPublished', '{}') from generate_series(1, 20) n`,
  )
  await world.publish('b', 'one', 'two')
  const relay = world.relay()
  await relay.pass()
  expect(log(world.broker)).toEqual(['a 1', 'b 1', 'b 2'])
  // Behind another topic nothing goes, even if it could.
  world.refuse('a 2')
  await relay.pass()
  expect(firstOccurrences(world.broker, 'a')).toEqual([1])
  world.refuse()
  await retryNow(world)
  await relay.drain()
  expect(firstOccurrences(world.broker, 'a')).toEqual(Array.from({ length: 20 }, (_, nth) => nth + 1))
  expect(await world.found()).toEqual([])
})

test('events that go to two topics in turn are read a few times each, however many wait and whatever was read before', async () => {
  const world = await openWorld(db)
  const { schema } = world.outbox.tables
  let read = 0
  const counting: RelaySteps['read'] = async (...request) => {
    const found = await relaySteps.read(...request)
    read += found.length
    return found
  }
  const relay = world.relay({ steps: { read: counting } })
  // A key of one topic, whose chain grows: more of it goes in a pass than the smallest quota.
  await world.fill(['hot'], 3_000)
  expect(await relay.drain()).toBeLessThan(30)
  read = 0
  await db.query(
    `select ${schema}.add_event(case n % 2 when 0 then 'left' else 'right' end, 'video', 'a', 'VideoPublished', '{}') from generate_series(1, 200) n`,
  )
  await relay.drain()
  expect(firstOccurrences(world.broker, 'a')).toHaveLength(200)
  expect(read).toBeLessThan(200 * 25)
  expect(await world.found()).toEqual([])
})

test('aggregates whose events go to two topics in turn do not slow down one whose events go to one', async () => {
  const world = await openWorld(db)
  const { schema } = world.outbox.tables
  await db.query(
    `select ${schema}.add_event(case n % 2 when 0 then 'left' else 'right' end, 'video', 'turning' || k, 'VideoPublished', '{}')
       from generate_series(1, 9) k, generate_series(1, 200) n`,
  )
  await world.fill(['hot'], 3_000)
  const relay = world.relay()
  let passes = 0
  while (firstOccurrences(world.broker, 'hot').length < 3_000) {
    await relay.pass()
    passes += 1
    expect(passes).toBeLessThan(60)
  }
})

describe('one poison among a hundred', () => {
  async function poisoned() {
    const fixture = await outboxFixture(db)
    const broker = memory({
      rejects: ({ attributes }) =>
        attributes['aggregate_id'] === 'v50' && attributes['version'] === '1' && attributes['event_type'] === 'VideoPublished',
    })
    await fixture.fill(
      Array.from({ length: 100 }, (_, nth) => `v${nth}`),
      1,
    )
    await fixture.relay(broker, { maxAttempts: 1 }).once()
    await fixture.publish('v50', 'behind')
    await fixture.publish('v51', 'elsewhere')
    await fixture.relay(broker, { maxAttempts: 1 }).once()
    const common = { db, outbox: fixture.outbox, filter: { all: true }, actor: 'operator', reason: 'test' } as const
    return { ...fixture, broker, common }
  }

  test('the others go out at their first attempt; its key is held, the other keys are not', async () => {
    const { states, broker, outbox, dispatch } = await poisoned()
    expect(broker.publishedCount).toBe(100)
    const { rows } = await db.query(`select attempts, count(*)::int as events from ${outbox.tables.receipt.quoted} group by 1`)
    expect(rows).toEqual([{ attempts: 1, events: 100 }])
    expect(await states()).toMatchObject({ 'v50 1': 'PARKED', 'v50 2': 'HELD', 'v51 2': 'PUBLISHED' })
    expect((await dispatch()).map((row) => row['publish_attempts'])).toEqual([1, 0])
  })

  test('a redrive sends it again, and what is held behind it follows', async () => {
    const { broker, relay, states, common } = await poisoned()
    broker.setRejects(() => false)
    expect((await redriveParked(common)).events).toHaveLength(1)
    expect(await states()).toMatchObject({ 'v50 1': 'RELEASED', 'v50 2': 'HELD' })
    expect(await relay(broker).once()).toBe(2)
    expect(firstOccurrences(broker, 'v50')).toEqual([1, 2])
  })

  test('a redrive of what is still refused parks it again, and nothing overtakes it', async () => {
    const { broker, relay, states, common } = await poisoned()
    await redriveParked(common)
    await relay(broker, { maxAttempts: 1 }).once()
    expect(firstOccurrences(broker, 'v50')).toEqual([])
    expect(await states()).toMatchObject({ 'v50 1': 'PARKED', 'v50 2': 'HELD' })
  })

  test('a skip puts an empty marker in its place, and what is held behind it follows', async () => {
    const { broker, relay, common } = await poisoned()
    expect((await skipParked(common)).events).toHaveLength(1)
    expect(await relay(broker).once()).toBe(2)
    expect(log(broker).slice(-2)).toEqual(['v50 1', 'v50 2'])
    expect(broker.published.at(-2)?.attributes['event_type']).toBe('waybill.void')
  })
})

test('when an operator removes a head, the next is promoted in the same transaction', async () => {
  const world = await openWorld(db)
  world.refuse('a 1')
  await world.publish('a', 'one', 'two', 'three')
  await world.relay({ maxAttempts: 1 }).drain()
  await operate(db, world, { confirmed: [{ ...(await world.row('a 1')), messageId: null }] })
  expect((await world.dispatch()).map((row) => row['state'])).toEqual([1, 2])
})

test('where parked events pass, an empty marker goes out in place of what gave up', async () => {
  const world = await openWorld(db)
  world.broker.setRejects(({ attributes }) => attributes['version'] === '1' && attributes['event_type'] === 'VideoPublished')
  await world.publish('a', 'one', 'two')
  await world.relay({ maxAttempts: 2, onPark: 'pass' }).drain()
  expect(log(world.broker)).toEqual(['a 1', 'a 2'])
  expect(await world.found()).toEqual([])
})

test('a paused aggregate waits, uncharged, and the others go on', async () => {
  const world = await openWorld(db)
  let isPaused = true
  await world.publish('a', 'one', 'two')
  await world.publish('b', 'one')
  const relay = world.relay({ isPaused: (_, id) => isPaused && id === 'a' })
  await relay.drain()
  expect(log(world.broker)).toEqual(['b 1'])
  expect((await world.dispatch()).map((row) => [row['state'], row['publish_attempts']])).toEqual([
    [1, 0],
    [2, 0],
  ])
  isPaused = false
  await retryNow(world)
  await relay.drain()
  expect(await world.found()).toEqual([])
})
