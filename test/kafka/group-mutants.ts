/**
 * Known ways to commit wrongly, each as other clients were seen to do it.
 */
import type { KafkaMember } from '../../src/transport/kafka/client/kafka-client.ts'
import type { GroupMutant } from './group-scenario.ts'

/** What was fetched counts as done. */
const autoCommit: GroupMutant = {
  name: 'auto-commit',
  found: /committed, but processed up to/,
  client: (client) => {
    let member: KafkaMember | undefined
    return {
      ...client,
      syncGroup: (request) => {
        member = request.member
        return client.syncGroup(request)
      },
      fetch: async (request) => {
        const fetched = await client.fetch(request)
        const offsets = new Map(
          fetched.filter(({ records }) => records.length > 0).map((each) => [each.partition, each.nextOffset]),
        )
        if (member !== undefined && offsets.size > 0) {
          await client.commitOffsets({ member, topic: request.topic, offsets }).catch(() => undefined)
        }
        return fetched
      },
    }
  },
}

/** What was handed over counts as done, and the database comes later. */
const commitBeforeDatabase: GroupMutant = {
  name: 'commit before the database',
  found: /committed, but processed up to/,
  onDelivery: (delivery) => void delivery.ack(),
}

/** The newest generation is used for whatever was read in an older one. */
const commitAfterRevoke: GroupMutant = {
  name: 'commit after revoke',
  found: /committed by \S+, owned by/,
  client: (client, broker) => ({
    ...client,
    commitOffsets: async (request) => {
      const { member } = request
      if (!('memberId' in member)) return client.commitOffsets(request)
      const memberId = broker.memberIds().includes(member.memberId) ? member.memberId : (broker.memberIds()[0] ?? '')
      return client.commitOffsets({ ...request, member: { ...member, memberId, generation: broker.generation } })
    },
  }),
}

/** The highest that is done counts for all before it. */
function nonContiguousCommit(): GroupMutant {
  const highest = new Map<number, bigint>()
  return {
    name: 'non-contiguous commit',
    found: /committed, but processed up to/,
    onDelivery: (delivery) => {
      const ack = delivery.ack.bind(delivery)
      const { partition = '', offset = 0n } = delivery.message.position ?? {}
      delivery.ack = () => {
        const next = offset + 1n
        if (next > (highest.get(Number(partition)) ?? 0n)) highest.set(Number(partition), next)
        return ack()
      }
    },
    client: (client) => ({
      ...client,
      commitOffsets: (request) => {
        const offsets = new Map([...request.offsets].map(([partition, offset]) => [partition, highest.get(partition) ?? offset]))
        return client.commitOffsets({ ...request, offsets })
      },
    }),
  }
}

export const groupMutants: readonly GroupMutant[] = [autoCommit, commitBeforeDatabase, commitAfterRevoke, nonContiguousCommit()]
