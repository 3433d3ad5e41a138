/**
 * Publishes to Kafka: idempotent, confirmed by all in-sync replicas, in order by key.
 *
 * Calls share requests: a request to a node has the next batch of each of its partitions, and while it is under way the next
 * one gathers. A batch whose fate is unknown is sent again as it was, under the same sequence number, which the broker
 * recognises; when its time is over, the producer id is given up with it, so that its number can never stand for another batch.
 * After that the partition's batches have one attempt each, until it takes one: calls do not wait for it again and again.
 * A batch that was refused is halved until the culprit stands alone.
 */
import type { Clock } from '../../../core/service/clock.ts'
import { WaybillError } from '../../../core/errors.ts'
import { unlessAborted } from '../../../core/service/abort.ts'
import { messageBytes } from '../../port/publish-runs.ts'
import type { OutgoingMessage, PublishOptions, PublishOutcome } from '../../port/transport.ts'
import type { KafkaClient, KafkaProducerId, ProduceAnswer, ProduceBatch } from '../client/kafka-client.ts'
import { isPassing, isRejection, isUnappended, isUnroutable, kafkaError, kafkaErrorName, noAnswer } from '../client/errors.ts'
import { messageIdOf, orderingBytes, toRecord, type Compaction } from '../client/wire/event-records.ts'
import { partitionOf } from './partitioner.ts'
import {
  keyOf,
  PartitionQueue,
  settle,
  type Batch,
  type ProduceEntry,
  type ProducerState,
  type PublishCall,
} from './produce-batch.ts'
import type { KnownTopic, TopicDirectory } from './topic-directory.ts'

export interface KafkaPublisherOptions {
  readonly client: KafkaClient
  readonly topics: TopicDirectory
  /** The largest message: body, attributes and key. */
  readonly maxBytes: number
  readonly publishTimeoutMs: number
  readonly maxRequestBytes: number
  readonly compactionOf: (message: OutgoingMessage) => Compaction
  readonly clock: Clock
}

/** Between two attempts to send the same batch. */
const retryMs = 50
/** Header names, lengths and deltas of a record. */
const recordOverheadBytes = 32
const headerOverheadBytes = 8
const largestSequence = 0x7fffffff

export class KafkaPublisher {
  readonly #options: KafkaPublisherOptions
  readonly #queues = new Map<string, PartitionQueue>()
  /** Queues that have something to send. */
  readonly #ready = new Set<PartitionQueue>()
  readonly #busyNodes = new Set<number>()
  readonly #leaders = new Map<string, KnownTopic>()
  #producer: ProducerState | undefined
  #opening: Promise<KafkaProducerId> | undefined
  #spread = 0
  #isClosed = false

  constructor(options: KafkaPublisherOptions) {
    this.#options = options
  }

  async publish(messages: readonly OutgoingMessage[], options: PublishOptions): Promise<readonly PublishOutcome[]> {
    const outcomes = Array.from({ length: messages.length }, (): PublishOutcome => ({ status: 'not-sent' }))
    if (messages.length === 0 || options.signal.aborted || !options.maySend()) return outcomes
    const { promise, resolve } = Promise.withResolvers<void>()
    const call: PublishCall = { ...options, outcomes, stopped: new Set(), left: messages.length, finish: resolve }
    const entries = await this.#enqueue(call, messages)
    const abort = (): void => {
      for (const entry of entries)
        settle(entry, entry.wasSent ? { status: 'unavailable', error: aborted() } : { status: 'not-sent' })
    }
    if (options.signal.aborted) abort()
    else options.signal.addEventListener('abort', abort, { once: true })
    this.#pump()
    if (call.left > 0) await promise
    options.signal.removeEventListener('abort', abort)
    return inOrderOfKeys(messages, outcomes)
  }

  close(): void {
    this.#isClosed = true
  }

