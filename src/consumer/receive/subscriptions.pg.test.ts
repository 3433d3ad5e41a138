import { expect, onTestFinished, test } from 'vitest'
import { FakeKafka } from '../../../test/kafka/fake-kafka.ts'
import { consumerFixture, published, videos, type ConsumerFixture } from '../../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import type { Database } from '../../postgres/query/database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { kafka } from '../../transport/kafka/kafka.ts'
import type { ConsumerOptions } from '../model/consumer-options.ts'
import { createLostOffsets } from './subscriptions.ts'
import { inboxTables } from '../tables/inbox.sql.ts'

const db = fromPg((await testDatabase()).pool)

interface World extends ConsumerFixture {
  readonly kafka: FakeKafka
  /** How often it was looked what the inbox has forgotten. */
  looks(): number
  append(partition: number, name: string): void
  /** Runs the consumer until the broker has so much of this partition. */
  readTo(partition: number, offset: bigint): Promise<void>
  told(): readonly string[]
}

/** A consumer of a Kafka with two partitions. */
async function world(options: Partial<ConsumerOptions> = {}): Promise<World> {
  const fixture = await consumerFixture(db)
  const broker = new FakeKafka(2)
  let looks = 0
  const query: typeof db.query = async (text, values) => {
    const result = await db.query(text, values)
    if (text.includes('c.forgotten_before > c.created_at')) looks += 1
    return result
  }
  const transport = kafka({ brokers: ['nowhere:1'], client: () => broker.client(), fetchMaxWaitMs: 20, heartbeatMs: 5 })
  onTestFinished(() => transport.close())
  return {
    ...fixture,
    kafka: broker,
    looks: () => looks,
    append: (partition, name) => {
      const { orderingKey = '', attributes, body } = published(name, 1)
      broker.append(partition, orderingKey, { value: body, headers: Object.entries(attributes) })
    },
    readTo: async (partition, offset) => {
      const consumer = fixture.consumer({ db: { ...db, query }, transport, streams: [videos], ...options })
      const stop = fixture.start(consumer.on(videos.VideoPublished, () => undefined))
      await eventually(() => broker.committed(partition) === offset)
      await stop()
    },
    told: () => fixture.heard('consumer.disturbed').map(({ error }) => (error as Error).message),
  }
}

/** What a consumer of these videos looks with. */
const lookOf = (fixture: ConsumerFixture, database: Database = db): ReturnType<typeof createLostOffsets> =>
  createLostOffsets(
    { db: database, name: 'catalog', streams: [videos], signals: fixture.signals },
    { tables: inboxTables(fixture.schema), consumer: 'catalog', generation: 1 },
  )

/** As if the consumer were older than what its inbox remembers, and had read nothing for two hours. */
async function age(w: ConsumerFixture): Promise<void> {
  await w.query(
    `update $schema.consumer set created_at = now() - interval '90 days', forgotten_before = now() - interval '35 days'`,
  )
  await w.query(`update $schema.consumer_position set updated_at = now() - interval '2 hours'`)
  await w.query(`update $schema.inbox set processed_at = now() - interval '2 hours'`)
}

test.each(['every', 'needed'] as const)(
  'a consumer whose offsets the broker has forgotten says so once, if its inbox has forgotten as well (positions: %s)',
  async (positions) => {
    const w = await world({ positions })
    w.append(0, 'a')
    w.append(1, 'b')
    await w.readTo(0, 1n)
    w.kafka.forgetOffsets()
    await w.readTo(0, 1n)
    await eventually(() => w.looks() === 2)
    expect(w.told()).toEqual([])
    await age(w)
    w.kafka.forgetOffsets()
    await w.readTo(0, 1n)
    await eventually(() => w.told().length > 0)
    expect(w.told()).toEqual([
      expect.stringMatching(/^Consumer catalog has read video.events before.* Partitions 0, 1 are read from/),
    ])
  },
)

/** What a consumer knows of a video that it read just now. */
const readJustNow = {
  position: `insert into $schema.consumer_position (consumer, generation, aggregate_type, aggregate_id, version) values ('catalog', 1, 'video', 'a', 1)`,
  inbox: `insert into $schema.inbox (consumer, generation, event_id, source) values ('catalog', 1, gen_random_uuid(), 'video')`,
}

test.each(['position', 'inbox'] as const)(
  'what was read within the last hour is no past: an instance may have begun before the broker knows of it (%s)',
  async (known) => {
    const fixture = await consumerFixture(db)
    await fixture.query(`insert into $schema.consumer (name) values ('catalog')`)
    await age(fixture)
    await fixture.query(readJustNow[known])
    await lookOf(fixture)('video.events', ['0'])
    expect(fixture.heard('consumer.disturbed')).toEqual([])
    await age(fixture)
    await lookOf(fixture)('video.events', ['0'])
    expect(fixture.heard('consumer.disturbed')).toMatchObject([{ error: { code: 'CORRUPT' } }])
  },
)

test('a look that fails is told and made again, one that told is not', async () => {
  const fixture = await consumerFixture(db)
  await fixture.query(`insert into $schema.consumer (name) values ('catalog')`)
  await fixture.query(readJustNow.position)
  await age(fixture)
  let looks = 0
  const query: typeof db.query = async (text, values) => {
    if ((looks += 1) === 1) throw new Error('no answer')
    return await db.query(text, values)
  }
  const look = lookOf(fixture, { ...db, query })
  for (let times = 0; times < 3; times += 1) await look('video.events', ['0', '1'])
  expect(looks).toBe(2)
  expect(fixture.heard('consumer.disturbed')).toMatchObject([{ error: { message: 'no answer' } }, { error: { code: 'CORRUPT' } }])
})

test('a topic that is new and a partition that is new are begun with in silence, and of an empty one nothing is said', async () => {
  const w = await world()
  w.append(0, 'a')
  // Another topic was read for months.
  await w.query(`insert into $schema.consumer (name) values ('catalog')`)
  await w.query(
    `insert into $schema.consumer_position (consumer, generation, aggregate_type, aggregate_id, version) values ('catalog', 1, 'account', 'a', 1)`,
  )
  await age(w)
  await w.readTo(0, 1n)
  await eventually(() => w.looks() === 1)
  w.append(1, 'b')
  await w.readTo(1, 1n)
  await age(w)
  w.kafka.forgetOffsets()
  w.kafka.deleteBefore(1, 1n)
  await w.readTo(0, 1n)
  await eventually(() => w.told().length > 0)
  expect(w.told()).toEqual([expect.stringContaining('Partitions 0 are read')])
})
