/**
 * Kafka as a transport: an idempotent producer that waits for all in-sync replicas, and a consumer that commits only what is
 * settled, without gaps, and never for a partition that it has lost.
 *
 * Topics must exist. A message goes to the partition that Kafka's own Java producer would choose for its ordering key. The group
 * of a consumer is `<topic>.<consumer>`, unless `groupId` says otherwise.
 */
import { WaybillError } from '../../core/errors.ts'
import { voidEventType } from '../../core/event/event.ts'
import type { AnyStream } from '../../core/event/stream.ts'
import type { OutgoingMessage, PublishOutcome, SeekTarget, Transport } from '../port/transport.ts'
import type { CommitOffsetsRequest, KafkaClient } from './client/kafka-client.ts'
import { kafkaErrorName } from './client/errors.ts'
import { resolveKafkaOptions, type KafkaOptions } from './kafka-options.ts'
import { KafkaPublisher } from './publish/publisher.ts'
import type { Compaction } from './client/wire/event-records.ts'
import { KafkaReceiver } from './receive/receiver.ts'
import { TopicDirectory } from './publish/topic-directory.ts'

/** A transport over Kafka. It connects at the first use. */
export function kafka(options: KafkaOptions): Transport {
  const settings = resolveKafkaOptions(options)
  const { clock, maxBytes, groupId, instanceId, client: openClient } = settings
  const client = openClient()
  const topics = new TopicDirectory({ ...settings, client, nowMs: () => clock.monotonicMs() })
  const publisher = new KafkaPublisher({ ...settings, client, topics, compactionOf: compactionOf(settings.compacted) })
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
    rewind: ({ topic, consumer, sinceMs }) => rewind(client, { topic, group: groupId(topic, consumer), to: { sinceMs } }),
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

interface Move {
  readonly topic: string
  readonly group: string
  readonly to: SeekTarget
}

async function seek(client: KafkaClient, move: Move): Promise<void> {
  await setOffsets(client, move, await offsetsAt(client, move))
}

/** Moves the group back only. Where it has committed nothing it begins with the earliest, and does so still. */
async function rewind(client: KafkaClient, move: Move): Promise<void> {
  const { topic, group } = move
  const { topicId, offsets } = await offsetsAt(client, move)
  const committed = await client.committedOffsets({ group, topic, topicId, partitions: [...offsets.keys()] })
  const lower = [...committed].map(([partition, own]): [number, bigint] => {
    const offset = offsets.get(partition) ?? own
    return [partition, offset < own ? offset : own]
  })
  if (lower.length > 0) await setOffsets(client, move, { topicId, offsets: new Map(lower) })
}

/** Where partitions are begun with, and of which topic that is: it counts for no other of the name. */
type TopicOffsets = Pick<CommitOffsetsRequest, 'topicId' | 'offsets'>

/** The offset of each partition at the target. One that has nothing so late is read from its end, asked for first: what is appended meanwhile is newer. */
async function offsetsAt(client: KafkaClient, { topic, to }: Move): Promise<TopicOffsets> {
  const described = await client.describeTopic(topic)
  const partitions = described.partitions.map((_, partition) => partition)
  const ends = to === 'earliest' ? undefined : await client.listOffsets({ topic, partitions, at: 'latest' })
  const found = await client.listOffsets({ topic, partitions, at: to })
  const offsets = new Map(partitions.map((partition) => [partition, found.get(partition) ?? ends?.get(partition) ?? 0n]))
  return { topicId: described.id, offsets }
}

/** Sets the offsets of a group that nobody is in. */
async function setOffsets(client: KafkaClient, { topic, group }: Move, offsets: TopicOffsets): Promise<void> {
  try {
    await client.commitOffsets({ member: { group }, topic, ...offsets })
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

function compactionOf(streams: readonly AnyStream[]): (message: OutgoingMessage) => Compaction {
  if (streams.length === 0) return () => undefined
  const known = new Map<string, Compaction>()
  for (const { topic, aggregateType, events } of streams) {
    known.set(`${topic} ${aggregateType} ${voidEventType}`, 'void')
    for (const { kind, name } of Object.values(events))
      if (kind === 'tombstone') known.set(`${topic} ${aggregateType} ${name}`, 'tombstone')
  }
  return ({ topic, attributes }) => known.get(`${topic} ${attributes['aggregate_type']} ${attributes['event_type']}`)
}