  async #enqueue(call: PublishCall, messages: readonly OutgoingMessage[]): Promise<readonly ProduceEntry[]> {
    const names = [...new Set(messages.map(({ topic }) => topic))]
    const found = await Promise.all(names.map((name) => this.#topic(name, call.signal)))
    const topics = new Map(names.map((name, i) => [name, found[i] as KnownTopic | Error]))
    const nowMs = this.#options.clock.nowMs()
    return messages.map((message, index) => {
      const entry = this.#entry(call, index, { message, nowMs })
      const topic = topics.get(message.topic) as KnownTopic | Error
      if (topic instanceof Error) settle(entry, untaken(topic))
      else this.#queue(topic, entry).push(entry)
      return entry
    })
  }

  #entry(call: PublishCall, index: number, { message, nowMs }: { message: OutgoingMessage; nowMs: number }): ProduceEntry {
    const record = toRecord(message, { compaction: this.#options.compactionOf(message), nowMs })
    const size = messageBytes(message)
    const bytes = size + recordOverheadBytes + headerOverheadBytes * record.headers.length
    const refusal = size > this.#options.maxBytes ? this.#tooLarge(size) : undefined
    return { call, index, message, record, bytes, refusal, isOver: false, wasSent: false }
  }

  /** The topic, or why it cannot be published to now. */
  async #topic(name: string, signal: AbortSignal): Promise<KnownTopic | Error> {
    if (this.#isClosed) return new WaybillError('ABORTED', 'The Kafka transport is closed; make a new one.', { retryable: false })
    const looking = this.#options.topics.topic(name).then(
      (topic) => {
        this.#leaders.set(name, topic)
        return topic
      },
      (error: unknown) => (error instanceof Error ? error : noAnswer(error, `topic ${name}`)),
    )
    return (await unlessAborted(looking, signal)) ?? aborted()
  }

  #queue({ name, partitions, maxBatchBytes }: KnownTopic, { record }: ProduceEntry): PartitionQueue {
    const partition =
      record.key === null
        ? (this.#spread = (this.#spread + 1) % largestSequence) % partitions
        : partitionOf(orderingBytes(record.key), partitions)
    const id = `${name}/${partition}`
    const queue = this.#queues.get(id) ?? new PartitionQueue(name, partition, maxBatchBytes)
    this.#queues.set(id, queue)
    this.#ready.add(queue)
    return queue
  }

  /** Starts a request to every node that has something to get and none under way. */
  #pump(): void {
    const nodes = new Set<number>()
    for (const queue of this.#ready) {
      if (queue.batch?.isUnderWay === true) continue
      const node = this.#leaderOf(queue)
      if (node !== undefined) nodes.add(node)
      else this.#waitForLeader(queue)
    }
    for (const node of nodes) if (!this.#busyNodes.has(node)) void this.#serve(node)
  }

  #leaderOf({ topic, partition }: PartitionQueue): number | undefined {
    return this.#leaders.get(topic)?.leaderOf(partition)
  }

  /** Lets the next batch rest. One whose time is over is given up, and those behind it have their turn. */
  #waitForLeader(queue: PartitionQueue): void {
    const error = kafkaError('LEADER_NOT_AVAILABLE', `produce to ${queue.name}`)
    for (let batch = this.#next(queue); batch?.isUnderWay === false; batch = this.#next(queue)) this.#again(batch, error)
  }

