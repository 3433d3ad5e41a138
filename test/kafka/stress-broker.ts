/**
 * Kafka for the relay stress, with a reader that follows all that lands, in the order of each partition's log.
 */
import { randomBytes } from 'node:crypto'
import { eventually } from '../../src/testing/kit/eventually.ts'
import { createKafkaAdmin } from '../../src/transport/kafka/admin.ts'
import { kafka } from '../../src/transport/kafka/kafka.ts'
import type { Log } from '../../src/testing/history/entry.ts'
import { logEntry } from '../../src/testing/history/message-entries.ts'
import type { BrokerServerOptions } from '../outbox/stress/broker-server.ts'
import type { StressBroker } from '../outbox/stress/stress.ts'
import { startJudge, topicMaxBytes } from './judge.ts'

export interface KafkaStressOptions extends BrokerServerOptions {
  readonly brokers: readonly string[]
  readonly replicationFactor: number
  readonly minInsyncReplicas: number
  /** How often each fault has struck. */
  readonly struck: Readonly<Record<string, number>>
}

/** A cluster whose nodes were killed takes its time. */
const patience = { timeoutMs: 180_000, intervalMs: 100 }

export async function startKafkaStressBroker(options: KafkaStressOptions): Promise<StressBroker & { readonly topic: string }> {
  const { brokers, replicationFactor, minInsyncReplicas, rejects, struck } = options
  const settings = { 'max.message.bytes': String(topicMaxBytes), 'min.insync.replicas': String(minInsyncReplicas) }
  const admin = createKafkaAdmin({ brokers })
  // A node that was killed before may not be back for all others. A topic that is half made stays behind, under its own name.
  const topic = await eventually(async () => {
    const name = `stress-${randomBytes(4).toString('hex')}.events`
    await admin.createTopic({ name, partitions: 6, replicationFactor, settings })
    return name
  }, patience)
  const judge = await startJudge({ brokers, minInsyncReplicas, topic }, rejects)
  const landed: Log[] = []
  const different = new Set<string>()
  const places = new Set<string>()
  const transport = kafka({ brokers, heartbeatMs: 200, sessionTimeoutMs: 30_000 })
  const receiver = await transport.receive({
    topic,
    consumer: 'follower',
    maxMessages: 5_000,
    maxBytes: 50_000_000,
    onError: () => {},
    onDelivery: (delivery) => {
      const { messageId } = delivery.message
      // What comes again, because the follower lost its place, stands in the log but once.
      if (!places.has(messageId)) {
        places.add(messageId)
        const entry = logEntry(delivery.message)
        landed.push(entry)
        different.add(entry.event)
      }
      void delivery.ack()
    },
  })
  const hasAll = async (): Promise<boolean> => {
    const ends = await admin.endOffsets(topic)
    return places.size >= [...ends.values()].reduce((sum, end) => sum + Number(end), 0)
  }
  return {
    protocol: 'kafka',
    topic,
    port: judge.port,
    landed,
    struck,
    arrived: () => different.size,
    calm: () => {},
    close: async () => {
      await eventually(hasAll, patience)
      await receiver.close(AbortSignal.timeout(5_000))
      await transport.close()
      await admin.close()
      await judge.close()
    },
  }
}
