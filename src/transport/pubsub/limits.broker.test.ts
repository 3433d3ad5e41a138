import { PubSub } from '@google-cloud/pubsub'
import { createHash } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { avro } from '../../codec/avro.ts'
import { startPubsubServer, type PubsubServer } from 'waybill-pubsub-server'
import { eventually } from '../../testing/kit/eventually.ts'
import { createPubsubAdmin } from './admin/admin.ts'
import { pubsub } from './pubsub.ts'
import type { IncomingMessage, OutgoingMessage, Transport } from '../port/transport.ts'

let server: PubsubServer
let transport: Transport
let google: PubSub
const received: IncomingMessage[] = []

beforeAll(async () => {
  server = await startPubsubServer()
  const admin = createPubsubAdmin({ projectId: 'limits', emulatorHost: server.emulatorHost })
  await admin.createTopic({ name: 'video.events', retentionSeconds: 0, schema: undefined })
  await admin.createSubscription({
    name: 'video.events.catalog',
    topic: 'video.events',
    ackDeadlineSeconds: 10,
    retentionSeconds: 86_400,
    isRetainingAcked: false,
    isOrdered: true,
    isExactlyOnce: false,
    filter: undefined,
    retry: undefined,
    deadLetter: undefined,
    expiresAfterSeconds: 0,
  })
  await admin.close()
  google = new PubSub({ projectId: 'limits', apiEndpoint: server.emulatorHost })
  transport = pubsub({ projectId: 'limits', emulatorHost: server.emulatorHost })
  await transport.receive({
    topic: 'video.events',
    consumer: 'catalog',
    maxMessages: 100,
    maxBytes: 64_000_000,
    onError: () => {},
    onDelivery: (delivery) => {
      received.push(delivery.message)
      void delivery.ack()
    },
  })
})

afterAll(async () => {
  await transport.close()
  await google.close()
  await server.stop()
})

const some = Buffer.from('x')
const attributes = (count: number): Record<string, string> =>
  Object.fromEntries(Array.from({ length: count }, (_, i) => [`a${i}`, String(i)]))
const outgoing = (message: Partial<OutgoingMessage>): OutgoingMessage => ({
  topic: 'video.events',
  orderingKey: undefined,
  attributes: {},
  body: some,
  ...message,
})

const cases: readonly (readonly [string, Partial<OutgoingMessage>, boolean])[] = [
  ['10 MB less what a request has beside', { body: Buffer.alloc(10_000_000 - 2_048, 7) }, true],
  ['10 MB', { body: Buffer.alloc(10_000_000) }, false],
  ['a key of 1,000 bytes', { orderingKey: 'k'.repeat(1_000) }, true],
  ['a key of 1,024 bytes', { orderingKey: 'é'.repeat(512) }, true],
  ['100 attributes', { attributes: attributes(100) }, true],
  ['101 attributes', { attributes: attributes(101) }, false],
  ['an attribute name of 256 bytes', { attributes: { ['n'.repeat(256)]: 'v' } }, true],
  ['an attribute name of 257 bytes', { attributes: { ['n'.repeat(257)]: 'v' } }, false],
  ['an attribute of 1,024 bytes', { attributes: { a: 'é'.repeat(512) } }, true],
  ['an attribute of 1,025 bytes', { attributes: { a: `${'é'.repeat(512)}x` } }, false],
  ['every byte there is', { body: Uint8Array.from({ length: 256 }, (_, i) => i) }, true],
  ['no bytes, but an attribute', { body: new Uint8Array(0), attributes: { a: 'b' } }, true],
  ['no bytes and no attributes', { body: new Uint8Array(0) }, false],
]

async function expectArrival(id: string, sent: OutgoingMessage): Promise<void> {
  const got = await eventually(() => received.find(({ messageId }) => messageId === id) ?? false)
  expect(Buffer.compare(got.body, sent.body)).toBe(0)
  expect({ ...got.attributes }).toEqual(sent.attributes)
  expect(got.orderingKey).toBe(sent.orderingKey)
}

