/**
 * Deliveries that wait to be given back. Pub/Sub's own retry policy is best effort, so a delayed nack keeps the lease for the
 * delay and gives the message back after it, together with everything of its key that came behind it.
 *
 * A key stays held until the service has answered, or has sent the first of them again: what it had sent before it heard of the
 * nack arrives meanwhile, and must not overtake. Held deliveries take room in the subscription's flow control, so when they
 * take more than half of it, in messages or in bytes, those that would come back first are given back early.
 */
import type { Clock } from '../core/clock.ts'
import type { PubsubDelivery } from './pubsub-delivery.ts'

interface Hold {
  readonly members: PubsubDelivery[]
  /** The message that comes back first. */
  readonly firstId: string | undefined
  readonly untilMs: number
  readonly early: AbortController
  isGivingBack: boolean
}

export interface HoldsOptions {
  readonly clock: Clock
  readonly maxHeld: number
  readonly maxHeldBytes: number
  /** Gives deliveries back: `seconds` zero at once, else when that time has passed. Never rejects. */
  readonly giveBack: (deliveries: readonly PubsubDelivery[], seconds: number) => Promise<void>
}

export class Holds {
  readonly #options: HoldsOptions
  readonly #holds = new Set<Hold>()
  readonly #byKey = new Map<string, Hold>()
  readonly #running = new Set<Promise<void>>()
  #held = 0
  #heldBytes = 0
  #isClosed = false

  constructor(options: HoldsOptions) {
    this.#options = options
  }

  isHeld(key: string): boolean {
    return this.#byKey.has(key)
  }

  /**
   * Whether this arrival shows that the service has heard of the nack: the first message of the hold is back. From here on the
   * key comes in order, although the answer to the nack may still be on its way.
   */
  isBack(key: string, { message }: PubsubDelivery): boolean {
    const hold = this.#byKey.get(key)
    if (hold?.isGivingBack !== true || hold.firstId !== message.messageId) return false
    this.#byKey.delete(key)
    return true
  }

  /** Adds what arrived of a held key. */
  join(key: string, delivery: PubsubDelivery): void {
    this.#byKey.get(key)?.members.push(delivery)
    this.#count([delivery], 1)
    this.#limit()
  }

  /** Holds `deliveries`, in order, and gives them back after `delayMs`. Resolves when they were. */
  hold(deliveries: readonly PubsubDelivery[], delayMs: number): Promise<void> {
    const running = this.#hold(deliveries, delayMs).finally(() => this.#running.delete(running))
    this.#running.add(running)
    return running
  }

  /** Gives everything back: what has to wait longer is given a lease that ends when it would have been. */
  async close(): Promise<void> {
    this.#isClosed = true
    for (const hold of this.#holds) hold.early.abort()
    await Promise.all(this.#running)
  }

  async #hold(deliveries: readonly PubsubDelivery[], delayMs: number): Promise<void> {
    const { clock } = this.#options
    const key = deliveries[0]?.message.orderingKey
    const before = key === undefined ? undefined : this.#byKey.get(key)
    const untilMs = Math.max(clock.monotonicMs() + delayMs, before?.untilMs ?? 0)
    // Those held already came later than the one that is nacked now, and go back behind it.
    const members = [...deliveries, ...(before?.members.splice(0) ?? [])]
    const hold: Hold = {
      members,
      firstId: members[0]?.message.messageId,
      untilMs,
      early: new AbortController(),
      isGivingBack: false,
    }
    before?.early.abort()
    this.#count(deliveries, 1)
    this.#holds.add(hold)
    if (key !== undefined) this.#byKey.set(key, hold)
    this.#limit()
    const leftMs = untilMs - clock.monotonicMs()
    if (leftMs > 0) await clock.sleep(leftMs, this.#isClosed ? AbortSignal.abort() : hold.early.signal)
    await this.#giveBack(key, hold)
  }

  async #giveBack(key: string | undefined, hold: Hold): Promise<void> {
    hold.isGivingBack = true
    const leftMs = this.#isClosed ? hold.untilMs - this.#options.clock.monotonicMs() : 0
    const seconds = Math.min(600, Math.max(0, Math.ceil(leftMs / 1000)))
    while (hold.members.length > 0) {
      const members = hold.members.splice(0)
      await this.#options.giveBack(members, seconds)
      this.#count(members, -1)
    }
    this.#holds.delete(hold)
    if (key !== undefined && this.#byKey.get(key) === hold) this.#byKey.delete(key)
  }

  #count(deliveries: readonly PubsubDelivery[], sign: 1 | -1): void {
    this.#held += sign * deliveries.length
    for (const { bytes } of deliveries) this.#heldBytes += sign * bytes
  }

  #limit(): void {
    const { maxHeld, maxHeldBytes } = this.#options
    if (this.#held <= maxHeld && this.#heldBytes <= maxHeldBytes) return
    const asleep = [...this.#holds].filter((hold) => !hold.isGivingBack && !hold.early.signal.aborted)
    asleep.toSorted((a, b) => a.untilMs - b.untilMs)[0]?.early.abort()
  }
}
