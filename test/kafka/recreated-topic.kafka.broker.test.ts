import { Admin } from '@platformatic/kafka'
import { afterEach, expect, test } from 'vitest'
import { eventually } from '../../src/testing/kit/eventually.ts'
import { message, probe, publishAll } from '../../src/testing/contract/probe.ts'
import { connectKafka } from '../../src/transport/kafka/client/connect.ts'
import { kafka } from '../../src/transport/kafka/kafka.ts'
import type { OutgoingMessage, Transport } from '../../src/transport/port/transport.ts'
import { testKafka } from '../setup/test-kafka.ts'

const { brokers, admin, makeTopic } = await testKafka()
const open: { close(): Promise<void> }[] = []

afterEach(async () => {
  await Promise.all(open.splice(0).map((each) => each.close()))
})

function opened<Closing extends { close(): Promise<void> }>(closing: Closing): Closing {
  open.push(closing)
  return closing
}

function transport(): Transport {
  return opened(kafka({ brokers, minInsyncReplicas: 1, heartbeatMs: 50 }))
}

/** Deletes a topic and makes it again. */
async function recreate(topic: string): Promise<void> {
  const deleting = opened(new Admin({ clientId: 'test', bootstrapBrokers: [...brokers] }))
  await deleting.deleteTopics({ topics: [topic] })
  const settings = { name: topic, partitions: 1, replicationFactor: 1 }
  await eventually(() => admin.createTopic(settings).then(() => true))
}

function named(topic: string, name: string, count: number): readonly OutgoingMessage[] {
  return Array.from({ length: count }, (_, i) => message(topic, `${name}${i}`, 'k'))
}

test('a topic that is deleted and made again under a reader is read from its beginning', async () => {
  const topic = await makeTopic({ partitions: 1 })
  await publishAll(transport(), named(topic, 'old', 5))
  const received = await probe(transport(), { topic })
  await received.until(5)
  await eventually(async () => (await admin.committedOffsets(topic, `${topic}.one`)).get(0) === 5n)
  await recreate(topic)
  await publishAll(transport(), named(topic, 'new', 9))
  await received.until(14)
  expect(received.firstNames().slice(5)).toEqual(Array.from({ length: 9 }, (_, i) => `new${i}`))
  await eventually(async () => (await admin.committedOffsets(topic, `${topic}.one`)).get(0) === 9n)
})

test('a fetch and a committed offset are of the topic that they were meant for, not of another of its name', async () => {
  const topic = await makeTopic({ partitions: 1 })
  const client = opened(connectKafka({ brokers }))
  const before = await client.describeTopic(topic)
  await recreate(topic)
  await publishAll(transport(), named(topic, 'new', 9))
  const after = await client.describeTopic(topic)
  expect([typeof before.id, typeof after.id, before.id === after.id]).toEqual(['string', 'string', false])
  const leader = after.partitions[0]?.leader ?? 0
  const asked = { leader, topic, from: new Map([[0, 5n]]), maxWaitMs: 100, maxBytes: 1_000_000, maxPartitionBytes: 1_000_000 }
  const fetch = async (topicId: string | undefined): Promise<unknown> => {
    const [found] = await client.fetch({ ...asked, topicId })
    return [found?.error, found?.records.length]
  }
  expect(await fetch(before.id)).toEqual(['UNKNOWN_TOPIC_ID', 0])
  expect([await fetch(after.id), await fetch(undefined)]).toEqual([
    [undefined, 4],
    [undefined, 4],
  ])

  const group = `group of ${topic}`
  const offsets = new Map([[0, 5n]])
  const committed = (topicId?: string): Promise<ReadonlyMap<number, bigint>> =>
    client.committedOffsets({ group, topic, topicId, partitions: [0] })
  await client.commitOffsets({ member: { group }, topic, topicId: before.id, offsets })
  expect([await committed(before.id), await committed(after.id), await committed()]).toEqual([offsets, new Map(), offsets])
  await client.commitOffsets({ member: { group }, topic, offsets })
  expect(await committed(after.id)).toEqual(offsets)
})
