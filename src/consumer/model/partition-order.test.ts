import { expect, onTestFinished, test } from 'vitest'
import { FakeKafka } from '../../../test/kafka/fake-kafka.ts'
import { published, videos } from '../../../test/setup/consumer-fixture.ts'
import { PartitionedBroker } from '../../../test/setup/partitioned-broker.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { createFakeClock } from '../../testing/kit/fake-clock.ts'
import { kafka } from '../../transport/kafka/kafka.ts'
import type { IncomingMessage } from '../../transport/port/transport.ts'
import { inPartitionOrder, type Fate, type PlacedDelivery, type StoredOffset } from './partition-order.ts'

const dayMs = 86_400_000
const aborting = new AbortController().signal

async function twoInHand(stored: Map<string, StoredOffset> = new Map()) {
  const clock = createFakeClock()
  const broker = new PartitionedBroker()
  broker.topicId = 'second'
  const handed: PlacedDelivery[] = []
  const lines = inPartitionOrder({ transport: broker, clock, resumeFrom: () => Promise.resolve(stored) })
  const receiver = await lines.receive({
    topic: videos.topic,
    consumer: 'catalog',
    maxMessages: 10,
    maxBytes: 1_000_000,
    onDelivery: (delivery) => void handed.push(delivery as PlacedDelivery),
    onError: () => undefined,
  })
  await broker.assign(broker.members[0], ['0'])
  broker.append('0', [published('a', 1), published('a', 2)])
  return { clock, broker, handed, receiver }
}

test('what is behind one that is still to be decided waits for that, and stands for it if it is ignored', async () => {
  const [clock, broker] = [createFakeClock(), new PartitionedBroker()]
  const handed: PlacedDelivery[] = []
  const fates = new Map<string, (fate: Fate) => void>()
  const fateOf = ({ attributes }: IncomingMessage): Promise<Fate> | undefined => {
    const id = attributes['aggregate_id'] ?? ''
    return id === 'a' ? undefined : new Promise((decide) => fates.set(id, decide))
  }
  const receiver = await inPartitionOrder({
    transport: broker,
    clock,
    fateOf,
    resumeFrom: () => Promise.resolve(new Map()),
  }).receive({
    topic: videos.topic,
    consumer: 'catalog',
    maxMessages: 10,
    maxBytes: 1_000_000,
    onDelivery: (delivery) => void handed.push(delivery as PlacedDelivery),
    onError: () => undefined,
  })
  const seen = (): readonly (readonly unknown[])[] =>
    handed.map(({ place, fate }) => [place.offset, place.from, place.begins, fate])
  await broker.assign(broker.members[0], ['0'])
  broker.append('0', [
    published('x', 1),
    published('a', 1),
    published('y', 1),
    published('a', 2),
    published('z', 1),
    published('a', 3),
  ])
  fates.get('z')?.('ignore')
  await clock.advance(0)
  expect(seen()).toEqual([])
  fates.get('x')?.('ignore')
  await clock.advance(0)
  expect(seen()).toEqual([[1n, 0n, true, undefined]])
  // One that is given back meanwhile comes again before what is behind it.
  await handed[0]?.nack()
  fates.get('y')?.('aside')
  await clock.advance(1_000)
  expect(seen().slice(1)).toEqual([
    [1n, 0n, true, undefined],
    [2n, 2n, false, 'aside'],
    [3n, 3n, false, undefined],
    [5n, 4n, false, undefined],
  ])
  await receiver.close(aborting)
})

test.each(['stop', 'loss'])('a partition that rests keeps nothing awake after its %s', async (what) => {
  const { clock, broker, handed, receiver } = await twoInHand()
  await handed[1]?.nack()
  await handed[0]?.nack(dayMs)
  expect(clock.sleepers()).toBe(1)
  if (what === 'stop') await receiver.close(aborting)
  else await broker.assign(broker.members[0], ['0'])
  expect(clock.sleepers()).toBe(0)
  expect(broker.givenBack).toEqual(['0/0', '0/1'])
})

test('who had an item earlier and gives it back once more takes it from nobody', async () => {
  const { clock, handed, receiver } = await twoInHand()
  for (const delivery of handed.slice(0, 2)) await delivery.nack()
  await clock.advance(1000)
  expect(handed.map(({ place }) => place.offset)).toEqual([0n, 1n, 0n, 1n])
  for (const delivery of handed.slice(0, 2)) await delivery.nack()
  await clock.advance(1000)
  expect(handed).toHaveLength(4)
  for (const delivery of handed.slice(2)) await delivery.nack()
  await clock.advance(1000)
  expect(handed.map(({ place }) => place.offset)).toEqual([0n, 1n, 0n, 1n, 0n, 1n])
  await receiver.close(aborting)
})

