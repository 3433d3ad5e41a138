/**
 * A user's own database and broker as the place of drills. They keep to a schema and a topic of their own, whose names begin with
 * `waybill_drill_`, never touch a row that is not theirs, and remove what they made. Servers are left alone.
 */
import { WaybillError } from '../../core/errors.ts'
import type { Transport } from '../../transport/port/transport.ts'
import { createPubsubAdmin, type PubsubAdminOptions } from '../../transport/pubsub/admin/admin.ts'
import { makePubsubTopic, removePubsubTopic } from './pubsub-topic.ts'
import type { Target, TopicOrder } from './target.ts'

export interface ConfigTargetOptions {
  readonly url: string
  /** The configuration, whose `transport` the processes open for themselves. */
  readonly file: string
  /** Where topics are made, if the transport is Pub/Sub. */
  readonly pubsub: PubsubAdminOptions | undefined
}

export function openConfigured({ url, file, pubsub }: ConfigTargetOptions): Promise<Target> {
  const admin = pubsub === undefined ? undefined : createPubsubAdmin(pubsub)
  const target: Target = {
    on: 'config',
    url,
    transport: { kind: 'config', file },
    servers: undefined,
    makeTopic: async ({ topic, consumers, transport }) => {
      if (isSubscribable(transport)) for (const consumer of consumers) await transport.subscribe(topic, consumer)
      else if (transport.name === 'pubsub' && admin !== undefined) await makePubsubTopic(admin, topic, consumers)
      else throw unable(transport.name)
    },
    removeTopic: async ({ topic, consumers, transport }) => {
      if (isSubscribable(transport)) for (const consumer of consumers) await transport.unsubscribe(topic, consumer)
      else if (admin !== undefined) await removePubsubTopic(admin, topic, consumers)
    },
    unsettled: () => Promise.resolve(undefined),
    close: async () => admin?.close(),
  }
  return Promise.resolve(target)
}

/** A transport that makes subscriptions by itself, such as the one over Postgres. */
interface Subscribable extends Transport {
  subscribe(topic: string, consumer: string): Promise<void>
  unsubscribe(topic: string, consumer: string): Promise<void>
}

function isSubscribable(transport: TopicOrder['transport']): transport is Subscribable {
  return 'subscribe' in transport && 'unsubscribe' in transport
}

function unable(name: string): WaybillError {
  if (name === 'pubsub')
    return new WaybillError(
      'INVALID_OPTION',
      'Drills make a topic of their own: set pubsub.projectId in the configuration, to say where.',
    )
  return new WaybillError(
    'INVALID_OPTION',
    `Drills make a topic of their own, which they can do on Pub/Sub and on the Postgres transport, not on "${name}". Run them on embedded parts: leave --on config out.`,
  )
}
