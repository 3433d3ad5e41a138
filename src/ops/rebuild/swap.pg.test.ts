import { expect, test } from 'vitest'
import { z } from 'zod'
import { consumerFixture, message, published, videos } from '../../../test/setup/consumer-fixture.ts'
import { rebuildWorld, type RebuildWorld } from '../../../test/setup/rebuild-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { discardDeadLetters } from '../../consumer/operate/discard.ts'
import { pauseConsumer } from '../../consumer/operate/pause.ts'
import { discard } from '../../consumer/model/handler.ts'
import { state } from '../../core/event/event.ts'
import { stream } from '../../core/event/stream.ts'
import { skipParked } from '../../outbox/operate/parked.ts'
import { createRelay } from '../../outbox/relay/relay.ts'
import type { Queryable } from '../../postgres/query/database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { memory } from '../../transport/memory/memory.ts'
import type { OutgoingMessage } from '../../transport/port/transport.ts'
import { abandonRebuild, dropReplaced, rebuild, type RebuildOptions } from './rebuild.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

const subscriptions = async ({ query }: RebuildWorld): Promise<readonly string[]> =>
  (await query<{ consumer: string }>('select consumer from $schema.transport_subscription order by 1')).map(
    ({ consumer }) => consumer,
  )

test('neither a swap nor an abandoned rebuild leaves a subscription, for which messages would be kept for ever', async () => {
  const w = await rebuildWorld(db, 'postgres')
  await w.write('a')
  await w.settle()
  await w.rebuild({ from: 'earliest', swap: true })
  expect(await subscriptions(w)).toEqual(['catalog'])
  await w.rebuild({ from: 'earliest' })
  expect(await subscriptions(w)).toEqual(['catalog', 'catalog.g3'])
  expect(await abandonRebuild({ consumer: w.catalog, actor: 'test', transport: w.transport })).toBe(true)
  expect(await subscriptions(w)).toEqual(['catalog'])
  // As if the process had been killed between the swap and this.
  await w.transport.seek({ topic: videos.topic, consumer: 'catalog.g2', to: 'earliest' })
  expect(await abandonRebuild({ consumer: w.catalog, actor: 'test' })).toBe(false)
  expect(await subscriptions(w)).toEqual(['catalog'])
  await w.end()
})

test('a swap that is done is reported though its subscription could not be removed, with what is left and why', async () => {
  const w = await rebuildWorld(db, 'postgres')
  await w.write('a')
  await w.settle()
  const transport: RebuildOptions['transport'] = {
    receive: (options) => w.transport.receive(options),
    seek: (target) => w.transport.seek(target),
    unsubscribe: () => Promise.reject(new Error('the broker is away')),
  }
  expect(await w.rebuild({ from: 'earliest', swap: true, transport })).toMatchObject({
    swapped: true,
    replaced: [`${w.schema}.video_view_before_g2`],
    leftover: expect.stringContaining('the broker is away') as string,
  })
  expect(await subscriptions(w)).toEqual(['catalog', 'catalog.g2'])
  expect(await abandonRebuild({ consumer: w.catalog, actor: 'test', transport: w.transport })).toBe(false)
  expect(await subscriptions(w)).toEqual(['catalog'])
  await w.end()
})

test('a second process on a rebuild ends when the first has swapped it in, and what was replaced is not forgotten', async () => {
  const w = await rebuildWorld(db)
  await w.write('a')
  await w.settle()
  const held = Promise.withResolvers<void>()
  const slow: Queryable = { query: async (text, values) => (await held.promise, await db.query(text, values)) }
  const looked = Promise.withResolvers<void>()
  const second = w.rebuild({ from: 'outbox', owner: { db: slow, schema: w.schema }, onProgress: () => looked.resolve() })
  second.catch(() => undefined)
  await looked.promise
  const { replaced } = await w.rebuild({ swap: true })
  held.resolve()
  await expect(second).rejects.toThrow('was swapped in or abandoned by somebody else')
  expect(await dropReplaced({ consumer: w.catalog, actor: 'test' })).toEqual(replaced)
  await w.end()
})

