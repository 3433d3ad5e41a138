/**
 * What a running consumer tells those who judge it from outside: readers that wait, readiness and liveness.
 */
import type { Pulse } from '../../core/service/heartbeat.ts'
import type { Item } from './batch-item.ts'

export interface EngineWatch {
  /** The broker is asked for deliveries; until it is `opened`, nobody knows how much there is. */
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
