/**
 * Membership in a consumer group: joins, beats, leaves, and says which partitions are ours and until when.
 *
 *   joining ──assigned──▶ member ──rebalance──▶ revoking (drains, still beating) ──▶ joining
 *                            └──fenced, or silent for longer than the session──▶ lost ──▶ joining
 *
 * Before it joins again it gives up everything: first what is in hand is drained and committed, then the partitions are free.
 * When the group has gone on without it, nothing can be drained any more; the assignment ends at once.
 */
import { backoffMs } from '../../core/backoff.ts'
import type { Clock } from '../../core/clock.ts'
import { WaybillError } from '../../core/errors.ts'
import type { Random } from '../../core/random.ts'
import { assignPartitions } from './assignment.ts'
import type { KafkaClient, KafkaMember } from './kafka-client.ts'
import { isFencing, kafkaErrorName } from './kafka-errors.ts'

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
  readonly onError: (error: Error) => void
}

export interface Assignment {
  readonly member: KafkaMember
  readonly partitions: readonly number[]
}

type Ending = 'revoked' | 'lost' | 'stopped'

const retry = { firstMs: 100, maxMs: 5_000 }
/** How long a join may still take when nobody wants it any more. */
const joinGraceMs = 2_000

export class GroupMember {
  readonly #options: GroupMemberOptions
  readonly #stopping = new AbortController()
  #memberId = ''
  #partitionCount = 0
  #wake: AbortController | undefined
  #isFenced = false

  constructor(options: GroupMemberOptions) {
    this.#options = options
  }

  /** Joins, and stays until `stop`. Never rejects. */
  async run(): Promise<void> {
    const { clock, random, onError } = this.#options
    for (let failures = 0; !this.#stopping.signal.aborted;) {
      try {
        const joined = await this.#join()
        if (joined === undefined) break
        failures = 0
        if ((await this.#serve(joined.assignment, joined.isLeader)) === 'stopped') break
      } catch (error) {
        failures += 1
        const name = kafkaErrorName(error)
        if (isFencing(error)) this.#memberId = ''
        if (name !== 'REBALANCE_IN_PROGRESS' && name !== 'UNKNOWN_MEMBER_ID') onError(toError(error))
        await clock.sleep(backoffMs(retry, failures, random), this.#stopping.signal)
      }
    }
    await this.#leave()
  }

  stop(): void {
    this.#stopping.abort()
    this.#wake?.abort()
  }

  /** The broker has refused something because the group went on without us. */
  fenced(): void {
    this.#isFenced = true
    this.#wake?.abort()
  }

  async #join(): Promise<{ readonly assignment: Assignment; readonly isLeader: boolean } | undefined> {
    const { clock } = this.#options
    const joining = this.#joinNow()
    joining.catch(() => undefined)
    const given = new Promise<undefined>((resolve) => {
      const end = (): void => void clock.sleep(joinGraceMs).then(() => resolve(undefined))
      if (this.#stopping.signal.aborted) end()
      else this.#stopping.signal.addEventListener('abort', end, { once: true })
    })
    return Promise.race([joining, given])
  }

  async #joinNow(): Promise<{ readonly assignment: Assignment; readonly isLeader: boolean }> {
    const { client, group, topic, instanceId, sessionTimeoutMs, rebalanceTimeoutMs } = this.#options
    const { partitions } = await client.describeTopic(topic)
    const times = { sessionTimeoutMs, rebalanceTimeoutMs }
    const joined = await client.joinGroup({ group, topic, memberId: this.#memberId, instanceId, ...times })
    this.#memberId = joined.memberId
    this.#partitionCount = partitions.length
    const member: KafkaMember = { group, memberId: joined.memberId, generation: joined.generation, instanceId }
    const assignments = joined.members === undefined ? undefined : assignPartitions(joined.members, partitions.length)
    const ours = await client.syncGroup({ member, topic, assignments })
    return { assignment: { member, partitions: ours }, isLeader: assignments !== undefined }
  }

  /** Beats until the assignment ends. */
  async #serve(assignment: Assignment, isLeader: boolean): Promise<Ending> {
    const { clock, heartbeatMs, sessionTimeoutMs, metadataMaxAgeMs, onAssigned, onOver } = this.#options
    this.#isFenced = false
    this.#wake = new AbortController()
    const { signal } = this.#wake
    let aliveAtMs = clock.monotonicMs()
    let lookedAtMs = aliveAtMs
    let revoking: Promise<void> | undefined
    let isRevoked = false
    const revoke = (): void => {
      revoking ??= this.#options.onRevoked(assignment).then(() => {
        isRevoked = true
        this.#wake?.abort()
      })
    }
    onAssigned(assignment)
    try {
      for (;;) {
        await clock.sleep(heartbeatMs, signal)
        if (this.#stopping.signal.aborted) return 'stopped'
        if (this.#isFenced) return this.#lost()
        if (isRevoked) return 'revoked'
        const beat = await this.#beat(assignment.member, aliveAtMs + sessionTimeoutMs - clock.monotonicMs())
        if (beat === 'fenced') return this.#lost()
        if (beat !== 'silent') aliveAtMs = clock.monotonicMs()
        else if (clock.monotonicMs() - aliveAtMs >= sessionTimeoutMs) return this.#lost()
        if (beat === 'rebalance') revoke()
        if (isLeader && clock.monotonicMs() - lookedAtMs > metadataMaxAgeMs) {
          lookedAtMs = clock.monotonicMs()
          if (await this.#hasMorePartitions()) revoke()
        }
      }
    } finally {
      onOver(assignment)
    }
  }

  async #beat(member: KafkaMember, leftMs: number): Promise<'alive' | 'rebalance' | 'fenced' | 'silent'> {
    try {
      await this.#options.client.heartbeat(member, Math.max(1, Math.floor(leftMs)))
      return 'alive'
    } catch (error) {
      if (kafkaErrorName(error) === 'REBALANCE_IN_PROGRESS') return 'rebalance'
      if (!isFencing(error)) this.#options.onError(toError(error))
      return isFencing(error) ? 'fenced' : 'silent'
    }
  }

  /** The member id is gone with the session; a fenced instance must not take its name back before the other had a chance. */
  #lost(): Ending {
    this.#memberId = ''
    return 'lost'
  }

  /** Only the one who hands partitions out has to notice new ones. */
  async #hasMorePartitions(): Promise<boolean> {
    const { client, topic } = this.#options
    const found = await client.describeTopic(topic).catch(() => undefined)
    return found !== undefined && found.partitions.length > this.#partitionCount
  }

  /** A static member keeps its place: it may be back within its session. */
  async #leave(): Promise<void> {
    const { client, group, instanceId } = this.#options
    if (this.#memberId === '' || instanceId !== undefined) return
    const member: KafkaMember = { group, memberId: this.#memberId, generation: -1, instanceId }
    await client.leaveGroup(member).catch(() => undefined)
  }
}

function toError(error: unknown): Error {
  return error instanceof Error ? error : new WaybillError('INTERNAL', String(error))
}
