/**
 * The requests of consumer groups: membership and offsets, asked of the group's coordinator.
 *
 * The coordinator is looked up when first needed, and again when the node is no longer the one or does not answer.
 */
import { noEpoch, type ClientParts, type Coded, type Purpose, type Request } from './connections.ts'
import type { KafkaClient, KafkaMember, TopicPartitions } from './kafka-client.ts'
import { kafkaError, kafkaErrorName } from './errors.ts'

interface RawJoined extends Coded {
  readonly memberId: string
  readonly generationId: number
  readonly leader: string
  readonly members: readonly {
    readonly memberId: string
    readonly groupInstanceId?: string | null
    readonly metadata: Buffer
  }[]
}

type GroupCalls = 'joinGroup' | 'syncGroup' | 'heartbeat' | 'leaveGroup' | 'commitOffsets' | 'committedOffsets'

/** Kafka's own name, so that its tools show the assignments. */
const protocol = { type: 'consumer', name: 'range' } as const

export function grouping(parts: ClientParts): Pick<KafkaClient, GroupCalls> {
  const coordinated = coordinatorOf(parts)
  const { check } = parts
  return {
    ...joining(parts, coordinated),
    ...committing(parts, coordinated),
    heartbeat: async ({ group, generation, memberId, instanceId }, timeoutMs) => {
      const args = [group, generation, memberId, instanceId ?? null]
      const what = `heartbeat in ${group}`
      await check(await coordinated<Coded>(group, { purpose: 'group', api: 'heartbeatV4', args, what, timeoutMs }), what)
    },
    leaveGroup: async ({ group, memberId, instanceId }) => {
      const args = [group, [{ memberId, groupInstanceId: instanceId ?? null }]]
      // Not behind a join that may still wait.
      await coordinated(group, { purpose: 'control', api: 'leaveGroupV4', args, what: `leave ${group}` })
    },
  }
}

function joining({ check, connections }: ClientParts, coordinated: Coordinated): Pick<KafkaClient, 'joinGroup' | 'syncGroup'> {
  return {
    joinGroup: async ({ group, topic, memberId, instanceId, sessionTimeoutMs, rebalanceTimeoutMs, edition, onMemberId }) => {
      const { encodeConsumerProtocolSubscription, decodeConsumerProtocolSubscription } = await connections.sdk()
      const metadata = encodeConsumerProtocolSubscription({ version: 1, topics: [topic], userData: `edition ${edition}` })
      const protocols = [{ name: protocol.name, metadata }]
      const what = `join ${group}`
      const timeoutMs = rebalanceTimeoutMs + 10_000
      const join = (id: string): Promise<RawJoined> => {
        const args = [group, sessionTimeoutMs, rebalanceTimeoutMs, id, instanceId ?? null, protocol.type, protocols, '']
        return coordinated<RawJoined>(group, { purpose: 'group', api: 'joinGroupV7', args, timeoutMs, what })
      }
      let joined = await join(memberId)
      // A first join is answered with the id to join with.
      if (joined.errorCode === memberIdRequired) {
        onMemberId(joined.memberId)
        joined = await join(joined.memberId)
      }
      await check(joined, what)
      const members = joined.members.map((each) => ({
        memberId: each.memberId,
        instanceId: each.groupInstanceId ?? undefined,
        topics: decodeConsumerProtocolSubscription(each.metadata).topics,
      }))
      const isLeader = joined.leader === joined.memberId
      return { memberId: joined.memberId, generation: joined.generationId, members: isLeader ? members : undefined }
    },
    syncGroup: async ({ member, topic, assignments }) => {
      const { encodeConsumerProtocolAssignment, decodeConsumerProtocolAssignment } = await connections.sdk()
      const { group, generation, memberId, instanceId } = member
      const parts = [...(assignments ?? [])].map(([id, own]) => ({
        memberId: id,
        assignment: encodeConsumerProtocolAssignment({
          version: 1,
          assignedPartitions: [...own].map(([name, partitions]) => ({ topic: name, partitions: [...partitions] })),
          userData: `partitions ${handedOutOf([...own.keys()], assignments)}`,
        }),
      }))
      const what = `sync ${group}`
      const args = [group, generation, memberId, instanceId ?? null, protocol.type, protocol.name, parts]
      const answer = await coordinated<RawSynced>(group, { purpose: 'group', api: 'syncGroupV5', args, what })
      await check(answer, what)
      const { assignedPartitions, userData } = decodeConsumerProtocolAssignment(answer.assignment)
      const partitions = assignedPartitions.filter((each) => each.topic === topic).flatMap((each) => each.partitions)
      return { partitions, handedOut: handedOutIn(userData) }
    },
  }
}

/** How many partitions of these topics all members have together. */
function handedOutOf(topics: readonly string[], assignments: ReadonlyMap<string, TopicPartitions> = new Map()): number {
  const counts = [...assignments.values()].flatMap((own) => topics.map((topic) => own.get(topic)?.length ?? 0))
  return counts.reduce((sum, count) => sum + count, 0)
}

/** Other clients in the group leave it out, or say something else there. */
function handedOutIn(userData: Uint8Array | null): number | undefined {
  const [, count] = /^partitions (\d+)$/.exec(Buffer.from(userData ?? []).toString()) ?? []
  return count === undefined ? undefined : Number(count)
}

interface RawSynced extends Coded {
  readonly assignment: Buffer
}

