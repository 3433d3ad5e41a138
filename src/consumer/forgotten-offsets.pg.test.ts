import { expect, onTestFinished, test } from 'vitest'
import { FakeKafka } from '../../test/kafka/fake-kafka.ts'
import { consumerFixture, published, videos, type ConsumerFixture } from '../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../test/setup/test-database.ts'
import { fromPg } from '../postgres/from-pg.ts'
import { eventually } from '../testing/eventually.ts'
import type { KafkaClient } from '../transport/kafka/kafka-client.ts'
import { kafka } from '../transport/kafka/kafka.ts'
import type { ConsumerOptions } from './consumer-options.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

interface World extends ConsumerFixture {
  readonly kafka: FakeKafka
  /** How often it was looked what the inbox has forgotten. */
  looks(): number
  /** Lets looks take until the consumer has told the broker ten times more that it lives. */
  slowLooks(): void
  /** How often the log was read before the first look was over. */
  fetchesBefore(): number
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
  let beats = 0
  let fetches = 0
  let lookBeats = 0
  let fetchesBefore = 0
  const query: typeof db.query = async (text, values) => {
    const isLook = text.includes('c.forgotten_before > c.created_at')
    const until = beats + lookBeats
    if (isLook) await eventually(() => beats >= until)
    const result = await db.query(text, values)
    if (isLook) looks += 1
    if (isLook && looks === 1) fetchesBefore = fetches
    return result
  }
  const client = (): KafkaClient => {
    const inner = broker.client()
    const heartbeat: typeof inner.heartbeat = async (member, timeoutMs) => {
      await inner.heartbeat(member, timeoutMs)
      beats += 1
    }
    const fetch: typeof inner.fetch = async (request) => {
      fetches += 1
      return await inner.fetch(request)
    }
    return { ...inner, heartbeat, fetch }
  }
  const transport = kafka({ brokers: ['nowhere:1'], client, fetchMaxWaitMs: 20, heartbeatMs: 5 })
  onTestFinished(() => transport.close())
  return {
    ...fixture,
    kafka: broker,
    looks: () => looks,
    slowLooks: () => void (lookBeats = 10),
    fetchesBefore: () => fetchesBefore,
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

/** As if the consumer were older than what its inbox remembers. */
const age = (w: World): Promise<unknown> =>
  w.query(`update $schema.consumer set created_at = now() - interval '90 days', forgotten_before = now() - interval '35 days'`)

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

test('nothing is read before it is known what the consumer has forgotten: its own first events would look like a past', async () => {
  const w = await world()
  w.slowLooks()
  w.append(0, 'a')
  await w.query(`insert into $schema.consumer (name) values ('catalog')`)
  await age(w)
  await w.readTo(0, 1n)
  expect({ looks: w.looks(), fetchesBefore: w.fetchesBefore(), told: w.told() }).toEqual({ looks: 1, fetchesBefore: 0, told: [] })
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
  w.kafka.forgetOffsets()
  w.kafka.deleteBefore(1, 1n)
  await w.readTo(0, 1n)
  await eventually(() => w.told().length > 0)
  expect(w.told()).toEqual([expect.stringContaining('Partitions 0 are read')])
})
