/**
 * Collects deliveries into batches, by count, bytes and a few milliseconds, and keeps a bounded number of them under way.
 *
 * It knows time and order and nothing of what a batch does. Suspects go alone, at once, and into no more than half of the places.
 */
import type { Clock } from '../../core/service/clock.ts'
import { KeyQueues, type Queued } from './key-queues.ts'
import { nextInPlace } from '../model/places.ts'

/** An entry of a batch: what came, and when, by the monotonic clock. */
export interface Collected extends Queued {
  readonly sinceMs: number
}

export interface BatcherOptions {
  readonly batchSize: number
  readonly batchBytes: number
  readonly lingerMs: number
  readonly concurrency: number
  readonly clock: Clock
}

/** Settles every entry of a batch; never rejects. */
type Work<Entry> = (batch: readonly Entry[]) => Promise<void>

export class Batcher<Entry extends Collected> {
  readonly #options: BatcherOptions
  readonly #queues = new KeyQueues<Entry>()
  readonly #running = new Map<readonly Entry[], Promise<void>>()
  #suspectsRunning = 0
  #wasSuspect = false
  #lingering: Promise<void> | undefined
  /** The wait is over; whatever is there goes as soon as there is a free place. */
  #due = false
  #work: Work<Entry> | undefined

  constructor(options: BatcherOptions) {
    this.#options = options
  }

  /** Gives it its work, which never rejects. What was pushed before waits until then. */
  start(work: Work<Entry>): void {
    this.#work = work
    this.#begin()
  }

  push(entry: Entry): void {
    this.#queues.push(entry)
    this.#begin()
  }

  /** Takes out what waits for an aggregate and satisfies `gone`. */
  purge(key: string, gone: (entry: Entry) => boolean): readonly Entry[] {
    return this.#queues.purge(key, gone)
  }

  /** How many are in hand, in line or under way, and for how long the oldest of them. */
  inFlight(): { readonly messages: number; readonly oldestMs: number } {
    const inHand = [...[...this.#running.keys()].flat(), ...this.#queues.waiting()]
    const nowMs = this.#options.clock.monotonicMs()
    return { messages: inHand.length, oldestMs: nowMs - inHand.reduce((oldest, { sinceMs }) => Math.min(oldest, sinceMs), nowMs) }
  }

  /** Nothing is in hand or in line. */
  get isIdle(): boolean {
    return this.#running.size === 0 && this.#queues.readyCount === 0 && !this.#queues.hasSuspect
  }

  /** Resolves when nothing is under way or in line. For after the end: what is pushed meanwhile is done as well. */
  async ended(): Promise<void> {
    while (this.#running.size > 0 || this.#lingering !== undefined)
      await Promise.all([...this.#running.values(), this.#lingering])
  }

  #begin(): void {
    const work = this.#work
    if (work === undefined) return
    const { batchSize, batchBytes } = this.#options
    for (;;) {
      const next = this.#next()
      if (next === 'nothing') return
      if (next === 'suspect') {
        this.#runSuspect(work)
        continue
      }
      const full = this.#queues.readyCount >= batchSize || this.#queues.readyBytes >= batchBytes
      if (!full && !this.#due) return this.#linger()
      const batch = this.#queues.take(batchSize, batchBytes)
      if (this.#queues.readyCount === 0) this.#due = false
      this.#run(work, batch)
    }
  }

  #next(): ReturnType<typeof nextInPlace> {
    return nextInPlace({
      concurrency: this.#options.concurrency,
      running: this.#running.size,
      suspectsRunning: this.#suspectsRunning,
      othersWait: this.#queues.readyCount > 0,
      suspectsWait: this.#queues.hasSuspect,
      wasSuspect: this.#wasSuspect,
    })
  }

  #runSuspect(work: Work<Entry>): void {
    const entry = this.#queues.takeSuspect()
    if (entry === undefined) return
    this.#suspectsRunning += 1
    this.#run(work, [entry], () => (this.#suspectsRunning -= 1))
  }

  #run(work: Work<Entry>, batch: readonly Entry[], ended?: () => void): void {
    this.#wasSuspect = ended !== undefined
    const working = work(batch).finally(() => {
      ended?.()
      this.#running.delete(batch)
      this.#queues.done(batch.map(({ key }) => key))
      this.#begin()
    })
    this.#running.set(batch, working)
  }

  #linger(): void {
    this.#lingering ??= this.#options.clock.sleep(this.#options.lingerMs).then(() => {
      this.#lingering = undefined
      this.#due = this.#queues.readyCount > 0
      this.#begin()
    })
  }
}
