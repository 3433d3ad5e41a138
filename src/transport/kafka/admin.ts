/**
 * What is done to a Kafka cluster beside publishing and receiving: making topics, and looking how far a group is.
 */
import type { KafkaClient, KafkaTopic, KafkaTopicSettings } from './client/kafka-client.ts'
import { systemClock } from '../../core/service/clock.ts'
import { connectKafka, type KafkaConnectionOptions } from './client/connect.ts'
import { kafkaError } from './client/errors.ts'

export interface KafkaAdmin {
  /** Makes a topic; resolves when every node that answers knows leaders for all its partitions. */
  createTopic(topic: KafkaTopicSettings): Promise<void>
  describeTopic(topic: string): Promise<KafkaTopic>
  /** What a group has committed, by partition. */
  committedOffsets(topic: string, group: string): Promise<ReadonlyMap<number, bigint>>
  /** The ends of a topic's partitions. */
  endOffsets(topic: string): Promise<ReadonlyMap<number, bigint>>
  close(): Promise<void>
}

export function createKafkaAdmin(options: KafkaConnectionOptions): KafkaAdmin {
  return adminOf(connectKafka(options))
}

export function adminOf(client: KafkaClient): KafkaAdmin {
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
const patienceMs = 30_000

/**
 * The controller has the topic at once, the other nodes a moment later. Who is asked takes turns, so each is to say that it
 * knows; one that still does not when time is up has trouble of its own, and the others will do.
 */
async function untilKnown(client: KafkaClient, name: string): Promise<void> {
  const deadline = systemClock.monotonicMs() + patienceMs
  let isKnownToSome = false
  for (let inTurn = 0; inTurn < client.addresses();) {
    const isKnown = await client.describeTopic(name).then(
      ({ partitions }) => partitions.length > 0 && partitions.every(({ leader }) => leader !== undefined),
      () => false,
    )
    isKnownToSome ||= isKnown
    inTurn = isKnown ? inTurn + 1 : 0
    if (isKnown) continue
    if (systemClock.monotonicMs() < deadline) await systemClock.sleep(lookMs)
    else if (isKnownToSome) return
    else throw kafkaError('LEADER_NOT_AVAILABLE', `create topic ${name}`)
  }
}
