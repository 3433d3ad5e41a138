/**
 * Reads what one assignment gave us, hands it over within the bounds, and commits what is settled.
 *
 * It lives as long as the assignment. Paused, it hands out nothing new while what is in hand is settled and committed. Ended, it
 * is fenced: deliveries in hand are lost, their acks are answered as such, and nothing is committed any more.
 *
 * It is of one topic, also if that is deleted and another gets its name: it then says so and reads nothing more. An offset that was
 * kept of another topic is not begun with.
 */
import { backoffMs } from '../../../core/service/backoff.ts'
import type { Clock } from '../../../core/service/clock.ts'
import { WaybillError } from '../../../core/errors.ts'
import type { Random } from '../../../core/service/random.ts'
import type { AckOutcome, ReceiveOptions } from '../../port/transport.ts'
import type { Assignment } from './group-member.ts'
import type { KafkaClient } from '../client/kafka-client.ts'
import { KafkaDelivery, type DeliveryOwner } from './delivery.ts'
import { OffsetCommitter } from './offset-committer.ts'
import { PartitionFetcher } from './partition-fetcher.ts'
import { PartitionWindow, type WindowEntry } from './partition-window.ts'

export interface ReadingOptions extends ReceiveOptions {
  readonly client: KafkaClient
  readonly assignment: Assignment
  /** Records of a partition, read and not committed, at most. */
  readonly maxWindow: number
  readonly fetchMaxWaitMs: number
  readonly fetchMaxBytes: number
  readonly ackWaitMs: number
  readonly clock: Clock
  readonly random: Random
  readonly onFenced: (error: Error) => void
  /** The topic was deleted and made again: nothing more of it can be read. */
  readonly onRecreated: () => void
}

const retry = { firstMs: 100, maxMs: 5_000 }
/** Messages that a partition hands over before it is the next one's turn, in however many steps. */
const burst = 32
/** Keys that failed shortly after each other are released together: a release looks at all that is held and all that waits. */
const releaseEveryMs = 20

export class AssignmentReading implements DeliveryOwner {
  readonly #options: ReadingOptions
  readonly #over = new AbortController()
  readonly #stalled = new Set<PartitionWindow>()
  readonly #deliveries = new Map<WindowEntry, KafkaDelivery>()
  readonly #alarm: Alarm
  #windows: readonly PartitionWindow[] = []
  #fetcher: PartitionFetcher | undefined
  #committer: OffsetCommitter | undefined
  #inHandBytes = 0
  #turn = 0
  #handed = 0
  #isPaused = false
  #isHandingOver = false
  #isScheduled = false
  #whenChanged: (() => void)[] = []

  constructor(options: ReadingOptions) {
    this.#options = options
    this.#alarm = new Alarm(options.clock, (nowMs) => this.#release(nowMs))
  }

  get assignment(): Assignment {
    return this.#options.assignment
  }

