/**
 * Membership in a consumer group: joins, beats, leaves, and says which partitions are ours and until when.
 *
 *   joining ──assigned──▶ member ──rebalance──▶ revoking (drains, still beating) ──▶ joining
 *                            └──fenced, or silent for longer than the session──▶ lost ──▶ joining
 *
 * Before it joins again it gives up everything: first what is in hand is drained and committed, then the partitions are free.
 * When the group has gone on without it, nothing can be drained any more; the assignment ends at once.
 *
 * A member that finds more partitions than were handed out joins again with another edition of its subscription: that makes the
 * broker balance the group, whoever hands the partitions out. So does one that was told that the topic is another by now.
 *
 * Of each topic each member that reads it gets neighbouring partitions, in the order of the members' names, as even as can be: the
 * same members get the same partitions whichever of them hands them out.
 */
import { backoffMs } from '../../../core/service/backoff.ts'
import type { Clock } from '../../../core/service/clock.ts'
import { errorMessage, WaybillError } from '../../../core/errors.ts'
import type { Random } from '../../../core/service/random.ts'
import type { GroupMemberId, KafkaClient, KafkaMember, TopicPartitions } from '../client/kafka-client.ts'
import { isFencing, isPermanent, kafkaErrorName } from '../client/errors.ts'
import { unlessAborted, unlessLate } from '../../../core/service/abort.ts'
import { isAnother } from '../../port/topic-id.ts'

export interface GroupMemberOptions {
  readonly client: KafkaClient
  readonly group: string
  readonly topic: string
  readonly instanceId: string | undefined
  readonly sessionTimeoutMs: number
  readonly rebalanceTimeoutMs: number
  readonly heartbeatMs: number
  readonly metadataMaxAgeMs: number
  readonly clock: Clock
  readonly random: Random
  /** Partitions are ours from now on. */
  readonly onAssigned: (assignment: Assignment) => void
  /** The group wants them back: resolves when what is in hand is done with. */
  readonly onRevoked: (assignment: Assignment) => Promise<void>
  /** They are no longer ours, whatever is in hand. Called once for every assignment, at its end. */
  readonly onOver: (assignment: Assignment) => void
  /** Another topic has the name of the one that they are of. */
  readonly onRecreated: (assignment: Assignment) => void
  readonly onError: (error: Error) => void
}

export interface Assignment {
  readonly member: KafkaMember
  readonly partitions: readonly number[]
}

interface Joined {
  readonly assignment: Assignment
  /** How many partitions the group was handed. */
  readonly handedOut: number
  /** The topic that they are of. */
  readonly topicId: string | undefined
}

type Ending = 'revoked' | 'lost' | 'stopped'

const retry = { firstMs: 100, maxMs: 5_000 }
/** How long a join may still take when nobody wants it any more. */
const joinGraceMs = 2_000

export class GroupMember {
  readonly #options: GroupMemberOptions
  readonly #stopping = new AbortController()
  #memberId = ''
  #edition = 0
  #wake: AbortController | undefined
  #fencing: Error | undefined
  #rejoin: (() => void) | undefined

  constructor(options: GroupMemberOptions) {
    this.#options = options
  }