describe('limits of a message', () => {
  test.each(cases)('%s', async (_name, part, isTaken) => {
    const message = outgoing(part)
    const [outcome] = await transport.publish([message], { signal: AbortSignal.timeout(60_000), maySend: () => true })
    expect(outcome?.status).toBe(isTaken ? 'confirmed' : 'rejected')
    if (outcome?.status === 'confirmed') await expectArrival(outcome.messageId, message)
    // The same through Google's publisher, which knows nothing of our checks: the service judges as we do.
    const { orderingKey } = message
    const topic = google.topic('video.events', { batching: { maxMessages: 1 }, messageOrdering: orderingKey !== undefined })
    const data = Buffer.from(message.body)
    const sent = topic.publishMessage({
      data,
      attributes: message.attributes,
      ...(orderingKey === undefined ? {} : { orderingKey }),
    })
    expect(
      await sent.then(
        () => true,
        () => false,
      ),
    ).toBe(isTaken)
  })

  test('maxBytes leaves room for the longest names, the longest key and as many attributes as there may be', async () => {
    const [projectId, topic] = ['p'.repeat(128), 't'.repeat(255)]
    const admin = createPubsubAdmin({ projectId, emulatorHost: server.emulatorHost })
    await admin.createTopic({ name: topic, retentionSeconds: 0, schema: undefined })
    await admin.close()
    const widest = Object.fromEntries(Array.from({ length: 100 }, (_, i) => [String(i).padStart(256, 'n'), 'v'.repeat(1_024)]))
    const other = pubsub({ projectId, emulatorHost: server.emulatorHost, publishTimeoutMs: 600_000 })
    const largestBody = other.maxBytes - 100 * (256 + 1_024) - 1_024
    const messages = [largestBody, largestBody + 1].map((bytes) =>
      outgoing({ topic, orderingKey: 'k'.repeat(1_024), attributes: widest, body: Buffer.alloc(bytes) }),
    )
    const outcomes = await other.publish(messages, { signal: AbortSignal.timeout(600_000), maySend: () => true })
    await other.close()
    expect(outcomes.map(({ status }) => status)).toEqual(['confirmed', 'rejected'])
  })

  test('a key beyond 1 KB is replaced by its hash, so that it still keeps its order', async () => {
    const orderingKey = 'k'.repeat(5_000)
    const messages = [1, 2, 3].map((n) => outgoing({ orderingKey, attributes: { long: String(n) } }))
    const outcomes = await transport.publish(messages, { signal: AbortSignal.timeout(60_000), maySend: () => true })
    expect(outcomes.map(({ status }) => status)).toEqual(['confirmed', 'confirmed', 'confirmed'])
    const got = await eventually(() => {
      const arrived = received.filter(({ attributes: { long } }) => long !== undefined)
      return arrived.length === 3 && arrived
    })
    expect(got.map(({ attributes: { long } }) => long)).toEqual(['1', '2', '3'])
    expect(got[0]?.orderingKey).toBe(createHash('sha256').update(orderingKey).digest('hex'))
  })

  test('a request never grows beyond what the service takes: three ordered messages of 4 MB', async () => {
    const messages = [1, 2, 3].map((n) =>
      outgoing({ orderingKey: 'big', attributes: { big: String(n) }, body: Buffer.alloc(4_000_000) }),
    )
    const outcomes = await transport.publish(messages, { signal: AbortSignal.timeout(60_000), maySend: () => true })
    expect(outcomes.map(({ status }) => status)).toEqual(['confirmed', 'confirmed', 'confirmed'])
  })

  test('what a topic refuses by its schema is rejected, and its neighbours are not', async () => {
    const admin = createPubsubAdmin({ projectId: 'limits', emulatorHost: server.emulatorHost })
    const video = avro<{ title: string }>({ type: 'record', name: 'Video', fields: [{ name: 'title', type: 'string' }] })
    await admin.createSchema({ name: 'video', type: 'AVRO', definition: video.definition })
    await admin.createTopic({ name: 'typed.events', retentionSeconds: 0, schema: { name: 'video', encoding: 'BINARY' } })
    await admin.close()
    const fits = await video.encode({ title: 'Hi' })
    const messages = [fits, Buffer.from('{}'), fits].map((body) => outgoing({ topic: 'typed.events', body }))
    const outcomes = await transport.publish(messages, { signal: AbortSignal.timeout(60_000), maySend: () => true })
    expect(outcomes.map(({ status }) => status)).toEqual(['confirmed', 'rejected', 'confirmed'])
  })

  test('a topic that does not exist is neither an outage nor the fault of its messages', async () => {
    const messages = [outgoing({ topic: 'nobody.events' }), outgoing({})]
    const outcomes = await transport.publish(messages, { signal: AbortSignal.timeout(60_000), maySend: () => true })
    expect(outcomes).toMatchObject([{ status: 'unroutable', error: { code: 'NOT_FOUND' } }, { status: 'confirmed' }])
  })

  test('a subscription that does not exist is said at once', async () => {
    const receiving = transport.receive({
      topic: 'video.events',
      consumer: 'nobody',
      maxMessages: 1,
      maxBytes: 1,
      onError: () => {},
      onDelivery: () => {},
    })
    await expect(receiving).rejects.toMatchObject({ code: 'NOT_FOUND' })
  })
})
