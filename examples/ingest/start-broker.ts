/**
 * The broker of the example: the Kafka of KAFKA_BROKERS, a Kafka of its own where the machine has Java and Maven, or the local
 * server of the Pub/Sub protocol. INGEST_BROKER=pubsub asks for the last.
 */
import { createKafkaAdmin } from 'waybill/kafka'
import { applyProvision, createPubsubAdmin, desiredResources, planProvision } from 'waybill/pubsub'
import { missingForKafka, onFreePort, startChild, startKafka, type Child } from 'waybill/testing'
import { readings } from './readings.ts'

export interface Broker {
  readonly name: string
  /** How service and consumer find it. */
  readonly env: Readonly<Record<string, string>>
  /** SIGKILL, and started again with what it had; `undefined` for one that is not ours. */
  readonly kill: (() => Promise<void>) | undefined
  stop(): Promise<void>
}

export async function startBroker({ dataDir, env }: { dataDir: string; env: Readonly<Record<string, string>> }): Promise<Broker> {
  const { KAFKA_BROKERS, INGEST_BROKER } = process.env
  if (KAFKA_BROKERS !== undefined && INGEST_BROKER !== 'pubsub') return await givenKafka(KAFKA_BROKERS)
  const isKafka = INGEST_BROKER === 'kafka' || (INGEST_BROKER === undefined && missingForKafka() === undefined)
  return isKafka ? await ownKafka() : await pubsubServer(dataDir, env)
}

async function givenKafka(brokers: string): Promise<Broker> {
  await createTopic(brokers)
  return { name: `the Kafka at ${brokers}`, env: { KAFKA_BROKERS: brokers }, kill: undefined, stop: async () => {} }
}

async function ownKafka(): Promise<Broker> {
  const cluster = await startKafka()
  const brokers = cluster.brokers.join(',')
  await createTopic(brokers)
  const node = cluster.node(1)
  return {
    name: 'Kafka',
    env: { KAFKA_BROKERS: brokers },
    kill: async () => {
      await node.kill()
      await node.start()
    },
    stop: () => cluster.stop(),
  }
}

async function createTopic(brokers: string): Promise<void> {
  const admin = createKafkaAdmin({ brokers: brokers.split(',') })
  const isThere = await admin.describeTopic(readings.topic).then(
    ({ partitions }) => partitions.length > 0,
    () => false,
  )
  if (!isThere) await admin.createTopic({ name: readings.topic, partitions: 6, replicationFactor: 1, settings: {} })
  await admin.close()
}

async function pubsubServer(dataDir: string, env: Readonly<Record<string, string>>): Promise<Broker> {
  const start = async (port: number): Promise<Child> => {
    const child = startChild(new URL('pubsub-broker.ts', import.meta.url), {
      env: { ...env, PORT: String(port), DATA_DIR: dataDir },
    })
    await child.message((message) => message === 'ready')
    return child
  }
  let child: Child | undefined
  const port = await onFreePort(async (free) => {
    child = await start(free)
    return free
  })
  const emulatorHost = `127.0.0.1:${port}`
  const admin = createPubsubAdmin({ projectId: 'ingest', emulatorHost })
  // A consumer that was killed gives its messages back when their deadline is over: the shortest that there is.
  const consumers = [{ name: 'readings', streams: [readings] }]
  const desired = desiredResources({ streams: [readings], consumers, ackDeadlineSeconds: 10 })
  await applyProvision(admin, await planProvision(admin, desired))
  await admin.close()
  return {
    name: 'a local Pub/Sub server',
    env: { BROKER: emulatorHost },
    kill: async () => {
      await child?.kill()
      child = await start(port)
    },
    stop: async () => void (await child?.kill()),
  }
}