test('an event that was written when its stream had another topic is rebuilt as well', async () => {
  const w = await rebuildWorld(db)
  const old = stream('video', { topic: 'video.old', events: { VideoPublished: state(z.object({ title: z.string() })) } })
  await transaction(db, (tx) => w.outbox.add(tx, old.VideoPublished, 'a', { title: 'before' }))
  await w.write('a')
  await eventually(async () => (await w.count('inbox')) === 1)
  expect(await w.rebuild({ from: 'outbox', swap: true })).toMatchObject({ swapped: true })
  expect(await w.shown()).toEqual(await w.owner())
  await w.end()
})

test('a row from before its table had versions is covered by the event that the new table has of it', async () => {
  const w = await rebuildWorld(db)
  await w.write('a')
  await w.settle()
  await w.query('alter table $schema.video_view alter column version drop not null')
  await w.query('update $schema.video_view set version = null')
  expect(await w.rebuild({ from: 'outbox', swap: true })).toMatchObject({ swapped: true })
  expect(await w.shown()).toEqual(await w.owner())
  await w.end()
})

test('a comparison counts a row that only the rebuilt table has as extra, and not as newer as well', async () => {
  const w = await rebuildWorld(db)
  for (const id of ['a', 'b', 'c']) await w.write(id)
  await w.settle()
  await w.query('alter table $schema.video_view alter column version drop not null')
  await w.query(`update $schema.video_view set version = null where video_id = 'a'`)
  await w.query(`delete from $schema.video_view where video_id = 'b'`)
  const { comparisons } = await w.rebuild({ from: 'outbox', compare: true })
  expect(comparisons).toMatchObject([{ live: 2, rebuilt: 3, missing: 0, extra: 1, older: 0, newer: 1, different: 0 }])
  await w.end()
})

const marker = (id: string, version: number): OutgoingMessage =>
  message({ stream: videos, type: 'waybill.void', id, version }, null)

test('a row whose aggregate has nothing retained but the marker of a skipped event is not lost: the swap is refused', async () => {
  const w = await rebuildWorld(db)
  const all = { signal: new AbortController().signal, maySend: () => true }
  await w.publish(published('a', 1), published('b', 1), marker('a', 2), marker('c', 1))
  await w.settled(4)
  await w.query(`insert into $schema.video_view (video_id, title, version) values ('ghost', 'boo', 1)`)
  const retained = memory()
  await retained.publish([published('b', 1), marker('a', 2), marker('c', 1)], all)
  const swapping = { transport: retained, swap: true, dropUnknown: true }
  await expect(w.rebuild({ from: 'earliest', ...swapping })).rejects.toMatchObject({
    code: 'REFUSED',
    details: { table: `${w.schema}.video_view`, rows: 1 },
  })
  expect(await w.count('video_view', `video_id in ('a', 'b', 'ghost')`)).toBe(3)
  const again = published('a', 3)
  await w.publish(again)
  await w.settled(5)
  await retained.publish([again], all)
  expect(await w.rebuild(swapping)).toMatchObject({ swapped: true, droppedRows: 1 })
  expect(await w.shown()).toEqual([
    { id: 'a', version: '3', title: 'a 3' },
    { id: 'b', version: '1', title: 'b 1' },
  ])
  await w.end()
})

