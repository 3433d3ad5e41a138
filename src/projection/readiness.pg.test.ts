import { expect, test } from 'vitest'
import { consumerFixture, published, videos, type ConsumerFixture } from '../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../test/setup/test-database.ts'
import { runConsumer } from '../consumer/engine.ts'
import { inboxTables } from '../consumer/tables/inbox.sql.ts'
import type { Database } from '../postgres/query/database.ts'
import { fromPg } from '../postgres/adapters/from-pg.ts'
import { eventually } from '../testing/kit/eventually.ts'
import { createFakeClock } from '../testing/kit/fake-clock.ts'
import type { Transport } from '../transport/port/transport.ts'
import { ReadinessWatch } from './readiness.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
const incomplete = { ready: false, reasons: [{ code: 'incomplete' }] }
const backoff = { firstMs: 60_000, maxMs: 60_000, jitter: 'none' } as const
const old = { occurred_at: new Date(Date.now() - 3_600_000).toISOString() }

/** Another instance, which has got nothing for a minute. */
async function idleInstance({ schema }: ConsumerFixture): Promise<ReadinessWatch> {
  const clock = createFakeClock()
  const watch = new ReadinessWatch({ db, schema, consumer: 'catalog', clock, readyLagMs: 30_000, backoff })
  watch.opened(() => true)
  await clock.advance(60_000)
  return watch
}

const project = (fixture: ConsumerFixture) =>
  fixture
    .consumer()
    .project(videos, { table: `${fixture.schema}.video_view`, key: 'video_id', set: (event) => ({ title: event.data.title }) })

test('an instance that got nothing calls a projection complete only when no other has applied anything for a while', async () => {
  const fixture = await consumerFixture(db)
  await fixture.publish(published('a', 1, 'old', old))
  const stop = fixture.start(project(fixture))
  await fixture.settled(1)
  const idle = await idleInstance(fixture)
  expect(await idle.readiness()).toMatchObject(incomplete)
  expect(await fixture.count('consumer', 'ready_at is not null')).toBe(0)
  await fixture.query(`update $schema.inbox set processed_at = processed_at - interval '1 minute'`)
  await fixture.query(
    `insert into $schema.consumer_offset (consumer, generation, topic, partition, next_offset) values ('catalog', 1, 'video.events', '0', 1)`,
  )
  expect(await idle.readiness()).toMatchObject(incomplete)
  await fixture.query(`update $schema.consumer_offset set updated_at = updated_at - interval '1 minute'`)
  expect(await idle.readiness()).toEqual({ ready: true, reasons: [], notes: [] })
  expect(await fixture.count('consumer', 'ready_at is not null')).toBe(1)
  await stop()
})

test('where nothing was ever published, an instance is ready without anything to show', async () => {
  const fixture = await consumerFixture(db)
  const stop = fixture.start(project(fixture))
  await eventually(async () => (await fixture.count('consumer')) === 1)
  expect(await (await idleInstance(fixture)).readiness()).toEqual({ ready: true, reasons: [], notes: [] })
  await stop()
})

test('an instance that got nothing waits for longer than a moment: another may be in its first batch, which no table shows', async () => {
  const fixture = await consumerFixture(db)
  const [handling, mayGoOn] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  await fixture.publish(published('a', 1, 'old', old))
  const stop = fixture.start(
    fixture.consumer().on(videos.VideoPublished, async () => {
      handling.resolve()
      await mayGoOn.promise
    }),
  )
  await handling.promise
  const clock = createFakeClock()
  const second = new ReadinessWatch({ db, schema: fixture.schema, consumer: 'catalog', clock, readyLagMs: 30_000, backoff })
  second.opened(() => true)
  await clock.advance(3_000)
  expect(await second.readiness()).toMatchObject(incomplete)
  expect(await fixture.count('consumer', 'ready_at is not null')).toBe(0)
  mayGoOn.resolve()
  await fixture.settled(1)
  await clock.advance(7_000)
  expect(await second.readiness()).toMatchObject(incomplete)
  await fixture.query(`update $schema.inbox set processed_at = processed_at - interval '1 minute'`)
  expect(await second.readiness()).toEqual({ ready: true, reasons: [], notes: [] })
  await stop()
})

test('a consumer whose broker fails takes its silence for nothing, however seldom it fails', async () => {
  const fixture = await consumerFixture(db)
  const clock = createFakeClock()
  const failing = Promise.withResolvers<(error: Error) => void>()
  const receive: Transport['receive'] = (options) => {
    failing.resolve(options.onError)
    return fixture.broker.receive(options)
  }
  const transport = { ...fixture.broker, receive }
  const consumer = fixture.consumer({ transport, clock, streams: [videos] }).on(videos.VideoPublished, () => undefined)
  const stop = fixture.start(consumer)
  const fail = await failing.promise
  for (let attempt = 1; attempt <= 4; attempt += 1) {
    fail(new Error('UNAVAILABLE'))
    await clock.advance(30_000)
    expect(await consumer.readiness()).toMatchObject(incomplete)
  }
  await clock.advance(30_000)
  expect(await consumer.readiness()).toEqual({ ready: true, reasons: [], notes: [] })
  await stop()
})

