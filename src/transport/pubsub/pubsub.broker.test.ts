import { afterAll, beforeAll, describe, test } from 'vitest'
import { startPubsubServer, type PubsubServer } from 'waybill-pubsub-server'
import { startFaultProxy } from '../../testing/faults/fault-proxy.ts'
import { transportContract, type TransportHarness } from '../../testing/contract/transport-contract.ts'
import { createPubsubAdmin, type PubsubAdmin } from './admin/admin.ts'
import type { SubscriptionSettings } from './admin/resources.ts'
import { pubsub, type PubsubOptions } from './pubsub.ts'

let server: PubsubServer
let admin: PubsubAdmin
let topics = 0

beforeAll(async () => {
  server = await startPubsubServer()
  admin = createPubsubAdmin({ projectId: 'contract', emulatorHost: server.emulatorHost })
})

afterAll(async () => {
  await admin.close()
  await server.stop()
})

async function makeTopic(consumers: readonly string[], settings: Partial<SubscriptionSettings> = {}): Promise<string> {
  topics += 1
  const topic = `topic-${topics}`
  await admin.createTopic({ name: topic, retentionSeconds: 0, schema: undefined })
  for (const consumer of consumers) await admin.createSubscription({ ...plain, name: `${topic}.${consumer}`, topic, ...settings })
  return topic
}

const plain: SubscriptionSettings = {
  name: '',
  topic: '',
  ackDeadlineSeconds: 10,
  retentionSeconds: 86_400,
  isRetainingAcked: true,
  isOrdered: true,
  isExactlyOnce: false,
  filter: undefined,
  retry: undefined,
  deadLetter: undefined,
  expiresAfterSeconds: 0,
}

async function open(
  options: Partial<PubsubOptions> = {},
  settings: Partial<SubscriptionSettings> = {},
): Promise<TransportHarness> {
  const proxy = await startFaultProxy({ target: { host: server.host, port: server.port } })
  const transport = pubsub({ projectId: 'contract', emulatorHost: `${proxy.host}:${proxy.port}`, ...options })
  return {
    transport,
    makeTopic: (consumers) => makeTopic(consumers, settings),
    outage: () => {
      proxy.refuse()
      proxy.cut()
      return Promise.resolve(() => Promise.resolve(proxy.heal()))
    },
    close: async () => {
      await transport.close()
      await proxy.stop()
    },
  }
}

// Pub/Sub does not tell what is settled, and a seek settles whatever is older.
const features = { rewind: false }

transportContract('pubsub', { describe, test, features, open: () => open() })
transportContract('pubsub with exactly-once delivery', {
  describe,
  test,
  features,
  open: () => open({ exactlyOnce: true }, { isExactlyOnce: true }),
})
transportContract('pubsub with CloudEvents', { describe, test, features, open: () => open({ attributes: 'cloudevents' }) })