const memberIdRequired = 79

interface RawCommitted {
  readonly topics: readonly { readonly partitions: readonly (Coded & { readonly partitionIndex: number })[] }[]
}

interface RawGroups {
  readonly groups: readonly (Coded & {
    readonly topics: readonly {
      readonly partitions: readonly (Coded & {
        readonly partitionIndex: number
        readonly committedOffset: bigint
        readonly metadata: string | null
      })[]
    }[]
  })[]
}

/**
 * What is kept with an offset: which topic it is of, and in which cluster. An offset from another cluster was translated by who
 * brought it here, and is good whatever the topic's id was there.
 */
function markOf(topicId: string | undefined, cluster: string): string | null {
  return topicId === undefined ? null : `topic ${topicId} of ${cluster}`
}

function isOfAnother(mark: string | null, topicId: string | undefined, cluster: string): boolean {
  const [, markedId, markedCluster] = /^topic (\S+) of (.*)$/.exec(mark ?? '') ?? []
  return topicId !== undefined && markedId !== undefined && markedCluster === cluster && markedId !== topicId
}

function committing(
  { check, connections }: ClientParts,
  coordinated: Coordinated,
): Pick<KafkaClient, 'commitOffsets' | 'committedOffsets'> {
  return {
    commitOffsets: async ({ member, topic, topicId, offsets }) => {
      const who: Pick<KafkaMember, 'generation' | 'memberId' | 'instanceId'> =
        'memberId' in member ? member : { generation: -1, memberId: '', instanceId: undefined }
      const partitions = [...offsets].map(([partitionIndex, committedOffset]) => ({
        partitionIndex,
        committedOffset,
        committedLeaderEpoch: noEpoch,
        committedMetadata: markOf(topicId, connections.cluster),
      }))
      const what = `commit of ${member.group}`
      const args = [member.group, who.generation, who.memberId, who.instanceId ?? null, [{ name: topic, partitions }]]
      const answer = await coordinated<RawCommitted>(member.group, { purpose: 'group', api: 'offsetCommitV8', args, what })
      for (const each of answer.topics.flatMap((one) => one.partitions)) await check(each, what)
    },
    committedOffsets: async ({ group, topic, topicId, partitions }) => {
      const what = `committed offsets of ${group}`
      const args = [[{ groupId: group, topics: [{ name: topic, partitionIndexes: [...partitions] }] }], true]
      const answer = await coordinated<RawGroups>(group, { purpose: 'control', api: 'offsetFetchV8', args, what })
      for (const each of answer.groups) await check(each, what)
      const found = answer.groups.flatMap((each) => each.topics.flatMap((one) => one.partitions))
      for (const each of found) await check(each, what)
      return new Map(
        found
          .filter(
            ({ committedOffset, metadata }) => committedOffset >= 0n && !isOfAnother(metadata, topicId, connections.cluster),
          )
          .map((each) => [each.partitionIndex, each.committedOffset] as const),
      )
    },
  }
}

type Coordinated = <Response>(
  group: string,
  request: Omit<Request, 'timeoutMs' | 'node'> & { readonly purpose: Purpose; readonly timeoutMs?: number },
) => Promise<Response>

interface RawCoordinators {
  readonly coordinators: readonly (Coded & { readonly nodeId: number; readonly host: string; readonly port: number })[]
}

const groupKey = 0

/** Asks the group's coordinator, which is looked up first, and again when it is no longer the one. */
function coordinatorOf({ ask, check, connections, nameOf }: ClientParts): Coordinated {
  const known = new Map<string, Promise<number>>()
  const find = async (group: string): Promise<number> => {
    const what = `coordinator of ${group}`
    const args = [groupKey, [group]]
    const request = { purpose: 'control', node: undefined, api: 'findCoordinatorV4', args, what } as const
    const [found] = (await ask<RawCoordinators>(request)).coordinators
    if (found === undefined) throw kafkaError('COORDINATOR_NOT_AVAILABLE', what)
    await check(found, what)
    connections.learn([found])
    return found.nodeId
  }
  const isElsewhere = async (answer: unknown): Promise<boolean> => {
    const codes = errorCodesIn(answer)
    const names = await Promise.all(codes.map(nameOf))
    return names.some((name) => name === 'NOT_COORDINATOR' || name === 'COORDINATOR_NOT_AVAILABLE')
  }
  return async <Response>(group: string, request: Parameters<Coordinated>[1]): Promise<Response> => {
    const finding = known.get(group) ?? find(group)
    known.set(group, finding)
    try {
      const answer = await ask<Response>({ ...request, node: await finding })
      if (await isElsewhere(answer)) known.delete(group)
      return answer
    } catch (error) {
      if (kafkaErrorName(error) === undefined || known.get(group) === finding) known.delete(group)
      throw error
    }
  }
}

/** The codes of an answer, wherever they stand in it. */
function errorCodesIn(answer: unknown): readonly number[] {
  if (Array.isArray(answer)) return answer.flatMap(errorCodesIn)
  if (answer === null || typeof answer !== 'object' || ArrayBuffer.isView(answer)) return []
  const own = (answer as { readonly errorCode?: unknown }).errorCode
  const inner = Object.values(answer).filter((value) => typeof value === 'object')
  return [...(typeof own === 'number' && own !== 0 ? [own] : []), ...inner.flatMap(errorCodesIn)]
}
