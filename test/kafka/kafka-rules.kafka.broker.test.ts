import { Admin } from '@platformatic/kafka'
import { afterEach, expect, test } from 'vitest'
import { z } from 'zod'
import { state, tombstone } from '../../src/core/event/event.ts'
import { createSignals, type Signals } from '../../src/core/signals.ts'
import { stream } from '../../src/core/event/stream.ts'
import { eventually } from '../../src/testing/kit/eventually.ts'
import { letTimePass, message, probe, publish, publishAll, statuses, type Probe } from '../../src/testing/contract/probe.ts'
import type { KafkaOptions } from '../../src/transport/kafka/kafka-options.ts'
import { kafka } from '../../src/transport/kafka/kafka.ts'
import type { Delivery, Transport } from '../../src/transport/port/transport.ts'
import { testKafka } from '../setup/test-kafka.ts'

const { brokers, admin, makeTopic } = await testKafka()
const open: Transport[] = []

function transport(options: Partial<KafkaOptions> = {}): Transport {
  const opened = kafka({ brokers, minInsyncReplicas: 1, heartbeatMs: 50, sessionTimeoutMs: 60_000, ...options })
  open.push(opened)
  return opened
}

afterEach(async () => {
  await Promise.all(open.splice(0).map((each) => each.close()))
})

test('a topic that could lose what it confirmed is refused, unless that is wanted', async () => {
  const topic = await makeTopic()
  const [refused] = await publish(transport({ minInsyncReplicas: 2 }), [message(topic, 'm')])
  expect(refused).toMatchObject({
    status: 'unroutable',
    error: { code: 'REFUSED', message: expect.stringContaining('min.insync.replicas') },
  })
  expect(statuses(await publish(transport({ minInsyncReplicas: 0 }), [message(topic, 'm')]))).toEqual(['confirmed'])
})

test('a topic that is not there takes nothing, costs others nothing, is not made, and is told to who wants to receive', async () => {
  const topic = await makeTopic()
  const outcomes = await publish(transport(), [message('no.such.topic', 'm'), message(topic, 'm')])
  expect(outcomes).toMatchObject([{ status: 'unroutable', error: { code: 'NOT_FOUND' } }, { status: 'confirmed' }])
  await expect(probe(transport(), { topic: 'no.such.topic' })).rejects.toMatchObject({ code: 'NOT_FOUND' })
})

test('what the topic takes for too large is rejected by itself, and its neighbours go through', async () => {
  const topic = await makeTopic({ settings: { 'max.message.bytes': '5000' } })
  const large = { ...message(topic, 'large', 'a'), body: new Uint8Array(6_000) }
  const sent = [message(topic, 'a1', 'a'), message(topic, 'b1', 'b'), large, message(topic, 'a3', 'a'), message(topic, 'b2', 'b')]
  const outcomes = await publish(transport(), sent)
  expect(statuses(outcomes)).toEqual(['confirmed', 'confirmed', 'rejected', 'not-sent', 'confirmed'])
  expect(outcomes[2]).toMatchObject({ error: { code: 'TOO_LARGE' } })
})

test.each(['gzip', 'snappy', 'lz4', 'zstd'] as const)('messages travel compressed with %s', async (compression) => {
  const topic = await makeTopic({ partitions: 1 })
  const sending = transport({ compression })
  await publishAll(
    sending,
    Array.from({ length: 50 }, (_, i) => message(topic, `m${i}`, 'a')),
  )
  const received = await probe(sending, { topic })
  await received.until(50)
  expect(received.ofKey('a')).toEqual(Array.from({ length: 50 }, (_, i) => `m${i}`))
})