  /** Joins, and stays until `stop`. Never rejects. */
  async run(): Promise<void> {
    for (let failures = 0; !this.#stopping.signal.aborted;) {
      try {
        const joined = await this.#join()
        if (joined === undefined || this.#stopping.signal.aborted) break
        failures = 0
        if ((await this.#serve(joined)) === 'stopped') break
      } catch (error) {
        failures += 1
        await this.#failed(error, failures)
      }
    }
    await this.#leave()
  }

  stop(): void {
    this.#stopping.abort()
    this.#wake?.abort()
  }

  /** The broker has refused something because the group went on without us. */
  fenced(error: Error): void {
    this.#fencing = error
    this.#wake?.abort()
  }

  /** Has the partitions handed out anew. Does nothing if they are about to be. */
  rejoin(): void {
    this.#rejoin?.()
  }

  /** A name that another process has taken is not taken back at once: both would throw each other out for ever. */
  async #failed(error: unknown, failures: number): Promise<void> {
    const { clock, random, sessionTimeoutMs, onError } = this.#options
    const name = kafkaErrorName(error)
    if (isFencing(error)) this.#memberId = ''
    if (name !== 'REBALANCE_IN_PROGRESS' && name !== 'UNKNOWN_MEMBER_ID') onError(toError(error))
    const pauseMs = name === nameTaken ? sessionTimeoutMs : backoffMs(retry, failures, random)
    await clock.sleep(pauseMs, this.#stopping.signal)
  }

  /** Undefined when we are to stop and the join did not come to its end soon. */
  async #join(): Promise<Joined | undefined> {
    const joining = this.#joinNow()
    const joined = await unlessAborted(joining, this.#stopping.signal)
    if (joined !== undefined) return joined
    return await unlessLate(joining, joinGraceMs, this.#options.clock)
  }

  async #joinNow(): Promise<Joined> {
    const { client, group, topic, instanceId, sessionTimeoutMs, rebalanceTimeoutMs } = this.#options
    const { id: topicId, partitions } = await client.describeTopic(topic)
    const terms = { sessionTimeoutMs, rebalanceTimeoutMs, edition: this.#edition }
    // Also a join that is never answered leaves a member behind, which would get partitions: it is left under this id.
    const onMemberId = (memberId: string): void => void (this.#memberId = memberId)
    const joined = await client.joinGroup({ group, topic, memberId: this.#memberId, instanceId, ...terms, onMemberId })
    this.#memberId = joined.memberId
    const member: KafkaMember = { group, memberId: joined.memberId, generation: joined.generation, instanceId }
    const assignments = joined.members === undefined ? undefined : await this.#handOut(joined.members, partitions.length)
    const synced = await client.syncGroup({ member, topic, assignments })
    return { assignment: { member, partitions: synced.partitions }, handedOut: synced.handedOut ?? partitions.length, topicId }
  }

  /** All that the members read, not only what we do: one group may be there for several topics, each with members of its own. */
  async #handOut(members: readonly GroupMemberId[], ownPartitions: number): Promise<ReadonlyMap<string, TopicPartitions>> {
    const counts = new Map([[this.#options.topic, ownPartitions]])
    for (const topic of new Set(members.flatMap(({ topics }) => topics))) {
      const count = counts.get(topic) ?? (await this.#partitionsOf(topic))
      if (count !== undefined) counts.set(topic, count)
    }
    return assignPartitions(members, counts)
  }

  /** A topic of others that is gone or closed to us must not keep us from handing out the rest. Its members ask again. */
  async #partitionsOf(topic: string): Promise<number | undefined> {
    const { client, group, onError } = this.#options
    try {
      return (await client.describeTopic(topic)).partitions.length
    } catch (cause) {
      if (!isPermanent(cause)) throw cause
      const text = `Kafka, group ${group}: the partitions of ${topic} cannot be handed out: ${errorMessage(cause)}`
      onError(new WaybillError('REFUSED', text, { cause }))
      return undefined
    }
  }

  /** Beats until the assignment ends. */
  async #serve({ assignment, handedOut, topicId }: Joined): Promise<Ending> {
    const { clock, heartbeatMs, sessionTimeoutMs, metadataMaxAgeMs, onAssigned, onOver } = this.#options
    this.#fencing = undefined
    const wake = new AbortController()
    this.#wake = wake
    let aliveAtMs = clock.monotonicMs()
    let lookedAtMs = aliveAtMs
    let revoking: Promise<void> | undefined
    let isRevoked = false
    const revoke = (): void => {
      revoking ??= this.#options.onRevoked(assignment).then(() => {
        isRevoked = true
        wake.abort()
      })
    }
    const rejoin = (): void => {
      if (revoking !== undefined || wake.signal.aborted) return
      this.#edition += 1
      revoke()
    }
    // Everybody looks for new partitions, not only the one who hands them out: a static member that was restarted is not told that
    // it is the one, and what it handed out before stays in force.
    const look = async (): Promise<void> => {
      const found = await this.#options.client.describeTopic(this.#options.topic).catch(() => undefined)
      if (found === undefined || wake.signal.aborted) return
      if (isAnother(found.id, topicId)) this.#options.onRecreated(assignment)
      else if (found.partitions.length > handedOut) rejoin()
    }
    this.#rejoin = rejoin
    onAssigned(assignment)
    try {
      for (;;) {
        await clock.sleep(heartbeatMs, wake.signal)
        if (this.#stopping.signal.aborted) return 'stopped'
        if (this.#fencing !== undefined) return this.#lost(this.#fencing)
        if (isRevoked) return 'revoked'
        const leftMs = aliveAtMs + sessionTimeoutMs - clock.monotonicMs()
        const beat = await unlessAborted(this.#beat(assignment.member, leftMs), wake.signal)
        if (beat === undefined) continue
        if (beat instanceof Error) return this.#lost(beat)
        if (beat !== 'silent') aliveAtMs = clock.monotonicMs()
        else if (clock.monotonicMs() - aliveAtMs >= sessionTimeoutMs) return this.#lost()
        if (beat === 'rebalance') revoke()
        if (clock.monotonicMs() - lookedAtMs <= metadataMaxAgeMs) continue
        lookedAtMs = clock.monotonicMs()
        void look()
      }
    } finally {
      wake.abort()
      onOver(assignment)
    }
  }

  /** Returns the error if the group has gone on without us. */
  async #beat(member: KafkaMember, leftMs: number): Promise<'alive' | 'rebalance' | 'silent' | Error> {
    try {
      await this.#options.client.heartbeat(member, Math.max(1, Math.floor(leftMs)))
      return 'alive'
    } catch (error) {
      if (kafkaErrorName(error) === 'REBALANCE_IN_PROGRESS') return 'rebalance'
      if (isFencing(error)) return error
      this.#options.onError(toError(error))
      return 'silent'
    }
  }

  /** The member id is gone with the session. */
  #lost(fencing?: Error): Ending {
    this.#memberId = ''
    if (fencing !== undefined && kafkaErrorName(fencing) === nameTaken) throw fencing
    return 'lost'
  }

  /** A static member keeps its place: it may be back within its session. */
  async #leave(): Promise<void> {
    const { client, group, instanceId } = this.#options
    if (this.#memberId === '' || instanceId !== undefined) return
    const member: KafkaMember = { group, memberId: this.#memberId, generation: -1, instanceId }
    await client.leaveGroup(member).catch(() => undefined)
  }
}

/** Another process has joined under our `instanceId`. */
const nameTaken = 'FENCED_INSTANCE_ID'

function toError(error: unknown): Error {
  return error instanceof Error ? error : new WaybillError('INTERNAL', String(error))
}

/** @param counts how many partitions each topic has; of one that is not in it nothing is handed out */
function assignPartitions(
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
