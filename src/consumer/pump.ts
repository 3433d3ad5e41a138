/**
 * Collects deliveries into batches, by count, bytes and a few milliseconds, and keeps a bounded number of them under way.
 *
 * It knows time and order and nothing of what a batch does.
 */
import type { Clock } from '../core/clock.ts'
import { KeyQueues, type Queued } from './key-queues.ts'

export interface PumpOptions<Entry extends Queued> {
  readonly batchSize: number
  readonly batchBytes: number
  readonly lingerMs: number
  readonly concurrency: number
  readonly clock: Clock
  /** Does a batch; never rejects. */
  readonly work: (batch: readonly Entry[]) => Promise<void>
}

export class Pump<Entry extends Queued> {
  readonly #options: PumpOptions<Entry>
  readonly #queues = new KeyQueues<Entry>()
  readonly #running = new Set<Promise<void>>()
  /** What is in hand, oldest first, with the moment it came. */
  readonly #since = new Map<Entry, number>()
  #lingering = false
  /** The wait is over; whatever is there goes as soon as there is a free place. */
  #due = false

  constructor(options: PumpOptions<Entry>) {
    this.#options = options
  }

  push(entry: Entry): void {
    this.#since.set(entry, this.#options.clock.monotonicMs())
    this.#queues.push(entry)
    this.#start()
  }

  /** Takes out what waits for an aggregate and satisfies `gone`. */
  purge(key: string, gone: (entry: Entry) => boolean): readonly Entry[] {
    const purged = this.#queues.purge(key, gone)
    for (const entry of purged) this.#since.delete(entry)
    return purged
  }

  /** How many are in hand, in line or under way, and for how long the oldest of them. */
  inFlight(): { readonly messages: number; readonly oldestMs: number } {
    const [oldest] = this.#since.values()
    const oldestMs = oldest === undefined ? 0 : this.#options.clock.monotonicMs() - oldest
    return { messages: this.#since.size, oldestMs }
  }

  /** Nothing is in hand or in line. */
  get isIdle(): boolean {
    return this.#running.size === 0 && this.#queues.readyCount === 0
  }

  #start(): void {
    const { batchSize, batchBytes, concurrency } = this.#options
    while (this.#running.size < concurrency && this.#queues.readyCount > 0) {
      const full = this.#queues.readyCount >= batchSize || this.#queues.readyBytes >= batchBytes
      if (!full && !this.#due) return this.#linger()
      const batch = this.#queues.take(batchSize, batchBytes)
      if (this.#queues.readyCount === 0) this.#due = false
      this.#run(batch)
    }
  }

  #run(batch: readonly Entry[]): void {
    const running = this.#options.work(batch).finally(() => {
      this.#running.delete(running)
      for (const entry of batch) this.#since.delete(entry)
      this.#queues.done(batch.map(({ key }) => key))
      this.#start()
    })
    this.#running.add(running)
  }

  #linger(): void {
    if (this.#lingering) return
    this.#lingering = true
    void this.#options.clock.sleep(this.#options.lingerMs).then(() => {
      this.#lingering = false
      this.#due = this.#queues.readyCount > 0
      this.#start()
    })
  }
}