test('a tombstone of a compacted stream has a null value, and says all the same what it says', async () => {
  const topic = await makeTopic({ partitions: 1, settings: { 'cleanup.policy': 'compact' } })
  const events = { Stored: state(z.object({})), Removed: tombstone() }
  const compacted = transport({ compacted: [stream('book', { topic, events })] })
  const attributes = { aggregate_type: 'book', event_type: 'Removed', name: 'gone' }
  await publishAll(compacted, [{ ...message(topic, 'gone', 'b1'), attributes, body: Buffer.from('null') }])
  await publishAll(compacted, [{ ...message(topic, 'empty', 'b2'), body: new Uint8Array(0) }])
  const received = await probe(compacted, { topic })
  await received.until(2)
  const [gone, empty] = received.deliveries.map(({ message: each }) => each)
  expect([Buffer.from(gone?.body ?? []).toString(), gone?.attributes]).toEqual(['null', attributes])
  expect(empty?.body.byteLength).toBe(0)
  // A compacted topic refuses what has no key: nobody could say what it replaces.
  const [keyless] = await publish(compacted, [message(topic, 'keyless')])
  expect(keyless).toMatchObject({ status: 'rejected', error: { code: 'REJECTED' } })
})

test('a group with members is not moved: the seek is refused and says why', async () => {
  const topic = await makeTopic()
  const moved = transport()
  await probe(moved, { topic })
  await expect(moved.seek({ topic, consumer: 'one', to: 'earliest' })).rejects.toMatchObject({
    code: 'REFUSED',
    message: expect.stringMatching(/Stop or pause the consumer.*instanceId is in the group until its sessionTimeoutMs is over/),
  })
})

test('a reader that keeps its own offsets resumes there, whatever the broker remembers', async () => {
  const topic = await makeTopic({ partitions: 1 })
  const reading = transport()
  await publishAll(
    reading,
    Array.from({ length: 5 }, (_, i) => message(topic, `m${i}`, 'a')),
  )
  const first = await probe(reading, { topic })
  await first.until(5)
  await first.receiver.close()
  const asked: (readonly string[])[] = []
  const again: Delivery[] = []
  await reading.receive({
    topic,
    consumer: 'one',
    maxMessages: 10,
    maxBytes: 1_000_000,
    onDelivery: (delivery) => void again.push(delivery),
    onError: () => {},
    resumeFrom: (partitions) => {
      asked.push(partitions)
      return Promise.resolve(new Map([['0', 3n]]))
    },
  })
  await eventually(() => again.length === 2)
  expect(again.map(({ message: each }) => each.position)).toEqual([
    { partition: '0', offset: 3n },
    { partition: '0', offset: 4n },
  ])
  expect(asked).toEqual([['0']])
  for (const delivery of again) await delivery.ack()
  // What the broker knows does not go back.
  expect((await admin.committedOffsets(topic, `${topic}.one`)).get(0)).toBe(5n)
})

test('a static member that comes back within its session gets its partitions without a rebalance', async () => {
  const topic = await makeTopic({ partitions: 2 })
  const names: string[] = []
  const on = (delivery: Delivery): void => {
    names.push(delivery.message.attributes['name'] ?? '')
    void delivery.ack()
  }
  const steady = await probe(transport({ instanceId: 'steady' }), { topic })
  const leaving = transport({ instanceId: 'restarted' })
  await probe(leaving, { topic, on })
  await leaving.close()
  const held: Delivery[] = []
  const returning = transport({ instanceId: 'restarted' })
  await probe(returning, { topic, on: (delivery) => void held.push(delivery) })
  await publishAll(
    returning,
    Array.from({ length: 40 }, (_, i) => message(topic, `m${i}`, `k${i}`)),
  )
  await eventually(() => steady.deliveries.length + held.length === 40)
  // Had the group been balanced anew, the steady member would have been asked to let go of what it has.
  expect(steady.deliveries.every(({ lost }) => !lost.aborted)).toBe(true)
  expect(held.length).toBeGreaterThan(0)
})

