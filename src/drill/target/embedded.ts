/**
 * Real servers for drills, all of them ours: a PostgreSQL and a Pub/Sub server that keeps its messages on disk, and a Kafka where
 * a drill wants one and the machine can run it. All listen on the loopback interface and are gone afterwards.
 */
import { rm } from 'node:fs/promises'
import { startPubsubServer, type PubsubServer } from '../../testing/servers/pubsub-server.ts'
import { temporaryFolder } from '../../testing/process/cache-folder.ts'
import { startPostgres } from '../../testing/servers/postgres.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { startKafka } from '../../testing/servers/kafka-cluster.ts'
import { createKafkaAdmin } from '../../transport/kafka/admin.ts'
import { createPubsubAdmin } from '../../transport/pubsub/admin/admin.ts'
import { Closers } from '../../testing/process/closers.ts'
import { makePubsubTopic } from './pubsub-topic.ts'
import type { EmbeddedBroker, Target } from './target.ts'

const projectId = 'drill'

export async function openEmbedded(options: { readonly seed: number }): Promise<Target> {
  const closers = new Closers()
  try {
    return await openServers(options, closers)
  } catch (error) {
    await closers.close().catch(() => undefined)
    throw error
  }
}

async function openServers({ seed }: { readonly seed: number }, closers: Closers): Promise<Target> {
  const postgres = await startPostgres()
  closers.defer(() => postgres.stop())
  const url = await postgres.createDatabase('drill')
  const broker = await openBroker(seed)
  closers.defer(() => broker.close())
  const { emulatorHost } = broker.server
  const admin = createPubsubAdmin({ projectId, emulatorHost })
  closers.defer(() => admin.close())
  let starting: Promise<Target> | undefined
  closers.defer(async () => await (await starting?.catch(() => undefined))?.close())
  const target: Target = {
    on: 'embedded',
    url,
    transport: { kind: 'pubsub', projectId, emulatorHost },
    servers: { postgres, broker, kafka: () => (starting ??= openKafka(target)) },
    makeTopic: ({ topic, consumers }) => makePubsubTopic(admin, topic, consumers),
    // It goes with the server.
    removeTopic: async () => {},
    unsettled: (topic, consumer) => {
      const found = broker.server.stats().subscriptions.find(({ name }) => name.endsWith(`/${topic}.${consumer}`))
      return Promise.resolve(found?.unackedMessages)
    },
    close: () => closers.close(),
  }
  return target
}

async function openBroker(seed: number): Promise<EmbeddedBroker & { close(): Promise<void> }> {
  const dataDir = temporaryFolder('waybill-drill-broker-')
  let server: PubsubServer = await startPubsubServer({ dataDir, seed })
  const { port } = server
  return {
    get server() {
      return server
    },
    stop: () => server.stop(),
    start: async () => {
      // Its old port may still be busy with the last of its connections.
      server = await eventually(() => startPubsubServer({ dataDir, seed, port }))
    },
    close: async () => {
      await server.stop()
      await rm(dataDir, { recursive: true, force: true })
    },
  }
}

async function openKafka(target: Target): Promise<Target> {
  const cluster = await startKafka()
  const admin = createKafkaAdmin({ brokers: cluster.brokers })
  return {
    ...target,
    transport: { kind: 'kafka', brokers: cluster.brokers },
    makeTopic: ({ topic: name }) => admin.createTopic({ name, partitions: 4, replicationFactor: 1, settings: {} }),
    unsettled: async (topic, consumer) => {
      const [ends, committed] = [await admin.endOffsets(topic), await admin.committedOffsets(topic, `${topic}.${consumer}`)]
      return [...ends].reduce((sum, [partition, end]) => sum + Number(end - (committed.get(partition) ?? 0n)), 0)
    },
    close: async () => {
      await admin.close()
      await cluster.stop()
    },
  }
}
