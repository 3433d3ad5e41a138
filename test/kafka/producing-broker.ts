/**
 * The side of Kafka that a publisher sees: logs in memory, and answers that get lost or refuse. For tests of the publisher.
 */
import { systemClock, type Clock } from '../../src/core/service/clock.ts'
import type { KafkaClient, ProduceAnswer, ProduceBatch, ProduceRequest } from '../../src/transport/kafka/client/kafka-client.ts'
import { KafkaPublisher } from '../../src/transport/kafka/publish/publisher.ts'
import { TopicDirectory } from '../../src/transport/kafka/publish/topic-directory.ts'
import type { OutgoingMessage, PublishOutcome } from '../../src/transport/port/transport.ts'

/** What becomes of a batch: the name of an error is its answer, and nothing was appended unless it says so. */
export type Fault =
  | 'none'
  | 'cut before'
  | 'cut after'
  | 'NOT_LEADER_OR_FOLLOWER'
  | 'NOT_ENOUGH_REPLICAS'
  | 'NOT_ENOUGH_REPLICAS_AFTER_APPEND'
  | 'TOPIC_AUTHORIZATION_FAILED'
  | 'CLUSTER_AUTHORIZATION_FAILED'
  | 'INVALID_TIMESTAMP'
  | 'INVALID_RECORD'

const refusals: readonly Fault[] = [
  'NOT_LEADER_OR_FOLLOWER',
  'NOT_ENOUGH_REPLICAS',
  'TOPIC_AUTHORIZATION_FAILED',
  'CLUSTER_AUTHORIZATION_FAILED',
  'INVALID_TIMESTAMP',
  'INVALID_RECORD',
]

/** Appends as Kafka does: a batch that it has already, by producer id and sequence number, is confirmed and not appended again. */
export class ProducingBroker {
  readonly log: { readonly partition: number; readonly name: string }[] = []
  readonly requests: { readonly partitions: readonly number[] }[] = []
  readonly #last = new Map<string, { readonly sequence: number; readonly next: number; readonly offset: bigint }>()
  readonly #ends = new Map<number, number>()
  readonly #underWay = new Set<number>()
  overlaps = 0
  ids = 0
  faultFor: (batch: ProduceBatch) => Fault = () => 'none'
  rejects: (name: string) => boolean = () => false
  /** How long a request is under way. */
  travel: () => Promise<void> = () => new Promise((done) => setImmediate(done))
  leader: number | undefined = 1

  client(): KafkaClient {
    const client: Pick<KafkaClient, 'describeTopic' | 'topicSettings' | 'initProducer' | 'produce'> = {
      describeTopic: (name) =>
        Promise.resolve({ name, partitions: Array.from({ length: 3 }, () => ({ leader: this.leader, replicas: 3 })) }),
      topicSettings: () => Promise.resolve(new Map([['min.insync.replicas', '2']])),
      initProducer: () => Promise.resolve({ id: BigInt((this.ids += 1)), epoch: 0 }),
      produce: (request) => this.#produce(request),
    }
    return client as KafkaClient
  }

  async #produce({ batches, producer }: ProduceRequest): Promise<readonly ProduceAnswer[]> {
    this.requests.push({ partitions: batches.map(({ partition }) => partition) })
    for (const { partition } of batches) {
      if (this.#underWay.has(partition)) this.overlaps += 1
      this.#underWay.add(partition)
    }
    await this.travel()
    for (const { partition } of batches) this.#underWay.delete(partition)
    return batches.map((batch) => {
      const fault = this.faultFor(batch)
      if (fault === 'cut before') throw new Error('the connection was cut')
      if (refusals.includes(fault)) return { error: fault, message: '' }
      const answer = this.#append(batch, producer.id)
      if (fault === 'cut after') throw new Error('the connection was cut')
      return fault === 'none' || 'error' in answer ? answer : { error: fault, message: '' }
    })
  }

  #append({ partition, sequence, records }: ProduceBatch, producerId: bigint): ProduceAnswer {
    const names = records.map(({ value }) => Buffer.from(value ?? []).toString())
    if (names.some(this.rejects)) return { error: 'INVALID_RECORD', message: 'it is refused' }
    const last = this.#last.get(`${producerId} ${partition}`)
    if (last?.sequence === sequence) return { baseOffset: last.offset }
    if (sequence !== (last?.next ?? 0)) return { error: 'OUT_OF_ORDER_SEQUENCE_NUMBER', message: '' }
    const offset = BigInt(this.#ends.get(partition) ?? 0)
    this.#ends.set(partition, Number(offset) + records.length)
    this.#last.set(`${producerId} ${partition}`, { sequence, next: sequence + records.length, offset })
    for (const name of names) this.log.push({ partition, name })
    return { baseOffset: offset }
  }
}

export interface Limits {
  readonly maxBytes?: number
  readonly publishTimeoutMs?: number
  readonly clock?: Clock
}

export function publisherOn(broker: ProducingBroker, options: Limits = {}): KafkaPublisher {
  return publisherWith(broker.client(), options)
}

export function publisherWith(
  client: KafkaClient,
  options: Limits = {},
  Publisher: typeof KafkaPublisher = KafkaPublisher,
): KafkaPublisher {
  const topics = new TopicDirectory({ client, minInsyncReplicas: 2, metadataMaxAgeMs: 60_000, nowMs: () => 0 })
  const limits = { maxBytes: 1_000, publishTimeoutMs: 300, maxRequestBytes: 1_000_000, ...options }
  return new Publisher({ client, topics, compactionOf: () => undefined, clock: systemClock, ...limits })
}

export function message(name: string, orderingKey?: string): OutgoingMessage {
  return { topic: 'orders', orderingKey, attributes: {}, body: Buffer.from(name) }
}

export const always: { readonly signal: AbortSignal; readonly maySend: () => boolean } = {
  signal: new AbortController().signal,
  maySend: () => true,
}
export const statuses = (outcomes: readonly PublishOutcome[]): readonly string[] => outcomes.map(({ status }) => status)