  /** Finds out where to go on and begins. Resolves when it has, or when it is over. Never rejects. */
  async start(): Promise<void> {
    const { clock, random, onError } = this.#options
    for (let failures = 1; !this.#over.signal.aborted; failures += 1) {
      try {
        return await this.#start()
      } catch (error) {
        onError(error instanceof Error ? error : new WaybillError('INTERNAL', String(error)))
        await clock.sleep(backoffMs(retry, failures, random), this.#over.signal)
      }
    }
  }

  /** Hands out nothing new; resolves when nothing is in hand. */
  async drain(): Promise<void> {
    this.#isPaused = true
    while (this.#deliveries.size > 0) await this.#change()
  }

  /** The same, but a window that stands still is not waited for: who keeps its deliveries may do so for ever. */
  async drainGoing(): Promise<void> {
    this.#isPaused = true
    while (this.#going().messages > 0) await this.#change()
  }

  /** Resolves when what is settled is committed, or cannot be. */
  async flush(): Promise<void> {
    await this.#committer?.flush()
  }

  /** The partitions are no longer ours. */
  end(): void {
    this.#isPaused = true
    this.#over.abort()
    this.#alarm.off()
    this.#committer?.end()
    const deliveries = [...this.#deliveries.values()]
    this.#deliveries.clear()
    for (const delivery of deliveries) delivery.lose()
    this.#changed()
  }

  /** How far each partition is committed or could be, by partition. */
  positions(): ReadonlyMap<number, bigint> {
    return new Map(this.#windows.map(({ partition, position }) => [partition, position]))
  }

  async ackAll(deliveries: readonly KafkaDelivery[]): Promise<readonly AckOutcome[]> {
    const settled = new Map<PartitionWindow, bigint[]>()
    const before: AckOutcome[] = []
    for (const delivery of deliveries) {
      const { window, entry, state } = delivery
      if (state !== 'in-hand') {
        before.push(state === 'acked' ? 'unconfirmed' : 'lost')
        continue
      }
      delivery.state = 'acked'
      this.#takeBack(entry)
      window.settle(entry)
      const offsets = settled.get(window)
      if (offsets === undefined) settled.set(window, [entry.offset])
      else offsets.push(entry.offset)
    }
    this.#schedule()
    const outcomes = [...settled].map(
      ([window, offsets]) => this.#committer?.ack(window, offsets) ?? Promise.resolve(offsets.map((): AckOutcome => 'lost')),
    )
    return [...before, ...(await Promise.all(outcomes)).flat()]
  }

  nack(delivery: KafkaDelivery, delayMs: number): void {
    const { window, entry } = delivery
    const untilMs = this.#options.clock.monotonicMs() + Math.max(0, delayMs)
    delivery.state = 'over'
    this.#takeBack(entry)
    for (const behind of window.giveBack(entry, untilMs)) {
      const lost = this.#deliveries.get(behind)
      this.#takeBack(behind)
      lost?.lose()
    }
    this.#committer?.sweep()
    // What was taken out of hand makes room now: other keys do not wait for the delay of this one.
    this.#schedule()
    this.#alarm.set(untilMs)
  }

  stall({ window, entry }: KafkaDelivery): void {
    window.stall(entry)
    this.#stalled.add(window)
    this.#schedule()
  }

  async #start(): Promise<void> {
    const { client, topic, assignment, resumeFrom } = this.#options
    const { member, partitions } = assignment
    const { id: topicId, partitions: all } = await client.describeTopic(topic)
    const committed = await client.committedOffsets({ group: member.group, topic, topicId, partitions })
    const kept = await resumeFrom?.(partitions.map(String), topicId)
    const knownOf = (partition: number): bigint | 'earliest' =>
      kept?.get(String(partition)) ?? committed.get(partition) ?? 'earliest'
    const unknown = partitions.filter((partition) => knownOf(partition) === 'earliest')
    const earliest =
      unknown.length === 0 ? new Map<number, bigint>() : await client.listOffsets({ topic, partitions: unknown, at: 'earliest' })
    if (unknown.length > 0) await this.#tellBeginning(earliest, { topicId, count: all.length })
    if (this.#over.signal.aborted) return
    const startOf = (partition: number): bigint => {
      const known = knownOf(partition)
      return known === 'earliest' ? (earliest.get(partition) ?? 0n) : known
    }
    this.#windows = partitions.map((partition) => new PartitionWindow(partition, startOf(partition)))
    const before = this.#windows.map((window) => [window, committed.get(window.partition) ?? window.position] as const)
    this.#committer = new OffsetCommitter({ ...this.#options, member, topicId, committed: new Map(before) })
    this.#fetcher = new PartitionFetcher({
      ...this.#options,
      topicId,
      windows: this.#windows,
      room: () => this.#room(),
      onRecords: () => this.#handOver(),
      maxWaitMs: this.#options.fetchMaxWaitMs,
      maxBytes: this.#options.fetchMaxBytes,
      maxPartitionBytes: Math.min(this.#options.fetchMaxBytes, partitionBytes),
      over: this.#over.signal,
    })
    this.#fetcher.wake()
  }

  /** A partition without an offset alone is a new one, or one in which there was nothing yet. */
  async #tellBeginning(
    earliest: ReadonlyMap<number, bigint>,
    { topicId, count }: { readonly topicId: string | undefined; readonly count: number },
  ): Promise<void> {
    const { client, topic, assignment, onBeginning } = this.#options
    if (onBeginning === undefined) return
    const partitions = Array.from({ length: count }, (_, partition) => partition)
    const committed = await client.committedOffsets({ group: assignment.member.group, topic, topicId, partitions })
    if (committed.size > 0) return
    const ends = await client.listOffsets({ topic, partitions: [...earliest.keys()], at: 'latest' })
    const filled = [...earliest].filter(([partition, start]) => start < (ends.get(partition) ?? 0n))
    if (filled.length > 0 && !this.#over.signal.aborted) onBeginning(filled.map(([partition]) => String(partition)))
  }

  /** What waits here is bounded like what is in hand; a window also by its length and by what is held in it. */
  #room(): (window: PartitionWindow) => boolean {
    const { maxMessages, maxBytes, maxWindow } = this.#options
    const going = this.#windows.filter(({ isStalled }) => !isStalled)
    const messages = going.reduce((sum, { waitingMessages }) => sum + waitingMessages, 0)
    const bytes = going.reduce((sum, { waitingBytes }) => sum + waitingBytes, 0)
    const isFull = this.#isPaused || messages >= maxMessages || bytes >= maxBytes
    return ({ isStalled, size, heldBytes }) => !isFull && !isStalled && size < maxWindow && heldBytes < maxBytes
  }

  /** Lets go on what is due in any window, and sleeps until the next is. */
  #release(nowMs: number): void {
    for (const window of this.#windows) window.release(nowMs)
    const nextMs = Math.min(...this.#windows.map(({ dueMs }) => dueMs))
    if (nextMs < Infinity) this.#alarm.set(Math.max(nextMs, nowMs + releaseEveryMs))
    this.#schedule()
  }

  /** Goes on after those who settle together have all settled. */
  #schedule(): void {
    if (this.#isScheduled) return
    this.#isScheduled = true
    queueMicrotask(() => {
      this.#isScheduled = false
      this.#handOver()
      this.#fetcher?.wake()
      this.#changed()
    })
  }

  #handOver(): void {
    // A handler may settle at once, which leads back here.
    if (this.#isHandingOver) return
    this.#isHandingOver = true
    const count = this.#windows.length
    for (let idle = 0; idle < count && !this.#isPaused;) {
      const window = this.#windows[this.#turn % count] as PartitionWindow
      const entry = window.peek()
      if (entry !== undefined && !this.#hasRoom(entry)) break
      if (entry !== undefined) {
        window.take()
        this.#deliver(window, entry)
        idle = 0
        this.#handed += 1
      } else idle += 1
      if (entry === undefined || this.#handed >= burst) this.#nextTurn()
    }
    this.#isHandingOver = false
  }

  #nextTurn(): void {
    this.#turn = (this.#turn + 1) % this.#windows.length
    this.#handed = 0
  }

  #deliver(window: PartitionWindow, entry: WindowEntry): void {
    const delivery = new KafkaDelivery(this, { window, entry })
    this.#deliveries.set(entry, delivery)
    this.#inHandBytes += entry.bytes
    try {
      this.#options.onDelivery(delivery)
    } catch (cause) {
      this.#options.onError(new WaybillError('INTERNAL', 'The handler of deliveries threw; it must not.', { cause }))
      void delivery.nack()
    }
  }

  #hasRoom({ bytes }: WindowEntry): boolean {
    const { maxMessages, maxBytes } = this.#options
    const going = this.#going()
    return going.messages === 0 || (going.messages < maxMessages && going.bytes + bytes <= maxBytes)
  }

  /** What is in hand, without that of windows that stand still: however long they do, nobody else waits for it. */
  #going(): { readonly messages: number; readonly bytes: number } {
    let messages = this.#deliveries.size
    let bytes = this.#inHandBytes
    for (const window of this.#stalled) {
      if (!window.isStalled) this.#stalled.delete(window)
      else {
        messages -= window.inHandMessages
        bytes -= window.inHandBytes
      }
    }
    return { messages, bytes }
  }

  #takeBack(entry: WindowEntry): void {
    if (!this.#deliveries.delete(entry)) return
    this.#inHandBytes -= entry.bytes
  }

  /** Resolves when something was settled, given back or stalled. */
  #change(): Promise<void> {
    return new Promise((done) => this.#whenChanged.push(done))
  }

  #changed(): void {
    for (const wake of this.#whenChanged.splice(0)) wake()
  }
}

/** Of one partition in one fetch: a partition with a long backlog must not fill the whole answer. */
const partitionBytes = 1_048_576

/**
 * One timer for the earliest of many moments, however many there are.
 */
class Alarm {
  readonly #clock: Clock
  readonly #ring: (nowMs: number) => void
  #timer = new AbortController()
  #atMs = Infinity

  constructor(clock: Clock, ring: (nowMs: number) => void) {
    this.#clock = clock
    this.#ring = ring
  }

  /** Rings at `atMs` of the monotonic clock, unless it rings before that anyway. */
  set(atMs: number): void {
    if (atMs >= this.#atMs) return
    this.off()
    this.#atMs = atMs
    void this.#wait(atMs, this.#timer.signal)
  }

  /** Rings no more, until it is set again. */
  off(): void {
    this.#timer.abort()
    this.#timer = new AbortController()
    this.#atMs = Infinity
  }

  async #wait(atMs: number, off: AbortSignal): Promise<void> {
    await this.#clock.sleep(Math.max(0, atMs - this.#clock.monotonicMs()), off)
    if (off.aborted) return
    this.#atMs = Infinity
    // A timer may be early by a fraction of a millisecond; what it was set for is due all the same.
    this.#ring(Math.max(atMs, this.#clock.monotonicMs()))
  }
}
