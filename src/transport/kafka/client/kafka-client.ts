/**
 * What we need of a Kafka client and nothing else: the requests of Kafka's protocol that publishing and receiving are made of.
 *
 * Every call is one request, sent once and answered once; repeating is for the callers, who know what may be repeated. A
 * failure is a WaybillError whose `details.kafka` has the name of Kafka's own error, or nothing if no answer came. A client
 * keeps the requests that wait at the broker (fetch, join) apart from the others, so that none waits for another's answer.
 */
import type { FetchedRecord, KafkaRecord } from './wire/event-records.ts'
import type { FetchedPartition } from './wire/read-batches.ts'
import type { KafkaProducerId } from './wire/write-batch.ts'

export type { FetchedPartition, FetchedRecord, KafkaProducerId, KafkaRecord }

export interface KafkaClient {
  /** How many addresses there are to ask: those that were named and those that the cluster told. What any node may answer goes to each in turn. */
  addresses(): number
  /** The topic's partitions and their leaders, asked of the cluster now. */
  describeTopic(topic: string): Promise<KafkaTopic>
  /** The topic's settings, by name. */
  topicSettings(topic: string): Promise<ReadonlyMap<string, string>>
  /** A producer id that nobody had before: its sequence numbers begin at 0. */
  initProducer(): Promise<KafkaProducerId>
  /** Appends batches to partitions of one leader, with acks of all in-sync replicas; one answer per batch, in order. */
  produce(request: ProduceRequest): Promise<readonly ProduceAnswer[]>
  /** Reads from partitions of one leader; waits for data at the broker, but no longer than `maxWaitMs`. */
  fetch(request: FetchRequest): Promise<readonly FetchedPartition[]>
  /** The first offset at or after a moment, or an end of the log. Partitions without such an offset are left out. */
  listOffsets(request: ListOffsetsRequest): Promise<ReadonlyMap<number, bigint>>
  /** What the group committed; partitions without are left out. */
  committedOffsets(request: CommittedOffsetsRequest): Promise<ReadonlyMap<number, bigint>>
  /** Fails as a whole if any partition failed. Without a member it sets the offsets of a group that nobody is in. */
  commitOffsets(request: CommitOffsetsRequest): Promise<void>
  /** Enters the group, or enters it again; answered when all its members have. */
  joinGroup(request: JoinGroupRequest): Promise<JoinedGroup>
  /** Hands out (the leader) and gets the partitions of this generation. */
  syncGroup(request: SyncGroupRequest): Promise<SyncedGroup>
  heartbeat(member: KafkaMember, timeoutMs: number): Promise<void>
  leaveGroup(member: KafkaMember): Promise<void>
  createTopic(topic: KafkaTopicSettings): Promise<void>
  /** Ends all connections; requests under way fail. */
  close(): Promise<void>
}

export interface KafkaTopic {
  readonly name: string
  /** A topic that was deleted and made again has another, under the same name. Undefined where the cluster gives none. */
  readonly id?: string | undefined
  readonly partitions: readonly KafkaPartition[]
}

export interface KafkaPartition {
  /** The node that leads it; undefined while none does. */
  readonly leader: number | undefined
  /** How many nodes are to have a copy. */
  readonly replicas: number
}

export interface KafkaTopicSettings {
  readonly name: string
  readonly partitions: number
  readonly replicationFactor: number
  /** @default {} */
  readonly settings?: Readonly<Record<string, string>>
}

export interface ProduceBatch {
  readonly topic: string
  readonly partition: number
  /** The sequence number of its first record. */
  readonly sequence: number
  readonly records: readonly KafkaRecord[]
}

export interface ProduceRequest {
  readonly leader: number
  readonly producer: KafkaProducerId
  readonly batches: readonly ProduceBatch[]
  readonly timeoutMs: number
}

/** The offset of the first record, or the name of Kafka's error. */
export type ProduceAnswer = { readonly baseOffset: bigint } | { readonly error: string; readonly message: string }

export interface FetchRequest {
  readonly leader: number
  readonly topic: string
  /** A node that takes it answers UNKNOWN_TOPIC_ID if the topic is another by now. @default the name alone */
  readonly topicId?: string | undefined
  readonly from: ReadonlyMap<number, bigint>
  readonly maxWaitMs: number
  readonly maxBytes: number
  readonly maxPartitionBytes: number
}

export interface ListOffsetsRequest {
  readonly topic: string
  readonly partitions: readonly number[]
  readonly at: 'earliest' | 'latest' | { readonly sinceMs: number }
}

export interface CommittedOffsetsRequest {
  readonly group: string
  readonly topic: string
  /** What was committed of another topic of this name is left out. @default what is there, of whatever topic */
  readonly topicId?: string | undefined
  readonly partitions: readonly number[]
}

/** Who commits or beats: the broker accepts it for this generation only. */
export interface KafkaMember {
  readonly group: string
  readonly memberId: string
  readonly generation: number
  readonly instanceId: string | undefined
}

export interface CommitOffsetsRequest {
  readonly member: KafkaMember | { readonly group: string }
  readonly topic: string
  /** Kept with the offsets: they are good for this topic only. @default for any of the name */
  readonly topicId?: string | undefined
  /** The offset to go on from, by partition. */
  readonly offsets: ReadonlyMap<number, bigint>
}

export interface JoinGroupRequest {
  readonly group: string
  readonly topic: string
  /** Empty at first. */
  readonly memberId: string
  readonly instanceId: string | undefined
  readonly sessionTimeoutMs: number
  readonly rebalanceTimeoutMs: number
  /**
   * A part of the member's subscription. A broker balances a settled group again for a member whose subscription has changed;
   * one that joins again with the same is answered with what it has.
   */
  readonly edition: number
  /** Called with the id that the broker gives a new member, before it is joined with: by then the broker counts on it. */
  readonly onMemberId: (memberId: string) => void
}

export interface JoinedGroup {
  readonly memberId: string
  readonly generation: number
  /** All members, if this one is to hand out the partitions. */
  readonly members: readonly GroupMemberId[] | undefined
}

export interface GroupMemberId {
  readonly memberId: string
  readonly instanceId: string | undefined
  /** What it has subscribed to. */
  readonly topics: readonly string[]
}

/** Numbers of partitions, by topic. */
export type TopicPartitions = ReadonlyMap<string, readonly number[]>

export interface SyncGroupRequest {
  readonly member: KafkaMember
  readonly topic: string
  /** What each member reads, by its id, from the one who hands them out. */
  readonly assignments: ReadonlyMap<string, TopicPartitions> | undefined
}

export interface SyncedGroup {
  /** Those of the topic that are this member's. */
  readonly partitions: readonly number[]
  /** How many of the topic were handed out to all members; undefined if the one who did does not say. */
  readonly handedOut: number | undefined
}
