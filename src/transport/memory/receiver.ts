/**
 * One receiver of the in-memory broker: what it has in hand, within its bounds, and how each delivery ends.
 */
import { Fifo } from '../../core/queue.ts'
import type { AckOutcome, Delivery, IncomingMessage, ReceiveOptions } from '../port/transport.ts'

/** A message as the broker keeps it. */
export interface StoredMessage extends Omit<IncomingMessage, 'deliveryAttempt'> {
  /** Its place in the broker's order. */
  readonly sequence: number
  readonly bytes: number
}

/** A message as one consumer sees it. */
export interface Entry {
  readonly stored: StoredMessage
  attempts: number
}

/** The messages of one ordering key, or a single message without one. */
export interface Lane {
  readonly key: string | undefined
  /** The life of the subscription that it belongs to; a seek begins another. */
  readonly life: number
  readonly waiting: Fifo<Entry>
  inHand: Held[]
  /** Acked while an earlier one was still in hand. */
  ackedAhead: Entry[]
  owner: MemoryReceiver | undefined
  queued: boolean
  /** Delays of nacks that have not passed yet. */
  rests: number
}

/** What a settled delivery is reported to. */
export interface Settling {
  ack(held: Held): AckOutcome
  nack(held: Held, delayMs: number): void
}

/** What one receiver has in hand, and the lanes that are its own meanwhile. */
export class MemoryReceiver {
  readonly options: ReceiveOptions
  readonly own: Fifo<Lane> = new Fifo()
  readonly #held = new Set<Held>()
  #bytes = 0
  #ownFirst = false
  #onDrained: (() => void)[] = []
  open = true

  constructor(options: ReceiveOptions) {
    this.options = options
  }

  /** By turns, so that neither its own busy keys nor the others starve. */
  queues(ready: Fifo<Lane>): readonly Fifo<Lane>[] {
    this.#ownFirst = !this.#ownFirst
    return this.#ownFirst ? [this.own, ready] : [ready, this.own]
  }

  hasRoomFor(bytes: number): boolean {
    return this.#held.size === 0 || (this.#held.size < this.options.maxMessages && this.#bytes + bytes <= this.options.maxBytes)
  }

  hold(held: Held): void {
    this.#held.add(held)
    this.#bytes += held.entry.stored.bytes
  }

  release(held: Held): void {
    if (!this.#held.delete(held)) return
    this.#bytes -= held.entry.stored.bytes
    if (this.#held.size === 0) for (const done of this.#onDrained.splice(0)) done()
  }

  held(): readonly Held[] {
    return [...this.#held]
  }

  hand(delivery: Delivery): void {
    try {
      this.options.onDelivery(delivery)
    } catch (cause) {
      this.options.onError(cause instanceof Error ? cause : new Error(String(cause)))
      void delivery.nack()
    }
  }

  /** Resolves when nothing is in hand any more, or when `aborting` aborts. */
  drained(aborting: AbortSignal | undefined): Promise<void> {
    return new Promise((done) => {
      if (this.#held.size === 0 || aborting?.aborted === true) return done()
      this.#onDrained.push(done)
      aborting?.addEventListener('abort', () => done(), { once: true })
    })
  }
}

/** A delivery in somebody's hand. */
export class Held implements Delivery {
  readonly message: IncomingMessage
  readonly lane: Lane
  readonly entry: Entry
  readonly receiver: MemoryReceiver
  readonly #settling: Settling
  #lost: AbortController | undefined
  state: 'in-hand' | 'acked' | 'nacked' | 'lost' = 'in-hand'

  constructor(settling: Settling, of: { readonly lane: Lane; readonly entry: Entry; readonly receiver: MemoryReceiver }) {
    this.#settling = settling
    this.lane = of.lane
    this.entry = of.entry
    this.receiver = of.receiver
    const { messageId, topic, orderingKey, attributes, body, publishedAtMs } = of.entry.stored
    this.message = { messageId, topic, orderingKey, attributes, body, publishedAtMs, deliveryAttempt: of.entry.attempts }
  }

  // Made when first asked for: most deliveries are settled without anybody looking.
  get lost(): AbortSignal {
    this.#lost ??= new AbortController()
    if (this.state === 'lost') this.#lost.abort()
    return this.#lost.signal
  }

  ack(): Promise<AckOutcome> {
    return Promise.resolve(this.#settling.ack(this))
  }

  nack(delayMs = 0): Promise<void> {
    this.#settling.nack(this, delayMs)
    return Promise.resolve()
  }

  end(state: 'acked' | 'nacked' | 'lost'): void {
    this.state = state
    if (state === 'lost') this.#lost?.abort()
  }
}
