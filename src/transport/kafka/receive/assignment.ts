/**
 * Who reads which partition: of each topic neighbouring partitions to each member that reads it, in the order of the members'
 * names, as even as can be. The same members get the same partitions whoever hands them out.
 */
import type { GroupMemberId, TopicPartitions } from '../client/kafka-client.ts'

/** @param counts how many partitions each topic has; of one that is not in it nothing is handed out */
export function assignPartitions(
  members: readonly GroupMemberId[],
  counts: ReadonlyMap<string, number>,
): ReadonlyMap<string, TopicPartitions> {
  const ordered = members.toSorted((a, b) => (nameOf(a) < nameOf(b) ? -1 : 1))
  const assigned = new Map(ordered.map(({ memberId }) => [memberId, new Map<string, readonly number[]>()]))
  for (const [topic, count] of counts) {
    const readers = ordered.filter(({ topics }) => topics.includes(topic))
    const start = (place: number): number => Math.ceil((count * place) / readers.length)
    readers.forEach(({ memberId }, place) => {
      const partitions = Array.from({ length: start(place + 1) - start(place) }, (_, i) => start(place) + i)
      assigned.get(memberId)?.set(topic, partitions)
    })
  }
  return assigned
}

/** A static member keeps its place when it comes back under a new member id. */
function nameOf({ instanceId, memberId }: GroupMemberId): string {
  return instanceId === undefined ? `m ${memberId}` : `i ${instanceId}`
}
