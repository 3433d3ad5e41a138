import { expect, onTestFinished, test } from 'vitest'
import { FakeKafka } from '../../../../test/kafka/fake-kafka.ts'
import { eventually } from '../../../testing/kit/eventually.ts'
import type { Delivery, ReceiveOptions } from '../../port/transport.ts'
import type { KafkaClient } from '../client/kafka-client.ts'
import { kafka } from '../kafka.ts'

interface Reading {
  readonly deliveries: readonly Delivery[]
  readonly errors: readonly string[]
  readonly bodies: () => readonly string[]
  readonly close: () => Promise<void>
}

/** Reads one partition, and acks what comes unless `on` does something else with it. */
async function read(
  broker: FakeKafka,
  {
    client = {},
    on = (delivery) => void delivery.ack(),
    ...options
  }: {
    readonly client?: Partial<KafkaClient>
    readonly on?: (delivery: Delivery) => void
  } & Pick<ReceiveOptions, 'resumeFrom'> = {},
): Promise<Reading> {
  const deliveries: Delivery[] = []
  const errors: string[] = []
  const transport = kafka({
    brokers: ['nowhere:1'],
    client: () => ({ ...broker.client(), ...client }),
    fetchMaxWaitMs: 20,
    heartbeatMs: 5,
    metadataMaxAgeMs: 50,
  })
  onTestFinished(() => transport.close())
  await transport.receive({
    topic: 'orders',
    consumer: 'ledger',
    maxMessages: 10,
    maxBytes: 1_000_000,
    onDelivery: (delivery) => {
      deliveries.push(delivery)
      on(delivery)
    },
    onError: ({ message }) => errors.push(message),
    ...options,
  })
  const bodies = (): readonly string[] => deliveries.map(({ message }) => Buffer.from(message.body).toString())
  return { deliveries, errors, bodies, close: () => transport.close() }
}

function append(broker: FakeKafka, count: number, name: string): void {
  for (let i = 0; i < count; i += 1) broker.append(0, `k${i}`, { value: Buffer.from(`${name} ${i}`) })
}

test('a topic that is deleted and made again is read from its beginning, however much it has by then', async () => {
  const broker = new FakeKafka(1)
  append(broker, 5, 'old')
  const { bodies, errors } = await read(broker)
  await eventually(() => broker.committed(0) === 5n)
  broker.recreate()
  append(broker, 9, 'new')
  await eventually(() => broker.committed(0) === 9n)
  expect(bodies().slice(5)).toEqual(Array.from({ length: 9 }, (_, i) => `new ${i}`))
  expect(errors.filter((text) => text.includes('made again'))).toHaveLength(1)
})

test('what is in hand of a topic that was deleted is lost, and moves nothing in the one that was made again', async () => {
  const broker = new FakeKafka(1)
  append(broker, 5, 'old')
  const { deliveries } = await read(broker, { on: () => undefined })
  await eventually(() => deliveries.length === 5)
  const old = deliveries.slice(0, 5)
  broker.recreate()
  append(broker, 9, 'new')
  await eventually(() => deliveries.length === 14)
  expect(old.every(({ lost }) => lost.aborted)).toBe(true)
  expect(await Promise.all(old.map((delivery) => delivery.ack()))).toEqual(old.map(() => 'lost'))
  expect(broker.committed(0)).toBe(0n)
  for (const delivery of deliveries.slice(5, 7)) await delivery.ack()
  await eventually(() => broker.committed(0) === 2n)
})

test('an offset that was committed of the topic before is not gone on from, whoever comes next', async () => {
  const broker = new FakeKafka(1)
  append(broker, 5, 'old')
  // Nobody notices: this one fetches no more, and its commit comes when the topic is another already.
  let fetches = 0
  const fetch: KafkaClient['fetch'] = (request) => ((fetches += 1) === 1 ? broker.client().fetch(request) : new Promise(() => {}))
  const first = await read(broker, { client: { fetch }, on: () => undefined })
  await eventually(() => first.deliveries.length === 5)
  broker.recreate()
  append(broker, 9, 'new')
  await Promise.all(first.deliveries.map((delivery) => delivery.ack()))
  expect(broker.committed(0)).toBe(5n)
  await first.close()
  const second = await read(broker)
  await eventually(() => broker.committed(0) === 9n)
  expect(second.bodies()).toEqual(Array.from({ length: 9 }, (_, i) => `new ${i}`))
})

test('a group is moved back only from what it committed of the topic that is there, and a seek sets offsets of that one', async () => {
  const broker = new FakeKafka(1)
  broker.recreate()
  const listOffsets: KafkaClient['listOffsets'] = ({ partitions }) =>
    Promise.resolve(new Map(partitions.map((each) => [each, 100n])))
  const client = { ...broker.client(), listOffsets }
  const group = 'orders.ledger'
  await client.commitOffsets({ member: { group }, topic: 'orders', topicId: 'topic 1', offsets: new Map([[0, 150n]]) })
  const transport = kafka({ brokers: ['nowhere:1'], client: () => client })
  onTestFinished(() => transport.close())
  const found = async (topicId = 'topic 2'): Promise<readonly bigint[]> => [
    ...(await client.committedOffsets({ group, topic: 'orders', topicId, partitions: [0] })).values(),
  ]
  await transport.rewind?.({ topic: 'orders', consumer: 'ledger', sinceMs: 1 })
  expect(await found()).toEqual([])
  await transport.seek({ topic: 'orders', consumer: 'ledger', to: { sinceMs: 1 } })
  expect(await found()).toEqual([100n])
  expect(await found('topic 3')).toEqual([])
})

test('a reader with offsets of its own is told which topic they must be of', async () => {
  const broker = new FakeKafka(1)
  append(broker, 5, 'old')
  const asked: (string | undefined)[] = []
  const resumeFrom: ReceiveOptions['resumeFrom'] = (_partitions, topicId) => {
    asked.push(topicId)
    return Promise.resolve(new Map([['0', asked.length === 1 ? 3n : 'earliest']]))
  }
  const { bodies } = await read(broker, { resumeFrom })
  await eventually(() => bodies().length === 2)
  broker.recreate()
  append(broker, 4, 'new')
  await eventually(() => bodies().length === 6)
  expect(bodies()).toEqual(['old 3', 'old 4', 'new 0', 'new 1', 'new 2', 'new 3'])
  expect(asked).toEqual(['topic 1', 'topic 2'])
})

test('where fetches go by the name, the next look at the topic finds the other one, and nothing of it is left out', async () => {
  const broker = new FakeKafka(1)
  append(broker, 5, 'old')
  const fetch: KafkaClient['fetch'] = (request) => broker.client().fetch({ ...request, topicId: undefined })
  const { bodies } = await read(broker, { client: { fetch } })
  await eventually(() => broker.committed(0) === 5n)
  broker.recreate()
  append(broker, 9, 'new')
  await eventually(() => new Set(bodies()).size === 14)
  await eventually(() => broker.committed(0) === 9n)
})

test('a cluster that gives topics no id is read as before', async () => {
  const broker = new FakeKafka(1)
  append(broker, 5, 'old')
  const describeTopic: KafkaClient['describeTopic'] = async (name) => ({
    name,
    partitions: (await broker.client().describeTopic(name)).partitions,
  })
  const first = await read(broker, { client: { describeTopic } })
  await eventually(() => broker.committed(0) === 5n)
  await first.close()
  append(broker, 2, 'more')
  const second = await read(broker, { client: { describeTopic } })
  await eventually(() => broker.committed(0) === 7n)
  expect(second.bodies()).toEqual(['more 0', 'more 1'])
})