test('a consumer whose events fail is not complete while they rest, although nothing is in hand and nothing comes', async () => {
  const fixture = await consumerFixture(db)
  const clock = createFakeClock()
  const consumer = fixture.consumer({ clock, backoff }).on(videos.VideoPublished, () => {
    throw new Error('a column is missing')
  })
  const stop = fixture.start(consumer)
  await fixture.publish(published('a', 1, 'old', old))
  await eventually(async () => {
    await clock.advance(5)
    return fixture.heard('consumer.failed').length === 1
  })
  // What the tables tell is another test.
  await fixture.query('delete from $schema.delivery_attempt')
  for (let seconds = 0; seconds < 110; seconds += 11) {
    await clock.advance(11_000)
    expect(await consumer.readiness()).toMatchObject(incomplete)
  }
  await clock.advance(11_000)
  expect(await consumer.readiness()).toEqual({ ready: true, reasons: [], notes: [] })
  await stop()
})

test('an instance that got nothing calls a projection complete only when nothing rests that failed in another', async () => {
  const fixture = await consumerFixture(db)
  const stop = fixture.start(project(fixture))
  await eventually(async () => (await fixture.count('consumer')) === 1)
  await stop()
  const idle = await idleInstance(fixture)
  await fixture.query(
    `insert into $schema.delivery_attempt (consumer, generation, event_id, attempts, finished_at)
     values ('catalog', 1, gen_random_uuid(), 1, now() - interval '110 seconds'), ('other', 1, gen_random_uuid(), 1, now())`,
  )
  expect(await idle.readiness()).toMatchObject(incomplete)
  await fixture.query(
    `update $schema.delivery_attempt set finished_at = now() - interval '130 seconds' where consumer = 'catalog'`,
  )
  await fixture.query(`insert into $schema.inbox_lane (consumer, lane) values ('catalog', 0)`)
  await fixture.query(
    `insert into $schema.inbox_message (key, lane, consumer, generation, event_id, aggregate_type, aggregate_id, version, topic, message_id,
                                        attributes, body, published_at, received_at, state, next_attempt_at)
     values (0, 0, 'catalog', 1, gen_random_uuid(), 'video', 'a', 1, 'video.events', '1', '{}', '', now(), now(), 1, now() + interval '1 hour')`,
  )
  expect(await idle.readiness()).toMatchObject(incomplete)
  await fixture.query('delete from $schema.inbox_message')
  expect(await idle.readiness()).toEqual({ ready: true, reasons: [], notes: [] })
})

test('stored mode: nobody is idle while a batch is under way, and nothing is complete while messages are due', async () => {
  const fixture = await consumerFixture(db)
  const [handling, mayGoOn] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  const looks = countLooks()
  const consumer = fixture
    .consumer({ mode: 'stored', concurrency: 2, leaseMs: 60_000, db: looks.db })
    .on(videos.VideoPublished, async () => {
      handling.resolve()
      await mayGoOn.promise
    })
  const stopping = new AbortController()
  let isIdle = (): boolean => true
  await fixture.publish(published('a', 1, 'old', old))
  await fixture.query(`insert into $schema.consumer (name) values ('catalog')`)
  const running = runConsumer({
    settings: consumer.settings,
    routes: consumer.routes(),
    tables: inboxTables(fixture.schema),
    registered: { generation: 1, paused: false },
    life: { stopping: stopping.signal, aborting: new AbortController().signal },
    watch: { opened: (tells) => void (isIdle = tells), closed: () => undefined, committed: () => undefined },
  })
  await handling.promise
  const before = looks.count()
  await eventually(() => looks.count() > before + 2)
  expect(isIdle()).toBe(false)
  const idle = await idleInstance(fixture)
  expect(await idle.readiness()).toMatchObject(incomplete)
  mayGoOn.resolve()
  await eventually(async () => (await fixture.count('inbox')) === 1 && isIdle())
  await fixture.query(`update $schema.inbox set processed_at = processed_at - interval '1 minute'`)
  expect(await idle.readiness()).toEqual({ ready: true, reasons: [], notes: [] })
  stopping.abort()
  await running
})

test('stored mode: with new events coming all the time, what is due only now does not keep a projection incomplete', async () => {
  const fixture = await consumerFixture(db)
  const stop = fixture.start(project(fixture))
  await eventually(async () => (await fixture.count('consumer')) === 1)
  await stop()
  await fixture.query(`insert into $schema.inbox_lane (consumer, lane) values ('catalog', 0)`)
  await fixture.query(
    `insert into $schema.inbox_message (key, lane, consumer, generation, event_id, aggregate_type, aggregate_id, version, topic, message_id,
                                        attributes, body, published_at, received_at)
     values (0, 0, 'catalog', 1, gen_random_uuid(), 'video', 'a', 1, 'video.events', '1', '{}', '', now(), now() - interval '1 hour')`,
  )
  const watch = new ReadinessWatch({
    db,
    schema: fixture.schema,
    consumer: 'catalog',
    clock: createFakeClock(),
    readyLagMs: 30_000,
    backoff,
  })
  watch.opened(() => false)
  watch.applied(Date.UTC(2025, 0, 1))
  expect(await watch.readiness()).toMatchObject(incomplete)
  await fixture.query(`update $schema.inbox_message set received_at = now()`)
  expect(await watch.readiness()).toEqual({ ready: true, reasons: [], notes: [] })
})

/** The same database, which counts the looks for lanes with work. */
function countLooks(): { readonly db: Database; readonly count: () => number } {
  let count = 0
  const query: Database['query'] = async (text, values) => {
    const result = await db.query(text, values)
    if (text.includes('with free as')) count += 1
    return result
  }
  return { db: { ...db, query }, count: () => count }
}
