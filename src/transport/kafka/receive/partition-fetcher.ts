/**
 * Reads the partitions of one assignment, from their leaders, as long as there is room for what comes.
 *
 * A node has one fetch under way, for all its partitions that have room; a partition without room is left out, and nothing
 * ever waits in the way of the heartbeat. A node fills its answer in the order of the request: who got something stands behind
 * the others the next time, so that a long backlog keeps nobody waiting. When a leader moves, the new one is looked up and
 * reading goes on where it was; what the old one answers after that is not taken a second time. While there is none, that is
 * reported and looked up again and again, like any failure. A partition that cannot be read is left alone for longer.
 */
import type { Clock } from '../../../core/service/clock.ts'
import { WaybillError } from '../../../core/errors.ts'
import type { FetchedPartition, FetchedRecord, KafkaClient, KafkaTopic } from '../client/kafka-client.ts'
import { kafkaError } from '../client/errors.ts'
import { fromRecord } from '../client/wire/event-records.ts'
import type { PartitionWindow } from './partition-window.ts'
import { isAnother } from '../../port/topic-id.ts'

export interface PartitionFetcherOptions {
  readonly client: Pick<KafkaClient, 'describeTopic' | 'fetch' | 'listOffsets'>
  readonly topic: string
  /** The topic that the windows are of, whatever else may have its name. @default unknown */
  readonly topicId?: string | undefined
  readonly windows: readonly PartitionWindow[]
  /** Looks how much room there is, and answers for each partition. */
  readonly room: () => (window: PartitionWindow) => boolean
  /** Told after every fetch that brought something. */
  readonly onRecords: () => void
  readonly onError: (error: Error) => void
  /** Under the topic's name there is another: nothing is read any more. */
  readonly onRecreated?: () => void
  readonly maxWaitMs: number
  readonly maxBytes: number
  readonly maxPartitionBytes: number
  readonly clock: Clock
  /** Ends it. */
  readonly over: AbortSignal
}

/** With partitions left out for want of room, a fetch must not hold up the moment when they have some. */
const briefWaitMs = 50
const retryMs = 100
/** A broker that has lost what was committed, or has what cannot be read, needs somebody to look at it. */
const brokenLogRetryMs = 5_000

export class PartitionFetcher {
  readonly #options: PartitionFetcherOptions
  readonly #busyNodes = new Set<number>()
  readonly #resting = new Set<PartitionWindow>()
  /** Whose turn it is: a Set keeps the order in which it was filled. */
  readonly #turns: Set<PartitionWindow>
  #leaders: Promise<KafkaTopic> | undefined
  #isAwake = false

  constructor(options: PartitionFetcherOptions) {
    this.#options = options
    this.#turns = new Set(options.windows)
  }

