/**
 * Google's own client against a server of ours, on a clock that the tests move.
 *
 * Every name is used once, so cases cannot disturb each other.
 */
import { PubSub, v1 } from '@google-cloud/pubsub'
import { credentials } from '@grpc/grpc-js'
import { createFakeClock } from '../../../src/testing/kit/fake-clock.ts'
import type { FakeClock } from '../../../src/testing/kit/fake-clock.ts'
import { startPubsubServer } from '../src/pubsub-server.ts'
import type { PubsubServer, PubsubServerOptions } from '../src/pubsub-server.ts'

export type Subscription = Parameters<v1.SubscriberClient['createSubscription']>[0] & object
export type Topic = Parameters<v1.PublisherClient['createTopic']>[0] & object

export interface Received {
  readonly ackId: string
  readonly data: string
  readonly attempt: number
  readonly attributes: Readonly<Record<string, string>>
}

export interface Harness {
  readonly server: PubsubServer
  readonly clock: FakeClock
  readonly client: PubSub
  readonly publisher: v1.PublisherClient
  readonly subscriber: v1.SubscriberClient
  readonly schemas: v1.SchemaServiceClient
  /** A new name of a resource of that kind. */
  name(kind: 'topics' | 'subscriptions' | 'snapshots' | 'schemas'): string
  topic(settings?: Topic): Promise<string>
  /** A topic with one subscription. */
  pair(settings?: Subscription): Promise<{ readonly topic: string; readonly subscription: string }>
  publish(topic: string, data: readonly string[], orderingKey?: string): Promise<string[]>
  pull(subscription: string, maxMessages?: number): Promise<Received[]>
  ack(subscription: string, received: readonly Received[]): Promise<void>
  nack(subscription: string, received: readonly Received[]): Promise<void>
  close(): Promise<void>
}

const project = 'projects/compat'

// The client would ask the network for the cloud it runs in.
process.env['METADATA_SERVER_DETECTION'] = 'none'

export async function openHarness(serverOptions: PubsubServerOptions = {}): Promise<Harness> {
  const clock = createFakeClock()
  const server = await startPubsubServer({ clock, ...serverOptions })
  const options = { servicePath: server.host, port: server.port, sslCreds: credentials.createInsecure(), projectId: 'compat' }
  const client = new PubSub(options)
  const publisher = new v1.PublisherClient(options)
  const subscriber = new v1.SubscriberClient(options)
  const schemas = new v1.SchemaServiceClient(options)
  let used = 0
  const name: Harness['name'] = (kind) => `${project}/${kind}/name-${(used += 1)}`
  const topic: Harness['topic'] = async (settings = {}) => {
    const [created] = await publisher.createTopic({ name: name('topics'), ...settings })
    return created.name ?? ''
  }
  return {
    server,
    clock,
    client,
    publisher,
    subscriber,
    schemas,
    name,
    topic,
    pair: async (settings = {}) => {
      const ofTopic = settings.topic ?? (await topic())
      const subscription = name('subscriptions')
      await subscriber.createSubscription({ ...settings, name: subscription, topic: ofTopic })
      return { topic: ofTopic, subscription }
    },
    publish: async (ofTopic, data, orderingKey = '') => {
      const messages = data.map((text) => ({ data: Buffer.from(text), orderingKey }))
      const [{ messageIds }] = await publisher.publish({ topic: ofTopic, messages })
      return messageIds ?? []
    },
    pull: async (subscription, maxMessages = 100) => {
      const [{ receivedMessages }] = await subscriber.pull({ subscription, maxMessages, returnImmediately: true })
      return (receivedMessages ?? []).map(({ ackId, message, deliveryAttempt }) => ({
        ackId: ackId ?? '',
        data: Buffer.from((message?.data as Uint8Array | undefined) ?? []).toString(),
        attempt: deliveryAttempt ?? 0,
        attributes: message?.attributes ?? {},
      }))
    },
    ack: async (subscription, received) => {
      await subscriber.acknowledge({ subscription, ackIds: received.map(({ ackId }) => ackId) })
    },
    nack: async (subscription, received) => {
      await subscriber.modifyAckDeadline({ subscription, ackIds: received.map(({ ackId }) => ackId), ackDeadlineSeconds: 0 })
    },
    close: async () => {
      await Promise.all([client.close(), publisher.close(), subscriber.close(), schemas.close()])
      await server.stop()
    },
  }
}

export const data = (received: readonly Received[]): string[] => received.map((one) => one.data)

/** One line of the compatibility table: something that must work, and something that must be refused, and how. */
export interface Case {
  readonly name: string
  readonly accepts: { readonly what: string; readonly run: (h: Harness) => Promise<void> }
  readonly refuses: { readonly what: string; readonly code: keyof typeof codes; readonly run: (h: Harness) => Promise<unknown> }
}

export const codes = {
  INVALID_ARGUMENT: 3,
  NOT_FOUND: 5,
  ALREADY_EXISTS: 6,
  FAILED_PRECONDITION: 9,
  ABORTED: 10,
  UNIMPLEMENTED: 12,
} as const
