/**
 * Who is told of what a running consumer does: its own parts, and those that judge it from outside (readers that wait, readiness and
 * liveness).
 */
import type { Pulse } from '../../core/service/heartbeat.ts'
import type { Applied, Item, UnreadItem } from './batch-item.ts'

/** What the work on batches tells the rest of a consumer. */
export interface BatchEvents {
  /** The effects of these items are committed. */
  committed(items: readonly Item[], applied: Applied): void
  /** A handler of this item ran out of time. */
  timedOut(item: UnreadItem): void
  /** An item was given back and rests for so long: the ones behind it in line are given back as well. */
  returned(item: UnreadItem, restMs: number): void
  /** An ack is under way, which never rejects: the next batch need not wait for the broker's answer. */
  acking(acked: Promise<void>): void
}

export interface ConsumerObserver {
  /** The broker is asked for deliveries; until it is `opened`, it is unknown how much there is. */
  opening?(): void
  /** Deliveries come from now on; `isIdle` tells whether any is in hand. */
  opened(isIdle: () => boolean): void
  closed(): void
  /** The broker could not be reached, or not read from; or something was given back, and rests for so long. */
  disturbed?(restMs?: number): void
  /** The effects of these items are committed. */
  committed(items: readonly Item[]): void
  /** Goes with the loop over what is stored: it goes round even when nothing comes. */
  readonly pulse?: Pulse
}