  /** Fetches whatever there is room for and nobody fetches yet. Costs nothing when called often. */
  wake(): void {
    if (this.#isAwake) return
    this.#isAwake = true
    void this.#wake()
  }

  async #wake(): Promise<void> {
    const { client, topic, topicId, windows, room, over, onRecreated } = this.#options
    if (over.aborted || windows.length === 0) return
    try {
      this.#leaders ??= client.describeTopic(topic)
      const { id, partitions } = await this.#leaders
      if (isAnother(id, topicId)) return over.aborted ? undefined : onRecreated?.()
      this.#isAwake = false
      const hasRoom = room()
      const byNode = Map.groupBy(this.#turns, ({ partition }) => partitions[partition]?.leader)
      for (const [node, led] of byNode) {
        const wanted = led.filter((window) => !this.#resting.has(window) && hasRoom(window))
        if (wanted.length === 0) continue
        if (node === undefined) this.#failed(withoutLeader(topic, wanted), wanted)
        else if (!this.#busyNodes.has(node) && !over.aborted) void this.#fetch(node, wanted, led.length)
      }
    } catch (error) {
      this.#isAwake = false
      this.#failed(error, windows)
    }
  }

  async #fetch(leader: number, windows: readonly PartitionWindow[], led: number): Promise<void> {
    const { client, topic, topicId, maxWaitMs, maxBytes, maxPartitionBytes, over } = this.#options
    this.#busyNodes.add(leader)
    try {
      const from = new Map(windows.map(({ partition, end }) => [partition, end]))
      const waitMs = windows.length < led ? Math.min(briefWaitMs, maxWaitMs) : maxWaitMs
      const fetched = await client.fetch({ leader, topic, topicId, from, maxWaitMs: waitMs, maxBytes, maxPartitionBytes })
      if (!over.aborted) for (const window of windows) if (window.end === from.get(window.partition)) this.#take(window, fetched)
    } catch (error) {
      this.#failed(error, windows)
    }
    this.#busyNodes.delete(leader)
    this.wake()
  }

  #take(window: PartitionWindow, fetched: readonly FetchedPartition[]): void {
    const { topic, onRecords, onError } = this.#options
    const found = fetched.find(({ partition }) => partition === window.partition)
    if (found === undefined) return
    if (found.error === 'OFFSET_OUT_OF_RANGE') return this.#resting.has(window) ? undefined : void this.#outOfRange(window)
    if (found.error !== undefined) return this.#failed(kafkaError(found.error, `fetch ${topic}/${window.partition}`), [window])
    if (found.unreadable !== undefined) {
      onError(found.unreadable)
      return this.#rest(window, brokenLogRetryMs)
    }
    if (found.nextOffset === window.end) return
    this.#turns.delete(window)
    this.#turns.add(window)
    const entries = found.records.map((record) => {
      const message = fromRecord(record, { topic, partition: window.partition })
      return { message, offset: record.offset, bytes: recordBytes(record) }
    })
    window.append(entries, found.nextOffset)
    onRecords()
  }

  #failed(error: unknown, windows: readonly PartitionWindow[]): void {
    const { over, onError } = this.#options
    this.#leaders = undefined
    if (over.aborted) return
    if (error instanceof Error) onError(error)
    for (const window of windows) this.#rest(window, retryMs)
  }

  /** What is asked for is no longer there, or not any more: said aloud, for either way something was lost. */
  async #outOfRange(window: PartitionWindow): Promise<void> {
    const { client, topic, onError, over } = this.#options
    this.#resting.add(window)
    try {
      const partitions = [window.partition]
      const earliest = (await client.listOffsets({ topic, partitions, at: 'earliest' })).get(window.partition) ?? 0n
      if (over.aborted) return
      const name = `${topic}/${window.partition}`
      if (window.end < earliest) {
        onError(
          new WaybillError(
            'CORRUPT',
            `Kafka, ${name}: records ${window.end} to ${earliest - 1n} were deleted before they were read; retention is too short. Reading goes on at ${earliest}.`,
          ),
        )
        window.append([], earliest)
        return this.#rest(window, 0)
      }
      onError(
        new WaybillError(
          'CORRUPT',
          `Kafka, ${name} ends before ${window.end}, up to where it was read: the cluster has lost records. Move the consumer to a moment before (waybill replay).`,
        ),
      )
      this.#rest(window, brokenLogRetryMs)
    } catch (error) {
      this.#failed(error, [window])
    }
  }

  /** Leaves a partition alone for a while. */
  #rest(window: PartitionWindow, forMs: number): void {
    const { clock, over } = this.#options
    this.#resting.add(window)
    void clock.sleep(forMs, over).then(() => {
      this.#resting.delete(window)
      this.wake()
    })
  }
}

function withoutLeader(topic: string, windows: readonly PartitionWindow[]): WaybillError {
  return kafkaError('LEADER_NOT_AVAILABLE', `fetch ${topic}/${windows.map(({ partition }) => partition).join(',')}`)
}

/** Body, attributes and key, near enough: text has a byte for each letter. */
function recordBytes({ key, value, headers }: FetchedRecord): number {
  let bytes = key?.length ?? 0
  bytes += value?.length ?? 0
  for (const [name, text] of headers) bytes += name.length + text.length
  return bytes
}
