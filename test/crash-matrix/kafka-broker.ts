/**
 * A topic of a cell's own on the Kafka that all cells share, with a proxy before it for the process that is crashed.
 *
 * What the group has committed is looked at from outside while that process stands still: an offset ahead of the database is a
 * loss that only a crash would show, and the look shows it without.
 */
import { randomUUID } from 'node:crypto'
import { eventually } from '../../src/testing/kit/eventually.ts'
import { startFaultProxy } from '../../src/testing/faults/fault-proxy.ts'
import type { Log } from '../../src/testing/history/entry.ts'
import { logEntry } from '../../src/testing/history/message-entries.ts'
import { connectKafka } from '../../src/transport/kafka/client/connect.ts'
import { createKafkaAdmin } from '../../src/transport/kafka/admin.ts'
import { judgeLooks, type Look } from '../kafka/offset-observer.ts'
import { eventsByPlace, readTopic } from '../kafka/read-topic.ts'
import type { CellBroker } from './broker.ts'
import type { SharedKafka } from './shared-kafka.ts'
import { topicMaxBytes, type KafkaAddress } from './transport-to.ts'

const partitions = 2

export async function openKafkaBroker({ broker, sessionMs }: SharedKafka): Promise<CellBroker> {
  const id = randomUUID()
  const [host = '', port = ''] = broker.split(':')
  const patient = { brokers: [broker], connectTimeoutMs: 30_000, requestTimeoutMs: 30_000 }
  const admin = createKafkaAdmin(patient)
  const client = connectKafka(patient)
  const settings = { 'max.message.bytes': String(topicMaxBytes) }
  // One that is half made stays behind, under its own name.
  const topic = await eventually(async () => {
    const name = `crash-${randomUUID()}.events`
    await admin.createTopic({ name, partitions, replicationFactor: 1, settings })
    return name
  })
  const proxy = await startFaultProxy({ target: { host, port: Number(port) } })
  const address: KafkaAddress = { broker, topic, sessionMs }
  const group = `${topic}.ledger`
  // A new Kafka makes the topic that it keeps offsets in when somebody first asks for some, and says so until it is there.
  await eventually(() => admin.committedOffsets(topic, group), { intervalMs: 50 })
  const looks: Look[] = []
  const processed = new Set<string>()
  return {
    id,
    address,
    crashedAddress: { ...address, broker: `${proxy.host}:${proxy.port}` },
    proxy,
    log: async () => (await readTopic(client, topic)).map((message): Log => ({ ...logEntry(message), source: 'broker' })),
    refused: () => proxy.refused,
    refuse: (isRefusing) => {
      if (!isRefusing) return proxy.heal()
      proxy.refuse()
      proxy.cut()
    },
    // The process is told to send something that is too large.
    reject: () => {},
    unacked: async () => {
      const [ends, committed] = await Promise.all([admin.endOffsets(topic), admin.committedOffsets(topic, group)])
      return [...ends].reduce((sum, [partition, end]) => sum + Number(end - (committed.get(partition) ?? 0n)), 0)
    },
    look: async (events) => {
      const committed = await admin.committedOffsets(topic, group)
      for (const event of await events()) processed.add(event)
      looks.push({ committed, processed: processed.size })
    },
    aheadOfDatabase: async () => judgeLooks({ looks, processed: [...processed] }, eventsByPlace(await readTopic(client, topic))),
    close: async () => {
      await Promise.all([admin.close(), client.close(), proxy.stop()])
    },
  }
}
