/**
 * Keeps leases alive: every third of a lease, those that need it are extended, as long as they are not settled.
 *
 * A lease is lost when no extension was confirmed before it ended (by our own monotonic clock, so a blocked event loop counts
 * too), when the service says so, or when its delivery was in hand for longer than `maxLeaseMs`.
 */
import type { Clock } from '../../../core/service/clock.ts'
import type { PubsubDelivery } from './delivery.ts'
import type { Settler } from './acks.ts'

/**
 * What a killed process held comes to another only when its lease ends, and each of its aggregates stands still until then. With
 * exactly-once delivery a lease of less than a minute would be lost to delays of the service itself.
 */
export function usualLeaseMs(isExactlyOnce: boolean): number {
  return isExactlyOnce ? 60_000 : 15_000
}

export interface LeaseOptions {
  readonly clock: Clock
  readonly settler: Settler
  readonly leaseMs: number
  readonly maxLeaseMs: number
  readonly onLost: (delivery: PubsubDelivery) => void
}

export class LeaseKeeper {
  readonly #options: LeaseOptions
  readonly #leased = new Set<PubsubDelivery>()

  constructor(options: LeaseOptions) {
    this.#options = options
  }

  get size(): number {
    return this.#leased.size
  }

  add(delivery: PubsubDelivery): void {
    this.#leased.add(delivery)
  }

  remove(delivery: PubsubDelivery): void {
    this.#leased.delete(delivery)
  }

  all(): readonly PubsubDelivery[] {
    return [...this.#leased]
  }

  /** Extends one lease; resolves to whether it is still ours. */
  async extend(delivery: PubsubDelivery): Promise<boolean> {
    const { clock, settler, leaseMs } = this.#options
    const askedAtMs = clock.monotonicMs()
    const outcome = await settler.modify(delivery.ackId, Math.round(leaseMs / 1000))
    if (outcome === 'confirmed') delivery.leaseUntilMs = Math.max(delivery.leaseUntilMs, askedAtMs + leaseMs)
    if (outcome === 'lost') this.#lose(delivery)
    return outcome !== 'lost'
  }

  /** Runs until `closed`. */
  async run(closed: AbortSignal): Promise<void> {
    const { clock, leaseMs, maxLeaseMs } = this.#options
    for (;;) {
      await clock.sleep(leaseMs / 3, closed)
      if (closed.aborted) return
      const nowMs = clock.monotonicMs()
      for (const delivery of this.#leased) {
        if (delivery.leaseUntilMs <= nowMs || nowMs - delivery.receivedAtMs >= maxLeaseMs) this.#lose(delivery)
        else if (delivery.leaseUntilMs - nowMs < (leaseMs * 5) / 6) void this.extend(delivery)
      }
    }
  }

  #lose(delivery: PubsubDelivery): void {
    if (this.#leased.delete(delivery)) this.#options.onLost(delivery)
  }
}