test('an event that an operator skipped stays skipped in a rebuild from the outbox', async () => {
  const fixture = await consumerFixture(db)
  const { schema, outbox, broker } = fixture
  const consumer = fixture
    .consumer()
    .project(videos, { table: `${schema}.video_view`, key: 'video_id', set: (e) => ({ title: e.data.title }) })
  const stop = fixture.start(consumer)
  const relay = createRelay({ db, outbox, transport: broker, maxAttempts: 1 })
  const write = (title: string): Promise<unknown> =>
    transaction(db, (tx) => outbox.add(tx, videos.VideoPublished, 'a', { title }))
  broker.setRejects(({ body }) => Buffer.from(body).includes('bad'))
  await write('good')
  await write('bad')
  await relay.once()
  expect((await skipParked({ db, outbox, filter: { all: true }, actor: 'test' })).events).toHaveLength(1)
  await relay.once()
  await fixture.settled(2)
  const options = { consumer, from: 'outbox', swap: true, actor: 'test', pollMs: 20 }
  expect(await rebuild(options)).toMatchObject({ swapped: true })
  expect(await fixture.query('select title, version::int from $schema.video_view')).toEqual([{ title: 'good', version: 1 }])
  await stop()
})

test.each(['outbox', 'earliest'])('an event that was discarded has no effect in a rebuild from %s either', async (from) => {
  const fixture = await consumerFixture(db)
  const { schema, outbox, broker } = fixture
  const consumer = fixture
    .consumer({ maxAttempts: 1, onDead: 'pass' })
    .project(videos, { table: `${schema}.video_view`, key: 'video_id', set: (e) => ({ title: e.data.title }) })
    .on(videos.VideoPublished, ({ data }) => {
      if (data.title === 'unwanted') throw discard('unwanted')
      if (data.title === 'broken') throw new Error('broken')
    })
  const stop = fixture.start(consumer)
  const relay = createRelay({ db, outbox, transport: broker })
  const write = (id: string, title: string): Promise<unknown> =>
    transaction(db, (tx) => outbox.add(tx, videos.VideoPublished, id, { title }))
  for (const id of ['a', 'b']) await write(id, 'good')
  await write('a', 'unwanted')
  await write('b', 'broken')
  await relay.once()
  await eventually(async () => (await fixture.count('dead_letter')) === 2)
  await discardDeadLetters({ db, schema, filter: { all: true }, actor: 'test' })
  await fixture.settled(4)
  const options = { consumer, from, transport: broker, swap: true, actor: 'test', pollMs: 20 }
  expect(await rebuild(options)).toMatchObject({ swapped: true })
  expect(await fixture.query('select video_id, title, version::int from $schema.video_view order by 1')).toEqual([
    { video_id: 'a', title: 'good', version: 1 },
    { video_id: 'b', title: 'good', version: 1 },
  ])
  await stop()
})

test('a version that the live generation has come to is no jump for the new one, which begins with nothing', async () => {
  const fixture = await consumerFixture(db)
  const { schema, outbox, broker } = fixture
  const consumer = fixture
    .consumer({ maxVersionJump: 10, onVersionJump: 'dead-letter' })
    .project(videos, { table: `${schema}.video_view`, key: 'video_id', set: (e) => ({ title: e.data.title }) })
  const stop = fixture.start(consumer)
  const relay = createRelay({ db, outbox, transport: broker })
  for (let i = 1; i <= 50; i += 1)
    await transaction(db, (tx) => outbox.add(tx, videos.VideoPublished, 'a', { title: `title ${i}` }))
  await relay.once()
  await fixture.settled(50)
  await fixture.query('delete from $schema.outbox where version < 40')
  await fixture.query(`update $schema.consumer_position set updated_at = clock_timestamp() - interval '1 minute'`)
  const options = { consumer, from: 'outbox', swap: true, actor: 'test', pollMs: 20, stallMs: 60_000 }
  expect(await rebuild(options)).toMatchObject({ swapped: true })
  expect(await fixture.query('select title, version::int from $schema.video_view')).toEqual([{ title: 'title 50', version: 50 }])
  expect(await fixture.count('dead_letter')).toBe(0)
  await stop()
})

