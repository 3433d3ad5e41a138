/**
 * Deliveries that wait to be given back. Pub/Sub's own retry policy is best effort, so a delayed nack keeps the lease for the
 * delay and gives the message back after it, together with everything of its key that came behind it.
 *
 * A key stays held until the service has answered, or has sent the first of them again: what it had sent before it heard of the
 * nack arrives meanwhile, and must not overtake. Held deliveries take room in the subscription's flow control, so when they
 * take more than half of it, in messages or in bytes, those that would come back first are given back early, after a moment's rest.
 */
import type { Clock } from '../../../core/service/clock.ts'
import type { PubsubDelivery } from './delivery.ts'

interface Hold {
  readonly members: PubsubDelivery[]
  /** The message that comes back first. */
  readonly firstId: string | undefined
  readonly untilMs: number
  /** Not given back before this, also if others need its room. */
  readonly restedMs: number
  /** Others need its room. */
  readonly early: AbortController
  /** Waits for nothing any more: we close, or a later hold of its key has its members. */
  readonly over: AbortController
  isGivingBack: boolean
}

/**
 * What is given back early comes again at once where the subscription has no retry policy: without a rest, a message that fails
 * would use up its attempts at the speed of the line. Longer, and a subscription of few messages at a time would stand still.
 */
const restMs = 1_000

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
    for (const hold of this.#holds) end(hold)
    await Promise.all(this.#running)
  }

  async #hold(deliveries: readonly PubsubDelivery[], delayMs: number): Promise<void> {
    const { clock } = this.#options
    const key = deliveries[0]?.message.orderingKey
    const before = key === undefined ? undefined : this.#byKey.get(key)
    const nowMs = clock.monotonicMs()
    const untilMs = Math.max(nowMs + delayMs, before?.untilMs ?? 0)
    // Those held already came later than the one that is nacked now, and go back behind it.
    const members = [...deliveries, ...(before?.members.splice(0) ?? [])]
    const hold: Hold = {
      members,
      firstId: members[0]?.message.messageId,
      untilMs,
      restedMs: Math.min(untilMs, nowMs + restMs),
      early: new AbortController(),
      over: new AbortController(),
      isGivingBack: false,
    }
    if (before !== undefined) end(before)
    if (this.#isClosed) end(hold)
    this.#holds.add(hold)
    if (key !== undefined) this.#byKey.set(key, hold)
    this.#limit()
    if (untilMs > nowMs) await this.#wait(hold)
    await this.#giveBack(key, hold)
  }

  async #wait({ untilMs, restedMs, early, over }: Hold): Promise<void> {
    const { clock } = this.#options
    await clock.sleep(untilMs - clock.monotonicMs(), early.signal)
    const leftMs = restedMs - clock.monotonicMs()
    if (leftMs > 0) await clock.sleep(leftMs, over.signal)
  }

  async #giveBack(key: string | undefined, hold: Hold): Promise<void> {
    hold.isGivingBack = true
    const leftMs = this.#isClosed ? hold.untilMs - this.#options.clock.monotonicMs() : 0
    const seconds = Math.min(600, Math.max(0, Math.ceil(leftMs / 1000)))
    while (hold.members.length > 0) {
      const members = hold.members.splice(0)
      await this.#options.giveBack(members, seconds)
    }
    this.#holds.delete(hold)
    if (key !== undefined && this.#byKey.get(key) === hold) this.#byKey.delete(key)
  }

  /** What rests or is being given back makes its room soon, and drives out nobody else meanwhile. */
  #limit(): void {
    const { maxHeld, maxHeldBytes } = this.#options
    const staying = [...this.#holds].filter((hold) => !hold.isGivingBack && !hold.early.signal.aborted)
    const members = staying.flatMap((hold) => hold.members)
    const bytes = members.reduce((sum, delivery) => sum + delivery.bytes, 0)
    if (members.length <= maxHeld && bytes <= maxHeldBytes) return
    staying.toSorted((a, b) => a.untilMs - b.untilMs)[0]?.early.abort()
  }
}

function end({ early, over }: Hold): void {
  early.abort()
  over.abort()
}
