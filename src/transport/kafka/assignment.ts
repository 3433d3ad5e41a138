/**
 * Who reads which partition: neighbouring partitions to each member, in the order of the members' names, as even as can be.
 * The same members get the same partitions whoever hands them out.
 */
import type { GroupMemberId } from './kafka-client.ts'

export function assignPartitions(members: readonly GroupMemberId[], partitions: number): ReadonlyMap<string, readonly number[]> {
  // A static member keeps its place when it comes back under a new member id.
  const nameOf = ({ instanceId, memberId }: GroupMemberId): string =>
    instanceId === undefined ? `m ${memberId}` : `i ${instanceId}`
  const ordered = members.toSorted((a, b) => (nameOf(a) < nameOf(b) ? -1 : 1))
  const start = (place: number): number => Math.ceil((partitions * place) / ordered.length)
  return new Map(
    ordered.map(({ memberId }, place) => [
      memberId,
      Array.from({ length: start(place + 1) - start(place) }, (_, i) => start(place) + i),
    ]),
  )
}