test('an event that was never published does not show before its date because of a rebuild from the outbox', async () => {
  const w = await rebuildWorld(db)
  const notBefore = new Date(Date.now() + 86_400_000)
  const embargo = (id: string): Promise<unknown> =>
    transaction(db, (tx) => w.outbox.add(tx, videos.VideoPublished, id, { title: 'embargoed' }, { notBefore }))
  await w.write('a')
  await w.write('b')
  await w.settle()
  await embargo('a')
  await embargo('new')
  await w.rebuild({ from: 'outbox' })
  // What it follows is no more than what the live generation has.
  await w.write('b')
  await eventually(async () => (await w.count('inbox')) === 3)
  await embargo('b')
  expect(await w.rebuild({ swap: true })).toMatchObject({ swapped: true })
  expect(await w.shown()).toMatchObject([
    { id: 'a', version: '1' },
    { id: 'b', version: '2' },
  ])
  await w.end()
})

test('an event that nobody knows to be published is rebuilt if the live generation has applied it', async () => {
  const w = await rebuildWorld(db)
  await w.write('a')
  await w.settle()
  await eventually(async () => (await w.count('outbox_dispatch')) === 0)
  // As if the broker had taken it each time, and its answer had been lost.
  await w.query(
    `insert into $schema.outbox_dispatch (lane, key, event_id, state, parked_at)
     select 0, 0, id, 3, clock_timestamp() from $schema.outbox where aggregate_type = 'video'`,
  )
  expect(await w.rebuild({ from: 'outbox', swap: true })).toMatchObject({ swapped: true })
  expect(await w.shown()).toEqual(await w.owner())
  await w.end()
})

test('an aggregate that was paused before its first event does not keep a rebuild from being swapped in', async () => {
  const w = await rebuildWorld(db)
  await w.write('a')
  await w.settle()
  const aggregate = { type: 'video', id: 'never seen' }
  await pauseConsumer({ db, schema: w.schema, consumer: 'catalog', aggregate, actor: 'test' })
  expect(await w.rebuild({ from: 'outbox', swap: true })).toMatchObject({ swapped: true, aggregates: 2 })
  await w.end()
})

test('a row that is deleted in both tables is compared without its contents, of which a tombstone alone leaves none', async () => {
  const w = await rebuildWorld(db)
  for (const id of ['a', 'b']) await w.write(id)
  await w.settle()
  await w.remove('a')
  await w.settle()
  expect(await w.rebuild({ from: 'outbox', compare: true, swap: true })).toMatchObject({
    comparisons: [{ live: 2, rebuilt: 2, different: 0, checksumsMatch: true, samples: [] }],
    swapped: true,
  })
  await w.query(`update $schema.video_view set deleted_at = null where video_id = 'a'`)
  const { comparisons } = await w.rebuild({ from: 'outbox', compare: true, swap: true })
  expect(comparisons).toMatchObject([{ different: 1, checksumsMatch: false, samples: [{}] }])
  await w.end()
})

test('an event that the live generation applied by a redrive, and the new one gave up, refuses the swap', async () => {
  const w = await rebuildWorld(db)
  await w.write('a')
  await w.settle()
  await w.rebuild({ from: 'outbox' })
  const [event] = await w.query<{ id: string }>(`select id::text from $schema.outbox where aggregate_type = 'video'`)
  await w.query(
    `insert into $schema.dead_letter (consumer, generation, event_id, event_type, topic, reason, error, attempts, state, message_id, attributes, body, published_at, first_failed_at)
     select 'catalog', generation, $1::uuid, 'VideoPublished', 'video.events', 'failed', 'broken', 1, state, 'm', '{}', '', clock_timestamp(), clock_timestamp()
       from (values (1, 'redriven'), (2, 'dead')) as l (generation, state)`,
    [event?.id ?? ''],
  )
  await expect(w.rebuild({ swap: true })).rejects.toThrow(/gave up on 1 events that the live generation has applied/)
  await w.query(`update $schema.dead_letter set state = 'discarded' where generation = 1`)
  expect(await w.rebuild({ swap: true })).toMatchObject({ swapped: true })
  await w.end()
})
