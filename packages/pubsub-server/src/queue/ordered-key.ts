/**
 * The messages of one ordering key in one subscription, in publish order.
 *
 *   first ─────────── upNext ─────────── end
 *     sent, unsettled        not yet sent
 *
 * Everything sent of a key is with one receiver. An acknowledgement counts when all before it are settled. When a
 * message comes back, `upNext` returns to it, so all behind it are sent again, in order.
 */
import type { Entry } from './entry.ts'
import type { Receiver } from './receiver.ts'
import type { Bucket, Timed } from './timer-wheel.ts'

export class OrderedKey implements Timed {
  readonly name: string
  /** Who was sent the unsettled messages of this key. */
  owner: Receiver | null = null
  /** How many messages are leased right now. */
  leased = 0
  /** The ready queue it lies in: the subscription's, its owner's, or none. Other queues may hold a stale pointer. */
  queuedIn: object | null = null
  /** It waits for a back-off to pass. */
  isWaiting = false

  bucket: Bucket | null = null
  previous: Timed | null = null
  next: Timed | null = null

  #entries: Entry[] = []
  #dropped = 0
  #first = 0
  #upNext = 0
  readonly #onDue: (key: OrderedKey) => void

  constructor(name: string, onDue: (key: OrderedKey) => void) {
    this.name = name
    this.#onDue = onDue
  }

  get isEmpty(): boolean {
    return this.#first === this.#end
  }

  get hasUnsent(): boolean {
    return this.peek() !== undefined
  }

  add(entry: Entry): void {
    entry.place = this.#end
    this.#entries.push(entry)
  }

  /** The next message to send; those that are gone or acknowledged meanwhile are passed over. */
  peek(): Entry | undefined {
    for (; this.#upNext < this.#end; this.#upNext += 1) {
      const entry = this.#at(this.#upNext)
      if (entry.state === 'ready') return entry
    }
    return undefined
  }

  /** Call after the entry that `peek` returned was sent. */
  advance(): void {
    this.#upNext += 1
  }

  /** Whether every earlier message of the key is settled. */
  isFront(entry: Entry): boolean {
    return entry.place === this.#first
  }

  /** Removes the settled messages at the front and returns those that were acknowledged. */
  settleFront(): Entry[] {
    const settled: Entry[] = []
    while (this.#first < this.#end) {
      const entry = this.#at(this.#first)
      if (entry.state !== 'acked' && entry.state !== 'gone') break
      if (entry.state === 'acked') settled.push(entry)
      this.#first += 1
    }
    this.#upNext = Math.max(this.#upNext, this.#first)
    if (this.#first - this.#dropped > 64 && this.#first - this.#dropped > this.#entries.length / 2) {
      this.#entries = this.#entries.slice(this.#first - this.#dropped)
      this.#dropped = this.#first
    }
    return settled
  }

  /** Turns back to `entry`; returns it and all that had been sent after it. */
  rewind(entry: Entry): Entry[] {
    const returned = this.#entries.slice(entry.place - this.#dropped, this.#upNext - this.#dropped)
    this.#upNext = Math.min(this.#upNext, entry.place)
    return returned
  }

  due(): void {
    this.#onDue(this)
  }

  get #end(): number {
    return this.#dropped + this.#entries.length
  }

  #at(place: number): Entry {
    return this.#entries[place - this.#dropped] as Entry
  }
}
