/**
 * What one receiver of the Postgres transport has in hand, and what it must not fetch again yet.
 *
 * Pure bookkeeping, without time or database. A delivery that was settled counts no more against the bounds, but stays
 * excluded from fetching until the database knows. A nack takes back what came after it under its key, and its key is not
 * handed out from a fetch that may have looked before the nack was stored.
 */
import type { AckOutcome, Delivery, IncomingMessage } from '../port/transport.ts'

/** What the receiver does when a delivery is settled. */
export interface Settle {
  ack(held: HeldDelivery): Promise<AckOutcome>
  nack(held: HeldDelivery, delayMs: number): Promise<void>
}

export interface HeldAt {
  readonly lane: number
  readonly tenure: string
  readonly seq: string
  readonly key: string | undefined
  readonly bytes: number
}

/** A delivery in the consumer's hand. */
export class HeldDelivery implements Delivery {
  readonly message: IncomingMessage
  readonly at: HeldAt
  readonly #settle: Settle
  #lost: AbortController | undefined
  #settled: Promise<AckOutcome> | undefined
  state: 'in-hand' | 'settled' | 'lost' = 'in-hand'

  constructor(settle: Settle, at: HeldAt, message: IncomingMessage) {
    this.#settle = settle
    this.at = at
    this.message = message
  }

  // Made when first asked for: most deliveries are settled without anybody looking.
  get lost(): AbortSignal {
    this.#lost ??= new AbortController()
    if (this.state === 'lost') this.#lost.abort()
    return this.#lost.signal
  }

  ack(): Promise<AckOutcome> {
    if (this.state === 'lost') return Promise.resolve('lost')
    this.#settled ??= this.#settle.ack(this)
    return this.#settled
  }

  async nack(delayMs = 0): Promise<void> {
    if (this.state === 'lost') return
    this.#settled ??= this.#settle.nack(this, delayMs).then(() => 'lost' as const)
    await this.#settled
  }

  lose(): void {
    this.state = 'lost'
    this.#lost?.abort()
  }
}

export class InHand {
  /** Everything that must not be fetched: in hand, or settled and not yet stored. */
  readonly #excluded = new Map<string, HeldDelivery>()
  /** Keys with a nack that a fetch under way may not have seen, and whether it is stored. */
  readonly #nackedKeys = new Map<string, number>()
  #skippedKeys = new Set<string>()
  #onEmpty: (() => void) | undefined
  count = 0
  bytes = 0

  hold(held: HeldDelivery): void {
    this.#excluded.set(held.at.seq, held)
    this.count += 1
    this.bytes += held.at.bytes
  }

  /** Sequences that a fetch must leave out. */
  excluded(): readonly string[] {
    return [...this.#excluded.keys()]
  }

  /** Call it when a fetch begins: keys whose nacks are not stored by now may not be handed out from it. */
  beginFetch(): void {
    this.#skippedKeys = new Set(this.#nackedKeys.keys())
  }

  /** Whether a message of the fetch under way may be handed out. */
  mayHand(seq: string, key: string | undefined): boolean {
    return !this.#excluded.has(seq) && (key === undefined || !this.#skippedKeys.has(key))
  }

  /** The consumer settled it by ack: it counts no more. */
  acked(held: HeldDelivery): void {
    held.state = 'settled'
    this.#discount(held)
  }

  /** The consumer settled it by nack: it counts no more, and what came after it under its key is lost. */
  nacked(held: HeldDelivery): readonly HeldDelivery[] {
    held.state = 'settled'
    this.#discount(held)
    const { key, seq } = held.at
    if (key === undefined) return []
    this.#nackedKeys.set(key, (this.#nackedKeys.get(key) ?? 0) + 1)
    this.#skippedKeys.add(key)
    const after = [...this.#excluded.values()].filter(
      (other) => other.state === 'in-hand' && other.at.key === key && BigInt(other.at.seq) > BigInt(seq),
    )
    for (const successor of after) this.lose(successor)
    return after
  }

  /** The database knows of the nack, or never will: the message may be fetched again. */
  nackStored(held: HeldDelivery): void {
    this.forget(held)
    const { key } = held.at
    if (key === undefined) return
    const left = (this.#nackedKeys.get(key) ?? 1) - 1
    if (left === 0) this.#nackedKeys.delete(key)
    else this.#nackedKeys.set(key, left)
  }

  /** The delivery is somebody else's, or will be fetched again. */
  lose(held: HeldDelivery): void {
    if (held.state === 'in-hand') this.#discount(held)
    held.lose()
    this.forget(held)
  }

  forget(held: HeldDelivery): void {
    if (this.#excluded.get(held.at.seq) === held) this.#excluded.delete(held.at.seq)
    if (this.#excluded.size === 0) this.#onEmpty?.()
  }

  /**
   * Loses whatever is in hand of the lanes that are not `kept` with the same tenure. What was settled under an old tenure
   * and is not stored yet is no reason to leave it out any more: under the new one it comes again, in its place.
   */
  loseOthers(kept: (at: HeldAt) => boolean): void {
    for (const held of this.#excluded.values()) {
      if (kept(held.at)) continue
      if (held.state === 'in-hand') this.lose(held)
      else this.forget(held)
    }
  }

  /** Whether anything of the lane is in hand or on its way to the database. */
  uses(lane: number): boolean {
    for (const { at } of this.#excluded.values()) if (at.lane === lane) return true
    return false
  }

  /** Resolves when nothing is in hand or on its way to the database, or when `aborting` aborts. */
  drained(aborting: AbortSignal | undefined): Promise<void> {
    return new Promise((done) => {
      if (this.#excluded.size === 0 || aborting?.aborted === true) return done()
      this.#onEmpty = done
      aborting?.addEventListener('abort', () => done(), { once: true })
    })
  }

  #discount(held: HeldDelivery): void {
    this.count -= 1
    this.bytes -= held.at.bytes
  }
}