test('of two processes under one name the older is told, and leaves the newer alone', async () => {
  const topic = await makeTopic({ partitions: 2 })
  const errors: Error[] = []
  await transport({ instanceId: 'one name' }).receive({
    topic,
    consumer: 'one',
    maxMessages: 10,
    maxBytes: 1_000_000,
    onDelivery: () => undefined,
    onError: (error) => void errors.push(error),
  })
  const newer = await probe(transport({ instanceId: 'one name' }), { topic, on: () => undefined })
  const told = (): readonly Error[] => errors.filter((error) => error.message.includes('the same instanceId'))
  await eventually(() => told().length > 0)
  await publishAll(
    transport(),
    Array.from({ length: 20 }, (_, i) => message(topic, `m${i}`, `k${i}`)),
  )
  await newer.until(20)
  await letTimePass()
  const outcomes = await Promise.all(newer.deliveries.map((delivery) => delivery.ack()))
  expect(outcomes).not.toContain('lost')
  expect(told().length).toBe(1)
})

/** Adds partitions to a topic. */
async function grow(topic: string, partitions: number): Promise<void> {
  const growing = new Admin({ clientId: 'test', bootstrapBrokers: [...brokers] })
  await growing.createPartitions({ topics: [{ name: topic, count: partitions }] })
  await growing.close()
  await eventually(async () => (await admin.describeTopic(topic)).partitions.length === partitions)
}

/** Publishes to all partitions, and waits until the members have read everything. */
async function readsEverything(topic: string, members: readonly Probe[]): Promise<void> {
  const partitions = (await admin.describeTopic(topic)).partitions.length
  const sent = Array.from({ length: 60 }, (_, i) => message(topic, `m${i}`, `k${i}`))
  await publishAll(transport(), sent)
  await eventually(() => expect(new Set(members.flatMap((each) => each.names())).size).toBe(sent.length))
  const read = members.flatMap(({ deliveries }) => deliveries.map(({ message: each }) => each.position?.partition))
  expect(new Set(read).size).toBe(partitions)
}

test('new partitions are found by a member that was restarted under its name and does not know that it hands them out', async () => {
  const topic = await makeTopic({ partitions: 2 })
  const first = transport({ instanceId: 'first' })
  await probe(first, { topic })
  const second = await probe(transport({ instanceId: 'second' }), { topic })
  await first.close()
  const again = await probe(transport({ instanceId: 'first', metadataMaxAgeMs: 100 }), { topic })
  await grow(topic, 4)
  await readsEverything(topic, [again, second])
})

test('partitions that were added while nobody was there are found by a member that does not hand them out', async () => {
  const topic = await makeTopic({ partitions: 2 })
  const before = ['first', 'second'].map((instanceId) => transport({ instanceId }))
  for (const each of before) await probe(each, { topic })
  await Promise.all(before.map((each) => each.close()))
  await grow(topic, 4)
  const first = await probe(transport({ instanceId: 'first' }), { topic })
  const second = await probe(transport({ instanceId: 'second', metadataMaxAgeMs: 100 }), { topic })
  await readsEverything(topic, [first, second])
})

test('one group for two topics: each is read to its last partition, whoever hands them out, also when one of them grows', async () => {
  const [first, second] = [await makeTopic({ partitions: 3 }), await makeTopic({ partitions: 2 })]
  const grouped = transport({ groupId: () => `group of ${first}`, metadataMaxAgeMs: 100 })
  const [ofFirst, ofSecond] = await Promise.all([probe(grouped, { topic: first }), probe(grouped, { topic: second })])
  await readsEverything(first, [ofFirst])
  // Nobody knows which of the two hands out the partitions of both.
  await grow(second, 5)
  await readsEverything(second, [ofSecond])
})

test('a process with a name has one place in a group: a receiver of another topic is refused, and told why', async () => {
  const [first, second] = [await makeTopic(), await makeTopic()]
  const named = transport({ groupId: () => `group of ${first}`, instanceId: 'one name' })
  await probe(named, { topic: first })
  await expect(probe(named, { topic: second })).rejects.toMatchObject({
    code: 'REFUSED',
    message: expect.stringContaining(`the receiver of ${first} has it`),
  })
})

