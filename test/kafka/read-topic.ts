/** Reads a whole topic without a group: what stands where, for whoever judges offsets or order. */
import type { KafkaClient } from '../../src/transport/kafka/client/kafka-client.ts'
import { fromRecord } from '../../src/transport/kafka/client/wire/event-records.ts'
import type { IncomingMessage } from '../../src/transport/port/transport.ts'

/** All that a topic has, partition by partition. */
export async function readTopic(client: KafkaClient, topic: string): Promise<readonly IncomingMessage[]> {
  const { partitions } = await client.describeTopic(topic)
  const ends = await client.listOffsets({ topic, partitions: partitions.map((_, i) => i), at: 'latest' })
  const bounds = { maxWaitMs: 100, maxBytes: 1_000_000, maxPartitionBytes: 1_000_000 }
  const read: IncomingMessage[] = []
  for (const [partition, end] of ends) {
    const leader = partitions[partition]?.leader ?? 0
    for (let next = 0n; next < end;) {
      const [found] = await client.fetch({ leader, topic, from: new Map([[partition, next]]), ...bounds })
      if (found === undefined || found.error !== undefined) throw new Error(`${topic} cannot be read: ${found?.error}.`)
      for (const record of found.records) read.push(fromRecord(record, { topic, partition }))
      next = found.nextOffset
    }
  }
  return read
}

/** Event ids by partition and offset. */
export function eventsByPlace(messages: readonly IncomingMessage[]): ReadonlyMap<number, ReadonlyMap<bigint, string>> {
  const places = new Map<number, Map<bigint, string>>()
  for (const { position, attributes } of messages) {
    const partition = Number(position?.partition)
    const events = places.get(partition) ?? new Map<bigint, string>()
    places.set(partition, events.set(position?.offset ?? 0n, attributes['event_id'] ?? ''))
  }
  return places
}
