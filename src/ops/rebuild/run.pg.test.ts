import { expect, test } from 'vitest'
import { z } from 'zod'
import { consumerFixture, videos, type ConsumerFixture } from '../../../test/setup/consumer-fixture.ts'
import { hear, standingClock } from '../../../test/setup/rebuild-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import type { Consumer } from '../../consumer/consumer.ts'
import type { ConsumerOptions } from '../../consumer/model/consumer-options.ts'
import { pauseConsumer, resumeConsumer } from '../../consumer/operate/pause.ts'
import { WaybillError } from '../../core/errors.ts'
import { jsonCodec } from '../../core/encoding/codec.ts'
import { state } from '../../core/event/event.ts'
import type { SignalName } from '../../core/signals.ts'
import { stream } from '../../core/event/stream.ts'
import { createRelay } from '../../outbox/relay/relay.ts'
import type { Queryable } from '../../postgres/query/database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { rebuild, type RebuildOptions } from './rebuild.ts'
import type { RebuildProgress } from './run.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

/** A live consumer that has applied these, and is as far as it will come. */
async function applied(ids: readonly string[]): Promise<ConsumerFixture> {
  const fixture = await consumerFixture(db)
  const { outbox, broker } = fixture
  const stop = fixture.start(consumerOf(fixture, (title) => title))
  for (const id of ids) await transaction(db, (tx) => outbox.add(tx, videos.VideoPublished, id, { title: id }))
  await createRelay({ db, outbox, transport: broker }).once()
  await fixture.settled(ids.length)
  await stop()
  await fixture.query(`update $schema.consumer_position set updated_at = clock_timestamp() - interval '1 minute'`)
  return fixture
}

function consumerOf(
  fixture: ConsumerFixture,
  titleOf: (title: string) => string,
  { streams = [videos], ...options }: Partial<ConsumerOptions> = {},
): Consumer {
  const [of = videos] = streams as readonly (typeof videos)[]
  return fixture
    .consumer({ streams, ...options })
    .project(of, { table: `${fixture.schema}.video_view`, key: 'video_id', set: (e) => ({ title: titleOf(e.data.title) }) })
}

const stallMs = 1_000

/** Time passes once the engine has complained and the other two are there; after 2,000 looks nobody waits any longer. */
function impatient(complaint: SignalName): Pick<RebuildOptions, 'clock' | 'onProgress' | 'signal'> {
  const clock = standingClock()
  const stop = new AbortController()
  let complaints = 0
  let looks = 0
  hear(complaint, () => (complaints += 1))
  const onProgress = ({ reached }: RebuildProgress): void => {
    if (complaints > 0 && reached === 2) clock.advance(0.6 * stallMs)
    if ((looks += 1) === 2_000) stop.abort()
  }
  return { clock, onProgress, signal: stop.signal }
}

test('an event that stands still for ever is told with its error, and the rebuild is given up', async () => {
  const fixture = await applied(['a', 'b', 'c'])
  const titleOf = (title: string): string => {
    if (title === 'b') throw new Error('no title for b')
    return title
  }
  const consumer = consumerOf(fixture, titleOf, { onPoison: 'stop', maxAttempts: 1 })
  const options = { actor: 'test', pollMs: 10, stallMs }
  await expect(rebuild({ ...options, consumer, from: 'outbox', ...impatient('consumer.stopped') })).rejects.toMatchObject({
    code: 'REFUSED',
    message: expect.stringContaining('The last error: VideoPublished b: no title for b') as string,
    details: { reached: 2, total: 3 },
  })
  // Code that can take the event goes on with it.
  const able = consumerOf(fixture, (title) => title)
  expect(await rebuild({ ...options, consumer: able, swap: true, stallMs: 60_000 })).toMatchObject({
    swapped: true,
    aggregates: 3,
  })
})

test('data that cannot be had is told, and the rebuild is given up', async () => {
  const fixture = await applied(['a', 'b', 'c'])
  const codec = jsonCodec(z.object({ title: z.string() }))
  const events = {
    VideoPublished: state({
      ...codec,
      decode: (bytes, schemaVersion) => {
        if (Buffer.from(bytes).includes('"b"')) throw new WaybillError('UNAVAILABLE', 'The blob store is out of reach.')
        return codec.decode(bytes, schemaVersion)
      },
    }),
  }
  const consumer = consumerOf(fixture, (title) => title, { streams: [stream('video', { topic: videos.topic, events })] })
  const options = { consumer, from: 'outbox', actor: 'test', pollMs: 10, stallMs }
  await expect(rebuild({ ...options, ...impatient('consumer.retried') })).rejects.toMatchObject({
    code: 'REFUSED',
    message: expect.stringMatching(/The last error: The blob store is out of reach\.$/) as string,
    details: { reached: 2, total: 3 },
  })
  expect(await fixture.count('dead_letter')).toBe(0)
})

test('a feed that is slow and goes on is not given up, however long one aggregate is missing', async () => {
  const fixture = await applied(Array.from({ length: 40 }, () => 'a'))
  const clock = standingClock()
  const titleOf = (title: string): string => {
    clock.advance(0.8 * stallMs)
    return title
  }
  const consumer = consumerOf(fixture, titleOf, { batchSize: 1, concurrency: 1 })
  expect(await rebuild({ consumer, from: 'outbox', swap: true, actor: 'test', pollMs: 1, stallMs, clock })).toMatchObject({
    swapped: true,
  })
})

test('the time for which its consumer is paused does not count', async () => {
  const fixture = await applied(['a', 'b'])
  const { schema } = fixture
  const clock = standingClock()
  const pausing = { db, schema, consumer: 'catalog', actor: 'test' }
  await pauseConsumer(pausing)
  const noticed = Promise.withResolvers<void>()
  const resumed = Promise.withResolvers<boolean>()
  let isPaused = false
  hear('consumer.paused', ({ paused }) => {
    isPaused = paused
    if (paused) noticed.resolve()
  })
  let looks = 0
  const onProgress = (): void => {
    if (!isPaused) return
    clock.advance(0.6 * stallMs)
    if ((looks += 1) === 10) resumed.resolve(resumeConsumer(pausing))
  }
  // Nothing is read before the pause is noticed.
  const query: Queryable['query'] = async (text, values) => (await noticed.promise, await db.query(text, values))
  const consumer = consumerOf(fixture, (title) => title)
  const options = { consumer, from: 'outbox', owner: { schema, db: { query } }, actor: 'test', pollMs: 1, stallMs }
  expect(await rebuild({ ...options, swap: true, clock, onProgress })).toMatchObject({ swapped: true, aggregates: 2 })
  expect(await resumed.promise).toBe(true)
})
