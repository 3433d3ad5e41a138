/**
 * What a producer has to send: entries of calls, in queues by partition, cut into batches.
 *
 * A partition has one batch under way at a time, and a key lives in one partition: so a key has one unacknowledged request at
 * a time, whoever calls. A batch keeps its records, its producer id and its sequence number until its fate is known, however
 * often it is sent.
 */
import { Fifo } from '../../../core/queue.ts'
import type { OutgoingMessage, PublishOptions, PublishOutcome } from '../../port/transport.ts'
import type { KafkaProducerId, KafkaRecord } from '../client/kafka-client.ts'

/** One call of `publish`. */
export interface PublishCall extends PublishOptions {
  readonly outcomes: PublishOutcome[]
  /** Keys of which a message failed: what is behind it is not sent. */
  readonly stopped: Set<string>
  left: number
  readonly finish: () => void
}

export interface ProduceEntry {
  readonly call: PublishCall
  readonly index: number
  readonly message: OutgoingMessage
  readonly record: KafkaRecord
  readonly bytes: number
  /** Why it will not be sent, when its turn comes. */
  readonly refusal: Error | undefined
  isOver: boolean
  wasSent: boolean
}

export interface Batch {
  readonly queue: PartitionQueue
  readonly entries: readonly ProduceEntry[]
  readonly deadlineMs: number
  producer: ProducerState | undefined
  sequence: number
  /** It was sent before, and nobody knows what became of that. */
  isRepeated: boolean
  /** It is at the broker, or rests before it goes there again. */
  isUnderWay: boolean
}

/** A producer id and the next sequence number of each partition. */
export interface ProducerState extends KafkaProducerId {
  readonly sequences: Map<string, number>
}

export class PartitionQueue {
  readonly topic: string
  readonly partition: number
  readonly name: string
  readonly maxBatchBytes: number
  readonly #entries = new Fifo<ProduceEntry>()
  /** Parts of a batch that was refused as a whole; they go first, each on its own. */
  readonly #parts: ProduceEntry[][] = []
  batch: Batch | undefined
  /** The last batch had all its time and came to nothing. */
  isFailing = false

  constructor(topic: string, partition: number, maxBatchBytes: number) {
    this.topic = topic
    this.partition = partition
    this.name = `${topic}/${partition}`
    this.maxBatchBytes = maxBatchBytes
  }

  push(entry: ProduceEntry): void {
    this.#entries.push(entry)
  }

  /** Puts the halves of a refused batch in front. */
  split(entries: readonly ProduceEntry[]): void {
    const middle = Math.ceil(entries.length / 2)
    this.#parts.unshift(entries.slice(0, middle), entries.slice(middle))
  }

  /** The next entries to send together, without those that may no longer be sent. */
  cut(): readonly ProduceEntry[] {
    for (let part = this.#parts.shift(); part !== undefined; part = this.#parts.shift()) {
      const live = part.filter(maySend)
      if (live.length > 0) return live
    }
    const cut: ProduceEntry[] = []
    let bytes = batchOverheadBytes
    for (let entry = this.#entries.peek(); entry !== undefined; entry = this.#entries.peek()) {
      const isFull = bytes + entry.bytes > this.maxBatchBytes || cut.length >= maxBatchRecords
      // What is refused waits until those before it are settled: if one of them fails, it was not even tried.
      if (cut.length > 0 && (isFull || entry.refusal !== undefined)) break
      this.#entries.take()
      if (!maySend(entry)) continue
      if (entry.refusal !== undefined) {
        settle(entry, { status: 'rejected', error: entry.refusal })
        continue
      }
      cut.push(entry)
      bytes += entry.bytes
    }
    return cut
  }
}

/** The header of a batch. */
const batchOverheadBytes = 61
/** More in one batch buys nothing, and a refused one is halved often enough. */
const maxBatchRecords = 10_000

/** The outcome of one message; the call ends with its last. */
export function settle(entry: ProduceEntry, outcome: PublishOutcome): void {
  if (entry.isOver) return
  const { call, index, message } = entry
  entry.isOver = true
  call.outcomes[index] = outcome
  if (outcome.status !== 'confirmed' && message.orderingKey !== undefined) call.stopped.add(keyOf(message))
  call.left -= 1
  if (call.left === 0) call.finish()
}

export function keyOf({ topic, orderingKey }: OutgoingMessage): string {
  return `${topic}\u0000${orderingKey}`
}

function maySend(entry: ProduceEntry): boolean {
  if (entry.isOver) return false
  const { call, message } = entry
  const isStopped = message.orderingKey !== undefined && call.stopped.has(keyOf(message))
  if (!isStopped && !call.signal.aborted && call.maySend()) return true
  settle(entry, { status: 'not-sent' })
  return false
}
