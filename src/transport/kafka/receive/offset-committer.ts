/**
 * Commits how far each partition of one assignment is settled, and answers the acks that this covers.
 *
 * One commit is under way at a time; the next has all that was settled meanwhile. An offset is sent for the generation in which
 * its records were read, so the broker refuses it once the partitions may be another's; after `end` nothing is sent at all. An
 * ack behind a record that was given back cannot be covered soon: it is answered as unconfirmed, and the record may come again.
 */
import { backoffMs } from '../../../core/service/backoff.ts'
import type { Clock } from '../../../core/service/clock.ts'
import type { Random } from '../../../core/service/random.ts'
import type { AckOutcome } from '../../port/transport.ts'
import type { KafkaClient, KafkaMember } from '../client/kafka-client.ts'
import { isFencing } from '../client/errors.ts'
import type { PartitionWindow } from './partition-window.ts'

export interface OffsetCommitterOptions {
  readonly client: Pick<KafkaClient, 'commitOffsets'>
  readonly member: KafkaMember
  readonly topic: string
  /** The topic that the partitions are of, whatever else may have its name. @default unknown */
  readonly topicId?: string | undefined
  /** The partitions and what was committed of them before. */
  readonly committed: ReadonlyMap<PartitionWindow, bigint>
  /** How long an ack waits for those before it. */
  readonly ackWaitMs: number
  readonly clock: Clock
  readonly random: Random
  readonly onFenced: (error: Error) => void
  readonly onError: (error: Error) => void
}

interface WaitingAck {
  readonly offsets: readonly bigint[]
  readonly highest: bigint
  readonly sinceMs: number
  readonly answer: (outcomes: readonly AckOutcome[]) => void
}

const retry = { firstMs: 50, maxMs: 2_000 }

export class OffsetCommitter {
  readonly #options: OffsetCommitterOptions
  readonly #committed: Map<PartitionWindow, bigint>
  readonly #waiting = new Map<PartitionWindow, WaitingAck[]>()
  readonly #ended = new AbortController()
  #running: Promise<void> | undefined
  #isRunning = false
  #isSweeping = false

  constructor(options: OffsetCommitterOptions) {
    this.#options = options
    this.#committed = new Map(options.committed)
  }

  /** Resolves when the records at `offsets`, which are settled, are covered by a commit, or cannot be soon. */
  ack(window: PartitionWindow, offsets: readonly bigint[]): Promise<readonly AckOutcome[]> {
    if (this.#ended.signal.aborted) return Promise.resolve(offsets.map(() => 'lost'))
    const highest = offsets.reduce((a, b) => (a > b ? a : b))
    return new Promise((answer) => {
      const waiting = this.#waiting.get(window) ?? []
      waiting.push({ offsets, highest, sinceMs: this.#options.clock.monotonicMs(), answer })
      this.#waiting.set(window, waiting)
      this.#start()
    })
  }

  /** Answers those that have to wait too long. */
  sweep(): void {
    const { clock, ackWaitMs } = this.#options
    const late = clock.monotonicMs() - ackWaitMs
    for (const [window, waiting] of this.#waiting) {
      const committed = this.#committed.get(window) ?? 0n
      const left = waiting.filter(({ offsets, highest, sinceMs, answer }) => {
        if (highest >= committed && !window.isHeld && sinceMs > late) return true
        answer(offsets.map((offset) => (offset < committed ? 'confirmed' : 'unconfirmed')))
        return false
      })
      if (left.length === 0) this.#waiting.delete(window)
      else this.#waiting.set(window, left)
    }
    if (this.#waiting.size > 0) void this.#sweepLater()
  }

  /** Resolves when everything settled so far is committed, or could not be. */
  async flush(): Promise<void> {
    this.#start()
    await this.#running
  }

  /** The partitions are no longer ours. */
  end(): void {
    this.#ended.abort()
    for (const waiting of this.#waiting.values()) for (const { offsets, answer } of waiting) answer(offsets.map(() => 'lost'))
    this.#waiting.clear()
  }

  #start(): void {
    if (this.#isRunning) return
    this.#isRunning = true
    this.#running = this.#run()
  }

  async #run(): Promise<void> {
    // Those who settle together are committed together.
    await Promise.resolve()
    for (let failures = 0; !this.#ended.signal.aborted;) {
      const due = this.#due()
      if (due.size === 0) break
      const sent = await this.#commit(due)
      failures = sent ? 0 : failures + 1
      this.sweep()
      if (!sent) await this.#options.clock.sleep(backoffMs(retry, failures, this.#options.random), this.#ended.signal)
    }
    // At once, with the look that found nothing due: an ack that comes later starts the next run.
    this.#isRunning = false
    this.sweep()
  }

  #due(): ReadonlyMap<PartitionWindow, bigint> {
    const due = new Map<PartitionWindow, bigint>()
    for (const [window, committed] of this.#committed) {
      const { position } = window
      if (position > committed) due.set(window, position)
    }
    return due
  }

  async #commit(due: ReadonlyMap<PartitionWindow, bigint>): Promise<boolean> {
    const { client, member, topic, topicId, onFenced, onError } = this.#options
    try {
      const offsets = new Map([...due].map(([{ partition }, offset]) => [partition, offset]))
      await client.commitOffsets({ member, topic, topicId, offsets })
      for (const [window, offset] of due) this.#committed.set(window, offset)
      return true
    } catch (error) {
      // After the end it is of an assignment that is over, and tells nothing of the next one.
      if (this.#ended.signal.aborted) return false
      if (isFencing(error)) {
        this.end()
        onFenced(error)
      } else if (error instanceof Error) onError(error)
      return false
    }
  }

  async #sweepLater(): Promise<void> {
    if (this.#isSweeping) return
    this.#isSweeping = true
    await this.#options.clock.sleep(this.#options.ackWaitMs, this.#ended.signal)
    this.#isSweeping = false
    if (!this.#ended.signal.aborted) this.sweep()
  }
}
