/**
 * Kafka as a transport: an idempotent producer that waits for all in-sync replicas, and a consumer that commits only what is
 * settled, without gaps, and never for a partition that it has lost.
 *
 * Topics must exist. A message goes to the partition that Kafka's own Java producer would choose for its ordering key. The group
 * of a consumer is `<topic>.<consumer>`, unless `groupId` says otherwise.
 */
import { WaybillError } from '../../core/errors.ts'
import type { AnyStream } from '../../core/stream.ts'
import type { OutgoingMessage, PublishOutcome, SeekTarget, Transport } from '../transport.ts'
import type { KafkaClient } from './kafka-client.ts'
import { kafkaErrorName } from './kafka-errors.ts'
import { resolveKafkaOptions, type KafkaOptions } from './kafka-options.ts'
import { KafkaPublisher } from './kafka-publisher.ts'
import { KafkaReceiver } from './kafka-receiver.ts'
import { TopicDirectory } from './topic-directory.ts'

/** A transport over Kafka. It connects at the first use. */
export function kafka(options: KafkaOptions): Transport {
  const settings = resolveKafkaOptions(options)
  const { clock, maxBytes, groupId, instanceId, client: openClient } = settings
  const client = openClient()
  const topics = new TopicDirectory({ ...settings, client, nowMs: () => clock.monotonicMs() })
  const publisher = new KafkaPublisher({ ...settings, client, topics, isTombstone: tombstonesOf(settings.compacted) })
  const receivers = new Set<KafkaReceiver>()
  const publishing = new Set<Promise<readonly PublishOutcome[]>>()
  return {
    name: 'kafka',
    maxBytes,
    publish: (messages, publishOptions) => {
      const call = publisher.publish(messages, publishOptions)
      publishing.add(call)
      return call.finally(() => publishing.delete(call))
    },
    receive: async (receiveOptions) => {
      const group = groupId(receiveOptions.topic, receiveOptions.consumer)
      if (instanceId !== undefined) checkOnePlace(receivers, { topic: receiveOptions.topic, group })
      const receiver = new KafkaReceiver({ ...settings, ...receiveOptions, client: openClient(), group })
      receivers.add(receiver)
      try {
        await receiver.open()
      } catch (error) {
        receivers.delete(receiver)
        throw error
      }
      return { close: (aborting) => receiver.close(aborting).finally(() => receivers.delete(receiver)) }
    },
    seek: ({ topic, consumer, to }) => seek(client, { topic, group: groupId(topic, consumer), to }),
    close: async () => {
      publisher.close()
      await Promise.all([...receivers].map((receiver) => receiver.close(AbortSignal.abort())))
      await Promise.allSettled(publishing)
      await client.close()
    },
  }
}

/** A group knows a static member by its name alone: a second one under the name would throw the first out. */
function checkOnePlace(receivers: Iterable<KafkaReceiver>, { topic, group }: Pick<KafkaReceiver, 'topic' | 'group'>): void {
  for (const other of receivers) {
    if (other.group !== group || other.topic === topic) continue
    throw new WaybillError(
      'REFUSED',
      `kafka.instanceId gives this process one place in group ${group}, and the receiver of ${other.topic} has it. Leave instanceId out, or let groupId name a group for each topic.`,
    )
  }
}

/** Sets the offsets of a group that nobody is in. */
async function seek(
  client: KafkaClient,
  { topic, group, to }: { readonly topic: string; readonly group: string; readonly to: SeekTarget },
): Promise<void> {
  const partitions = (await client.describeTopic(topic)).partitions.map((_, partition) => partition)
  const found = await client.listOffsets({ topic, partitions, at: to })
  // A partition that has nothing so late is read from its end.
  const ends = to === 'earliest' ? found : await client.listOffsets({ topic, partitions, at: 'latest' })
  const offsets = new Map(partitions.map((partition) => [partition, found.get(partition) ?? ends.get(partition) ?? 0n]))
  try {
    await client.commitOffsets({ member: { group }, topic, offsets })
  } catch (error) {
    const name = kafkaErrorName(error)
    if (name !== 'UNKNOWN_MEMBER_ID' && name !== 'ILLEGAL_GENERATION' && name !== 'REBALANCE_IN_PROGRESS') throw error
    throw new WaybillError(
      'REFUSED',
      `Kafka moves a consumer group only while nobody is in it, and ${group} has members. Stop or pause the consumer, and seek again. A member with an instanceId is in the group until its sessionTimeoutMs is over after that.`,
      { cause: error },
    )
  }
}

function tombstonesOf(streams: readonly AnyStream[]): (message: OutgoingMessage) => boolean {
  const known = new Set(
    streams.flatMap(({ topic, aggregateType, events }) =>
      Object.values(events).flatMap(({ kind, name }) => (kind === 'tombstone' ? [`${topic} ${aggregateType} ${name}`] : [])),
    ),
  )
  if (known.size === 0) return () => false
  return ({ topic, attributes }) => known.has(`${topic} ${attributes['aggregate_type']} ${attributes['event_type']}`)
}