  #next(queue: PartitionQueue): Batch | undefined {
    return queue.batch ?? this.#cut(queue)
  }

  #cut(queue: PartitionQueue): Batch | undefined {
    const entries = queue.cut()
    if (entries.length === 0) {
      this.#ready.delete(queue)
      return undefined
    }
    const deadlineMs = this.#options.clock.monotonicMs() + (queue.isFailing ? 0 : this.#options.publishTimeoutMs)
    queue.batch = { queue, entries, deadlineMs, producer: undefined, sequence: 0, isRepeated: false, isUnderWay: false }
    return queue.batch
  }

  /** One request to a node, with all that is there for it when the request goes out. */
  async #serve(node: number): Promise<void> {
    this.#busyNodes.add(node)
    let batches: readonly Batch[] = []
    try {
      const current = await this.#currentProducer()
      this.#dropUnwanted(node)
      // A producer id that was given up meanwhile must not be used: the next round gets another.
      if (current === this.#producer) batches = this.#collect(node, current)
      if (batches.length > 0) await this.#send(node, batches)
    } catch (error) {
      const cause = noAnswer(error, `produce to node ${node}`)
      const isMoment = batches.length > 0 || (kafkaErrorName(cause) !== undefined && isPassing(kafkaErrorName(cause)))
      // Without a producer id nothing was sent; a cluster that has just started has none to give for a moment.
      if (batches.length === 0) batches = this.#collect(node, undefined)
      for (const batch of batches)
        if (isMoment) this.#again(batch, cause)
        else this.#giveUp(batch, cause)
    }
    this.#busyNodes.delete(node)
    this.#pump()
  }

  /** Gives up what waits to be sent again and may not be any more: time has passed since it was asked. */
  #dropUnwanted(node: number): void {
    for (const { batch } of [...this.#ready].filter((queue) => this.#leaderOf(queue) === node))
      if (batch?.isUnderWay === false && !isWanted(batch)) this.#giveUp(batch, aborted())
  }

  /** Batches for one request: those that are sent again, or new ones, of one producer id and as large as a request may be. */
  #collect(node: number, current: ProducerState | undefined): readonly Batch[] {
    const queues = [...this.#ready].filter((queue) => this.#leaderOf(queue) === node)
    const due = queues.flatMap(({ batch }) => (batch === undefined || batch.isUnderWay ? [] : [batch]))
    const again = due.filter(({ producer }) => producer !== undefined)
    const producer = again[0]?.producer ?? current
    const collected = again.length > 0 ? again.filter((batch) => batch.producer === producer) : due
    let bytes = collected.reduce((sum, batch) => sum + batchBytes(batch), 0)
    for (const queue of again.length > 0 ? [] : queues) {
      if (queue.batch !== undefined) continue
      if (bytes >= this.#options.maxRequestBytes) break
      const batch = this.#cut(queue)
      if (batch === undefined) continue
      collected.push(batch)
      bytes += batchBytes(batch)
    }
    for (const batch of collected) {
      batch.isUnderWay = true
      if (batch.producer !== undefined || producer === undefined) continue
      batch.producer = producer
      batch.sequence = producer.sequences.get(batch.queue.name) ?? 0
    }
    return collected
  }

  async #send(leader: number, batches: readonly Batch[]): Promise<void> {
    const { client, publishTimeoutMs } = this.#options
    const producer = batches[0]?.producer as ProducerState
    for (const { entries } of batches) for (const entry of entries) entry.wasSent = true
    const toWire = ({ queue: { topic, partition }, sequence, entries }: Batch): ProduceBatch => ({
      topic,
      partition,
      sequence,
      records: entries.map(({ record }) => record),
    })
    const answers = await client.produce({ leader, producer, batches: batches.map(toWire), timeoutMs: publishTimeoutMs })
    batches.forEach((batch, i) => this.#answered(batch, answers[i] ?? { error: 'NETWORK_EXCEPTION', message: 'no answer' }))
  }

  async #currentProducer(): Promise<ProducerState> {
    if (this.#producer !== undefined) return this.#producer
    this.#opening ??= this.#options.client.initProducer().finally(() => (this.#opening = undefined))
    const id = await this.#opening
    this.#producer ??= { ...id, sequences: new Map<string, number>() }
    return this.#producer
  }

  #answered(batch: Batch, answer: ProduceAnswer): void {
    const { queue, entries, producer, sequence } = batch
    if ('baseOffset' in answer) {
      this.#done(batch)
      queue.isFailing = false
      producer?.sequences.set(queue.name, nextSequence(sequence, entries.length))
      entries.forEach((entry, i) => {
        settle(entry, { status: 'confirmed', messageId: messageIdOf(queue.partition, answer.baseOffset + BigInt(i)) })
      })
      return
    }
    const error = kafkaError(answer.error, `produce to ${queue.name}`, { said: answer.message })
    // Nothing of a refused batch was appended, so the next one takes its sequence number.
    if (isRejection(answer.error)) this.#refused(batch, error)
    else if (isPassing(answer.error)) this.#again(batch, error)
    else this.#giveUp(batch, error)
  }

  #refused(batch: Batch, error: WaybillError): void {
    const { queue, entries, producer, isRepeated } = batch
    this.#done(batch)
    queue.isFailing = false
    // What was sent before the topic changed its mind may be there.
    if (isRepeated && this.#producer === producer) this.#producer = undefined
    if (entries.length > 1) queue.split(entries)
    else for (const entry of entries) settle(entry, { status: 'rejected', error })
  }

  /** Sends the batch again in a moment, if there is time and everybody in it may still send, now and then. */
  #again(batch: Batch, error: WaybillError): void {
    const { clock, topics } = this.#options
    // Also for a batch that has had its time: the next one shall find the leader.
    const refreshed = topics.refresh(batch.queue.topic).catch(() => undefined)
    if (!isWanted(batch) || this.#isClosed || clock.monotonicMs() + retryMs > batch.deadlineMs) return this.#giveUp(batch, error)
    batch.isUnderWay = true
    batch.isRepeated = true
    void Promise.all([clock.sleep(retryMs), refreshed]).then(() => {
      batch.isUnderWay = false
      if (!isWanted(batch)) this.#giveUp(batch, error)
      this.#pump()
    })
  }

  /** Mostly nobody knows whether it is there. Its sequence number may be taken, so this producer id is not used again. */
  #giveUp(batch: Batch, error: WaybillError): void {
    const { queue, producer, entries, isRepeated } = batch
    const name = kafkaErrorName(error)
    this.#done(batch)
    if (isRepeated || isPassing(name)) queue.isFailing = true
    if (this.#producer === producer && (isRepeated || !isUnappended(name))) this.#producer = undefined
    for (const entry of entries) settle(entry, untaken(error))
  }

  #done({ queue }: Batch): void {
    queue.batch = undefined
    this.#ready.add(queue)
  }

  #tooLarge(bytes: number): WaybillError {
    const hint = 'Send a reference to the data instead (claim check), or raise maxBytes here and max.message.bytes of the topic.'
    return new WaybillError(
      'TOO_LARGE',
      `Messages to Kafka have ${this.#options.maxBytes} bytes at most; this has ${bytes}. ${hint}`,
    )
  }
}

function untaken(error: Error): PublishOutcome {
  return { status: isUnroutable(error) ? 'unroutable' : 'unavailable', error }
}

/** Behind a message that was not confirmed nothing of its key was tried. */
function inOrderOfKeys(messages: readonly OutgoingMessage[], outcomes: PublishOutcome[]): readonly PublishOutcome[] {
  const failed = new Set<string>()
  messages.forEach((message, i) => {
    if (message.orderingKey === undefined || outcomes[i]?.status === 'confirmed') return
    const key = keyOf(message)
    if (failed.has(key)) outcomes[i] = { status: 'not-sent' }
    failed.add(key)
  })
  return outcomes
}

/** Whether everybody in it may still send. */
function isWanted({ entries }: Batch): boolean {
  return entries.every(({ isOver, call }) => !isOver && !call.signal.aborted && call.maySend())
}

function nextSequence(sequence: number, records: number): number {
  const next = sequence + records
  return next > largestSequence ? next - largestSequence - 1 : next
}

function batchBytes({ entries }: Batch): number {
  return entries.reduce((sum, { bytes }) => sum + bytes, 0)
}

function aborted(): WaybillError {
  return new WaybillError('ABORTED', 'The publish was given up before Kafka confirmed it.')
}
