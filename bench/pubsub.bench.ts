/**
 * What the Pub/Sub transport makes of the broker, against the local server in a process of its own; 300-byte messages.
 *
 * Publishing: beside what Google documents (`publishMessage` with ordering, awaited per key), beside Google's generated client
 * with its own retries, and beside a bare gRPC loop of full requests; and the three ordering granularities beside each other.
 * Receiving: from a backlog, with the most that was in hand as a share of the bounds.
 */
import { PubSub, v1 } from '@google-cloud/pubsub'
import { type Child, startChild } from '../src/testing/process/child.ts'
import { openConnection, type Connection } from '../src/transport/pubsub/client/connection.ts'
import { createPubsubAdmin } from '../src/transport/pubsub/admin/admin.ts'
import { pubsub } from '../src/transport/pubsub/pubsub.ts'
import type { OutgoingMessage, Transport } from '../src/transport/port/transport.ts'
import { type BarDefinition, type Bench, composeBench, defineBench } from './harness.ts'
import { bench as serverBench } from './pubsub-server.bench.ts'

interface Context {
  readonly child: Child
  readonly google: PubSub
  readonly generated: v1.PublisherClient
  readonly bare: Connection
  readonly transport: Transport
  /** Fifty messages of each key. */
  readonly fewKeys: readonly OutgoingMessage[]
  /** Nine of ten aggregates appear once. */
  readonly distinct: readonly OutgoingMessage[]
  readonly unordered: readonly OutgoingMessage[]
  readonly backlog: readonly OutgoingMessage[]
}

const projectId = 'bench'
const topic = 'bench.events'
const topicPath = `projects/${projectId}/topics/${topic}`
const lanes = 64
const requestMessages = 1_000
const bounds = { maxMessages: 1_000, maxBytes: 300_000 }

const transportBench: Bench = defineBench<Context>({
  name: 'transport',
  summary:
    "the Pub/Sub transport beside Google's publisher and bare gRPC, by ordering granularity, and its bounds when receiving",
  unit: 'messages/s (in hand: most ÷ bound)',
  setup: async ({ quick }) => {
    const scale = quick ? 0.2 : 1
    const child = startChild(new URL('pubsub-server-child.ts', import.meta.url))
    const { pubsubPort } = await child.message<{ pubsubPort: number }>((said) => 'pubsubPort' in said)
    const emulatorHost = `127.0.0.1:${pubsubPort}`
    const admin = createPubsubAdmin({ projectId, emulatorHost })
    await admin.createTopic({ name: topic, retentionSeconds: 0, schema: undefined })
    await admin.createTopic({ name: 'backlog.events', retentionSeconds: 0, schema: undefined })
    await admin.createSubscription({ ...unordered, name: 'backlog.events.bench', topic: 'backlog.events' })
    await admin.close()
    const google = new PubSub({ projectId, apiEndpoint: emulatorHost })
    const connect = { projectId, apiEndpoint: undefined, emulatorHost, clientOptions: {} }
    return {
      child,
      google,
      generated: new v1.PublisherClient((await google.getClientConfig()) as ConstructorParameters<typeof v1.PublisherClient>[0]),
      bare: await openConnection('Publisher', connect),
      transport: pubsub({ projectId, emulatorHost }),
      fewKeys: messages(2_000 * scale, (i) => `key-${i % (40 * scale)}`),
      distinct: messages(5_000 * scale, (i) => (i % 10 === 0 ? 'hot' : `aggregate-${i}`)),
      unordered: messages(50_000 * scale, () => undefined),
      backlog: messages(100_000 * scale, () => undefined).map((message) => ({ ...message, topic: 'backlog.events' })),
    }
  },
  close: async ({ child, google, generated, bare, transport }) => {
    await Promise.all([transport.close(), google.close(), generated.close(), bare.close()])
    await child.kill()
  },
  contenders: {
    'documented use, few keys': ({ google, fewKeys }) => perSecond(fewKeys, () => publishAsDocumented(google, fewKeys)),
    'transport, few keys': ({ transport, fewKeys }) => perSecond(fewKeys, () => publish(transport, fewKeys)),
    'generated client, aggregate': ({ generated, distinct }) => perSecond(distinct, () => publishGenerated(generated, distinct)),
    'transport, aggregate': ({ transport, distinct }) => perSecond(distinct, () => publish(transport, distinct)),
    'transport, lane': ({ transport, distinct }) => {
      const laned = distinct.map((message, i) => ({ ...message, orderingKey: `lane-${i % lanes}` }))
      return perSecond(laned, () => publish(transport, laned))
    },
    'transport, version': ({ transport, unordered: all }) => perSecond(all, () => publish(transport, all)),
    'bare gRPC': ({ bare, unordered: all }) => perSecond(all, () => publishBare(bare, all)),
    'in hand': async ({ transport, backlog }) => {
      await publish(transport, backlog)
      return await mostInHand(transport, backlog.length)
    },
  },
  bars: [
    bar('transport ÷ documented use', 1.5, 'transport, few keys', 'documented use, few keys'),
    bar('lane ÷ aggregate', 5, 'transport, lane', 'transport, aggregate'),
    bar('version ÷ bare gRPC', 0.5, 'transport, version', 'bare gRPC'),
    { name: 'in hand ÷ bound', target: 1, direction: 'at-most', of: (sample) => sample('in hand') },
  ],
})

