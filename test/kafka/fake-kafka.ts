/**
 * A Kafka in memory, with one group: partitions that are logs, members that join and are fenced by generation, and a record of
 * every commit that was accepted, with who owned the partition at that moment. The topic can be deleted and made again.
 */
import type {
  CommitOffsetsRequest,
  FetchedPartition,
  FetchedRecord,
  FetchRequest,
  GroupMemberId,
  JoinedGroup,
  KafkaClient,
  SyncedGroup,
  TopicPartitions,
} from '../../src/transport/kafka/client/kafka-client.ts'
import { kafkaError } from '../../src/transport/kafka/client/errors.ts'

export interface AcceptedCommit {
  /** Empty if the offsets of a group without members were set. */
  readonly memberId: string
  readonly partition: number
  readonly offset: bigint
  /** Who owned the partition in the group's newest generation. */
  readonly owner: string | undefined
}

interface Joining {
  readonly id: GroupMemberId
  readonly done: (joined: JoinedGroup) => void
}

export class FakeKafka {
  readonly commits: AcceptedCommit[] = []
  #logs: FetchedRecord[][]
  #topicId = 'topic 1'
  readonly #starts = new Map<number, bigint>()
  readonly #committed = new Map<number, { readonly offset: bigint; readonly topicId: string | undefined }>()
  readonly #members = new Map<string, GroupMemberId>()
  readonly #joining = new Map<string, Joining>()
  readonly #owners = new Map<number, string>()
  readonly #synced = new Map<string, (synced: SyncedGroup) => void>()
  #assignments: ReadonlyMap<string, TopicPartitions> | undefined
  #generation = 0
  #names = 0
  #appended = Promise.withResolvers<void>()

  constructor(partitions: number) {
    this.#logs = Array.from({ length: partitions }, () => [])
  }

  get generation(): number {
    return this.#generation
  }

  committed(partition: number): bigint {
    return this.#committed.get(partition)?.offset ?? 0n
  }

  /** Deletes the topic with all that was committed of it, and makes it again under its name. */
  recreate(): void {
    this.#logs = this.#logs.map(() => [])
    this.#starts.clear()
    this.#committed.clear()
    this.#topicId = `topic ${Number(this.#topicId.slice(6)) + 1}`
    this.#appended.resolve()
    this.#appended = Promise.withResolvers<void>()
  }

  /** What the group committed is gone, as when nobody was in it for long. */
  forgetOffsets(): void {
    this.#committed.clear()
  }

  append(partition: number, key: string, record: Partial<FetchedRecord> = {}): bigint {
    const log = this.#logs[partition] as FetchedRecord[]
    const offset = BigInt(log.length)
    const value = Buffer.from(`${partition}:${offset}`)
    log.push({ timestampMs: 0, key: Buffer.from(key), value, headers: [], ...record, offset })
    this.#appended.resolve()
    this.#appended = Promise.withResolvers<void>()
    return offset
  }

  /** Deletes what is older, as retention does. */
  deleteBefore(partition: number, offset: bigint): void {
    this.#starts.set(partition, offset)
  }

  /** Takes a member out, as a session that ended would. */
  expel(memberId: string): void {
    this.#members.delete(memberId)
    this.#joining.delete(memberId)
    this.#completeJoin()
  }