test('what is in hand when a member joins is settled and committed before its partitions move', async () => {
  const topic = await makeTopic({ partitions: 2 })
  const sharing = transport()
  await publishAll(
    sharing,
    Array.from({ length: 20 }, (_, i) => message(topic, `m${i}`, `k${i}`)),
  )
  const first = await probe(sharing, { topic, on: () => undefined })
  await first.until(20)
  const joining = probe(sharing, { topic })
  for (const delivery of first.deliveries) expect(await delivery.ack()).not.toBe('lost')
  const second = await joining
  await publishAll(
    sharing,
    Array.from({ length: 20 }, (_, i) => message(topic, `n${i}`, `k${i}`)),
  )
  await eventually(() => first.deliveries.length + second.deliveries.length === 40)
  expect(second.names().filter((name) => name.startsWith('m'))).toEqual([])
})

test('a handler that is too slow for a rebalance loses what it has, and is told so', async () => {
  const topic = await makeTopic({ partitions: 2 })
  const sharing = transport({ drainTimeoutMs: 200 })
  await publishAll(sharing, [message(topic, 'slow', 'a')])
  const first = await probe(sharing, { topic, on: () => undefined })
  await first.until(1)
  const [slow] = first.deliveries as readonly [Delivery]
  const lost = new Promise((done) => slow.lost.addEventListener('abort', done, { once: true }))
  const second = await probe(sharing, { topic, on: () => undefined })
  await lost
  expect(await slow.ack()).toBe('lost')
  await eventually(() => [...first.names().slice(1), ...second.names()].includes('slow'))
  expect(await admin.committedOffsets(topic, `${topic}.one`)).toEqual(new Map())
})

test('other keys of a partition go on past one that is held, but no further than the window', async () => {
  const topic = await makeTopic({ partitions: 1 })
  const windowed = transport({ maxWindow: 30, fetchMaxBytes: 1_000 })
  await publishAll(windowed, [message(topic, 'held', 'a')])
  // In batches of ten: a batch is fetched whole.
  const others = Array.from({ length: 200 }, (_, i) => message(topic, `m${i}`, `k${i}`))
  for (let start = 0; start < 200; start += 10) await publishAll(windowed, others.slice(start, start + 10))
  let isHeld = true
  const received = await probe(windowed, {
    topic,
    maxMessages: 10,
    on: (delivery) => void (delivery.message.orderingKey === 'a' && isHeld ? delivery.nack(100) : delivery.ack()),
  })
  await eventually(() => {
    expect(received.names().filter((name) => name === 'held').length).toBeGreaterThanOrEqual(3)
    expect(received.firstNames().length).toBeGreaterThan(10)
  })
  expect(received.firstNames().length).toBeLessThan(100)
  expect((await admin.committedOffsets(topic, `${topic}.one`)).get(0) ?? 0n).toBe(0n)
  isHeld = false
  await received.until(201)
  await eventually(async () => (await admin.committedOffsets(topic, `${topic}.one`)).get(0) === 201n)
})

test('what a consumer has not settled is reported as its lag', async () => {
  const topic = await makeTopic({ partitions: 1 })
  const signals = createSignals()
  const lags: Signals['transport.lag'][] = []
  signals.on('transport.lag', (lag) => void lags.push(lag))
  const lagging = transport({ signals, lagMs: 50 })
  await publishAll(
    lagging,
    Array.from({ length: 7 }, (_, i) => message(topic, `m${i}`, 'a')),
  )
  const received = await probe(lagging, { topic, on: () => undefined })
  await received.until(7)
  await eventually(() => lags.at(-1)?.messages === 7)
  for (const delivery of received.deliveries) await delivery.ack()
  await eventually(() => lags.at(-1)?.messages === 0)
  expect(lags.at(-1)).toEqual({ transport: 'kafka', topic, consumer: 'one', partition: '0', messages: 0 })
})
