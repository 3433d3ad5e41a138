/**
 * What is done to a Kafka cluster beside publishing and receiving: making topics, and looking how far a group is.
 */
import type { KafkaClient, KafkaTopic, KafkaTopicSettings } from './kafka-client.ts'
import { systemClock } from '../../core/clock.ts'
import { connectKafka, type KafkaConnectionOptions } from './connect-kafka.ts'
import { kafkaError } from './kafka-errors.ts'

export interface KafkaAdmin {
  /** Makes a topic; resolves when the cluster knows leaders for all its partitions. */
  createTopic(topic: KafkaTopicSettings): Promise<void>
  describeTopic(topic: string): Promise<KafkaTopic>
  /** What a group has committed, by partition. */
  committedOffsets(topic: string, group: string): Promise<ReadonlyMap<number, bigint>>
  /** The ends of a topic's partitions. */
  endOffsets(topic: string): Promise<ReadonlyMap<number, bigint>>
  close(): Promise<void>
}

export function createKafkaAdmin(options: KafkaConnectionOptions): KafkaAdmin {
  const client: KafkaClient = connectKafka(options)
  const partitionsOf = async (topic: string): Promise<readonly number[]> =>
    (await client.describeTopic(topic)).partitions.map((_, partition) => partition)
  return {
    createTopic: async (topic) => {
      await client.createTopic(topic)
      await untilKnown(client, topic.name)
    },
    describeTopic: (topic) => client.describeTopic(topic),
    committedOffsets: async (topic, group) => client.committedOffsets({ group, topic, partitions: await partitionsOf(topic) }),
    endOffsets: async (topic) => client.listOffsets({ topic, partitions: await partitionsOf(topic), at: 'latest' }),
    close: () => client.close(),
  }
}

const lookMs = 50
const looks = 200

/** The controller has the topic at once, the other nodes a moment later. */
async function untilKnown(client: KafkaClient, name: string): Promise<void> {
  for (let look = 1; ; look += 1) {
    const isKnown = await client.describeTopic(name).then(
      ({ partitions }) => partitions.length > 0 && partitions.every(({ leader }) => leader !== undefined),
      () => false,
    )
    if (isKnown) return
    if (look === looks) throw kafkaError('LEADER_NOT_AVAILABLE', `create topic ${name}`)
    await systemClock.sleep(lookMs)
  }
}