  /** The members of the newest generation. */
  memberIds(): readonly string[] {
    return [...this.#members.keys()]
  }

  client(): KafkaClient {
    const unused = (): never => {
      throw new Error('The fake has no such thing.')
    }
    return {
      addresses: () => 1,
      describeTopic: (name) =>
        Promise.resolve({ name, id: this.#topicId, partitions: this.#logs.map(() => ({ leader: 1, replicas: 1 })) }),
      topicSettings: unused,
      initProducer: unused,
      produce: unused,
      createTopic: unused,
      fetch: async (request) => {
        if (this.#read(request).every(({ error, records }) => error === undefined && records.length === 0))
          await this.#wait(request.maxWaitMs)
        return this.#read(request)
      },
      listOffsets: ({ partitions, at }) =>
        Promise.resolve(
          new Map(partitions.map((each) => [each, at === 'latest' ? BigInt(this.#logs[each]?.length ?? 0) : this.#start(each)])),
        ),
      committedOffsets: ({ partitions, topicId }) => {
        const found = [...this.#committed].filter(
          ([partition, of]) => partitions.includes(partition) && isOf(of.topicId, topicId),
        )
        return Promise.resolve(new Map(found.map(([partition, { offset }]) => [partition, offset])))
      },
      commitOffsets: (request) => this.#commit(request),
      joinGroup: ({ memberId, instanceId, topic }) =>
        this.#join({ memberId: memberId === '' ? `m${(this.#names += 1)}` : memberId, instanceId, topics: [topic] }),
      syncGroup: ({ member, topic, assignments }) => this.#sync(member.memberId, topic, assignments),
      heartbeat: async ({ memberId, generation }) => {
        if (!this.#members.has(memberId)) throw kafkaError('UNKNOWN_MEMBER_ID', 'heartbeat')
        if (generation !== this.#generation) throw kafkaError('ILLEGAL_GENERATION', 'heartbeat')
        if (this.#joining.size > 0) throw kafkaError('REBALANCE_IN_PROGRESS', 'heartbeat')
      },
      leaveGroup: ({ memberId }) => Promise.resolve(this.expel(memberId)),
      close: () => Promise.resolve(),
    }
  }

  /** In the order of the request, until the answer is full. The first record there is goes out however large it is. */
  #read({ topicId, from, maxBytes, maxPartitionBytes }: FetchRequest): readonly FetchedPartition[] {
    let usedBytes = 0
    return [...from].map(([partition, start]) => {
      if (!isOf(topicId, this.#topicId)) return { partition, error: 'UNKNOWN_TOPIC_ID', nextOffset: start, records: [] }
      if (start < this.#start(partition)) return { partition, error: 'OFFSET_OUT_OF_RANGE', nextOffset: start, records: [] }
      const fullBytes = Math.min(maxBytes, usedBytes + maxPartitionBytes)
      const records: FetchedRecord[] = []
      for (const record of (this.#logs[partition] ?? []).slice(Number(start))) {
        const bytes = (record.key?.length ?? 0) + (record.value?.length ?? 0)
        if (usedBytes > 0 && usedBytes + bytes > fullBytes) break
        usedBytes += bytes
        records.push(record)
      }
      return { partition, error: undefined, nextOffset: start + BigInt(records.length), records }
    })
  }

  #start(partition: number): bigint {
    return this.#starts.get(partition) ?? 0n
  }

  async #commit({ member, offsets, topicId }: CommitOffsetsRequest): Promise<void> {
    const memberId = 'memberId' in member ? member.memberId : ''
    const isKnown = memberId === '' ? this.#members.size === 0 : this.#members.has(memberId)
    if (!isKnown) throw kafkaError('UNKNOWN_MEMBER_ID', 'commit')
    if ('generation' in member && member.generation !== this.#generation) throw kafkaError('ILLEGAL_GENERATION', 'commit')
    for (const [partition, offset] of offsets) {
      this.commits.push({ memberId, partition, offset, owner: this.#owners.get(partition) })
      this.#committed.set(partition, { offset, topicId })
    }
  }

  #join(id: GroupMemberId): Promise<JoinedGroup> {
    this.#members.set(id.memberId, id)
    return new Promise((done) => {
      this.#joining.set(id.memberId, { id, done })
      this.#completeJoin()
    })
  }

  /** A generation begins when everybody has joined again. */
  #completeJoin(): void {
    if (this.#joining.size === 0 || this.#joining.size < this.#members.size) return
    this.#generation += 1
    this.#assignments = undefined
    this.#owners.clear()
    const joined = [...this.#joining.values()]
    this.#joining.clear()
    joined.forEach(({ id, done }, place) => {
      const members = place === 0 ? joined.map((each) => each.id) : undefined
      done({ memberId: id.memberId, generation: this.#generation, members })
    })
  }

  #sync(memberId: string, topic: string, assignments: ReadonlyMap<string, TopicPartitions> | undefined): Promise<SyncedGroup> {
    const assigned = (id: string): SyncedGroup => {
      return { partitions: this.#assignments?.get(id)?.get(topic) ?? [], handedOut: this.#owners.size }
    }
    if (assignments !== undefined) {
      this.#assignments = assignments
      for (const [id, topics] of assignments) for (const partition of topics.get(topic) ?? []) this.#owners.set(partition, id)
      for (const [id, done] of this.#synced) done(assigned(id))
      this.#synced.clear()
    }
    if (this.#assignments !== undefined) return Promise.resolve(assigned(memberId))
    return new Promise((done) => this.#synced.set(memberId, done))
  }

  async #wait(ms: number): Promise<void> {
    let timer: NodeJS.Timeout | undefined
    const late = new Promise<void>((done) => (timer = setTimeout(done, ms)))
    await Promise.race([this.#appended.promise, late])
    clearTimeout(timer)
  }
}

/** Whoever does not say which topic it means goes by the name. */
function isOf(one: string | undefined, other: string | undefined): boolean {
  return one === undefined || other === undefined || one === other
}