export const bench: Bench = composeBench({
  name: 'pubsub',
  summary: 'the Pub/Sub transport and the local server, each beside bare gRPC',
  parts: [transportBench, serverBench],
})

function bar(name: string, target: number, over: string, under: string): BarDefinition {
  return { name, target, direction: 'at-least', of: (sample) => sample(over) / sample(under) }
}

const unordered = {
  ackDeadlineSeconds: 60,
  retentionSeconds: 86_400,
  isRetainingAcked: false,
  isOrdered: false,
  isExactlyOnce: false,
  filter: undefined,
  retry: undefined,
  deadLetter: undefined,
  expiresAfterSeconds: 0,
} as const

function messages(count: number, keyOf: (i: number) => string | undefined): OutgoingMessage[] {
  const body = Buffer.alloc(300, 7)
  return Array.from({ length: Math.round(count) }, (_, i) => ({
    topic,
    orderingKey: keyOf(i),
    attributes: {
      event_id: `01890a5d-ac96-774b-bcce-${String(i).padStart(12, '0')}`,
      event_type: 'VideoPublished',
      version: '1',
    },
    body,
  }))
}

async function perSecond(all: readonly unknown[], work: () => Promise<unknown>): Promise<number> {
  const startedAt = performance.now()
  await work()
  return (all.length / (performance.now() - startedAt)) * 1000
}

async function publish(transport: Transport, all: readonly OutgoingMessage[]): Promise<void> {
  const outcomes = await transport.publish(all, { signal: new AbortController().signal, maySend: () => true })
  if (outcomes.some(({ status }) => status !== 'confirmed')) throw new Error('A message was not confirmed.')
}

async function publishAsDocumented(google: PubSub, all: readonly OutgoingMessage[]): Promise<void> {
  const ordered = google.topic(topic, { messageOrdering: true })
  const keys = Map.groupBy(all, ({ orderingKey }) => orderingKey ?? '')
  await Promise.all(
    [...keys].map(async ([orderingKey, run]) => {
      for (const { body, attributes } of run) await ordered.publishMessage({ data: Buffer.from(body), attributes, orderingKey })
    }),
  )
}

async function publishGenerated(generated: v1.PublisherClient, all: readonly OutgoingMessage[]): Promise<void> {
  const runs = [...Map.groupBy(all, ({ orderingKey }) => orderingKey ?? '')]
  await inParallel(100, runs.length, async (i) => {
    const [orderingKey, run] = runs[i] as (typeof runs)[number]
    const wire = run.map(({ body, attributes }) => ({ data: body, attributes, orderingKey }))
    // Without this it gathers calls under way into one request, whatever their ordering keys, and the service refuses that.
    await generated.publish({ topic: topicPath, messages: wire }, { timeout: 10_000, isBundling: false })
  })
}

async function publishBare(bare: Connection, all: readonly OutgoingMessage[]): Promise<void> {
  await inParallel(10, Math.ceil(all.length / requestMessages), async (i) => {
    const part = all.slice(i * requestMessages, (i + 1) * requestMessages)
    const wire = part.map(({ body, attributes }) => ({ data: body, attributes }))
    await bare.call('publish', { topic: topicPath, messages: wire }, { routing: {}, timeoutMs: 30_000 })
  })
}

async function inParallel(workers: number, count: number, work: (i: number) => Promise<void>): Promise<void> {
  let next = 0
  const run = async (): Promise<void> => {
    for (let i = next++; i < count; i = next++) await work(i)
  }
  await Promise.all(Array.from({ length: workers }, run))
}

/** The most messages or bytes in hand at any moment, as a share of what the bounds allow. */
async function mostInHand(transport: Transport, count: number): Promise<number> {
  const hand = { messages: 0, bytes: 0, share: 0, settled: 0 }
  await new Promise<void>((done, fail) => {
    const receiving = transport.receive({
      topic: 'backlog.events',
      consumer: 'bench',
      ...bounds,
      onError: fail,
      onDelivery: (delivery) => {
        const { byteLength } = delivery.message.body
        hand.messages += 1
        hand.bytes += byteLength
        hand.share = Math.max(hand.share, hand.messages / bounds.maxMessages, hand.bytes / bounds.maxBytes)
        setImmediate(() => {
          hand.messages -= 1
          hand.bytes -= byteLength
          hand.settled += 1
          void delivery.ack()
          if (hand.settled === count) void receiving.then((receiver) => receiver.close()).then(done, fail)
        })
      },
    })
    receiving.catch(fail)
  })
  return hand.share
}