test('what an unknown topic of the name stored after we began is replaced only when we were refused for long, and never by who is lost', async () => {
  const stored = new Map<string, StoredOffset>()
  const { clock, broker, handed, receiver } = await twoInHand(stored)
  stored.set('0', { next: 7n, topicId: 'first' })
  const refuse = async (): Promise<void> => {
    for (const delivery of handed.slice(-2)) await delivery.nack()
  }
  for (const passesMs of [58_000, 1_000]) {
    await refuse()
    await clock.advance(passesMs)
  }
  expect(handed.map(({ place }) => place.replaces)).toEqual(Array.from({ length: 6 }))
  await clock.advance(1_000)
  await refuse()
  await clock.advance(1_000)
  expect(handed.slice(6).map(({ place }) => [place.offset, place.begins, place.replaces])).toEqual([
    [0n, true, 'first'],
    [1n, false, undefined],
  ])
  await refuse()
  broker.members[0]?.partitions.get('0')?.lost.abort()
  await clock.advance(60_000)
  expect(handed).toHaveLength(8)
  await receiver.close(aborting)
})

test('an answer that comes when its assignment is over takes the place of no later one', async () => {
  const [clock, broker, late] = [createFakeClock(), new PartitionedBroker(), Promise.withResolvers<void>()]
  const handed: PlacedDelivery[] = []
  let asked = 0
  const lines = inPartitionOrder({
    transport: broker,
    clock,
    resumeFrom: async () => {
      if ((asked += 1) === 1) await late.promise
      return new Map([['0', { next: 100n, topicId: undefined }]])
    },
  })
  const receiver = await lines.receive({
    topic: videos.topic,
    consumer: 'catalog',
    maxMessages: 10,
    maxBytes: 1_000_000,
    onDelivery: (delivery) => void handed.push(delivery as PlacedDelivery),
    onError: () => undefined,
  })
  const [member] = broker.members
  const answer = member?.options.resumeFrom?.(['0'], undefined)
  await broker.assign(member, ['0'])
  broker.append('0', [published('a', 1)], { hole: 100 })
  broker.append('0', [published('a', 2), published('a', 3)])
  for (const delivery of handed) await delivery.nack()
  late.resolve()
  await answer
  broker.append('0', [published('a', 4)])
  await clock.advance(1_000)
  expect(handed.slice(3).map(({ place }) => [place.offset, place.from])).toEqual([100n, 101n, 102n, 103n].map((at) => [at, at]))
  await receiver.close(aborting)
})

test('a partition whose event keeps failing takes no room from the others, and goes on in order when that is applied', async () => {
  const [clock, broker] = [createFakeClock(), new FakeKafka(2)]
  const transport = kafka({ brokers: ['nowhere:1'], client: () => broker.client(), fetchMaxWaitMs: 20 })
  onTestFinished(() => transport.close())
  const handed: PlacedDelivery[] = []
  let isWell = false
  await inPartitionOrder({ transport, clock, resumeFrom: () => Promise.resolve(new Map()) }).receive({
    topic: 'orders',
    consumer: 'ledger',
    maxMessages: 100,
    maxBytes: 1_000_000,
    onDelivery: (delivery) => {
      handed.push(delivery as PlacedDelivery)
      if (isWell) void delivery.ack()
    },
    onError: () => undefined,
  })
  const offsetsOf = (partition: string): readonly bigint[] =>
    handed.filter(({ place }) => place.partition === partition).map(({ place }) => place.offset)
  const upTo = (count: number): readonly bigint[] => Array.from({ length: count }, (_, i) => BigInt(i))
  for (const offset of upTo(200)) broker.append(0, `a${offset}`)
  await eventually(() => handed.length === 100)
  for (const delivery of handed.splice(0)) await delivery.nack(600_000)
  for (const offset of upTo(50)) broker.append(1, `b${offset}`)
  await eventually(() => handed.length === 50)
  expect([offsetsOf('0'), offsetsOf('1')]).toEqual([[], upTo(50)])
  isWell = true
  await clock.advance(600_000)
  await eventually(() => handed.length === 250)
  expect(offsetsOf('0')).toEqual(upTo(200))
})
