/**
 * Removes the payloads of a claim check when no event can refer to them any more.
 *
 * It goes by age alone: what was last written longer ago than `keepMs`. References are not counted, because they are in more
 * places than one can look: outboxes, brokers, inboxes, dead letters. So `keepMs` must exceed the longest time that an event
 * may wait, unpublished or as a dead letter, or be replayed from. Bytes that a rolled-back transaction left go the same way.
 */
import type { BlobStore } from '../core/encoding/blob-store.ts'
import { systemClock, type Clock } from '../core/service/clock.ts'
import { defaults } from '../core/defaults.ts'
import type { Service } from '../core/service/lifetime.ts'
import { loop, type Pass } from '../core/service/loop.ts'
import { resolve, wholeBetween } from '../core/options.ts'
import { defaultSignals, type SignalBus } from '../core/signals.ts'

export interface BlobRetentionOptions {
  readonly store: Pick<Required<BlobStore>, 'expire'>
  /** How long a payload is kept after it was last written. @default 90 days */
  readonly keepMs?: number
  /** @default 3_600_000 */
  readonly idleMs?: number
  readonly signals?: SignalBus
  readonly clock?: Clock
}

export interface BlobRetention extends Service {
  /** Removes one batch; `more` if there may be another. */
  readonly pass: Pass
}

/** A service beside the relay; any number of instances share the work. */
export function createBlobRetention(options: BlobRetentionOptions): BlobRetention {
  const { store, keepMs, idleMs, signals, clock } = resolve<Required<BlobRetentionOptions>>(
    'blob retention',
    { store: options.store, ...defaults.blobRetention, signals: defaultSignals, clock: systemClock },
    options,
    {
      store: (given) =>
        typeof given?.expire === 'function' || 'must be able to expire; buckets do it by a lifecycle rule of their own',
      keepMs: wholeBetween(60_000, 10 * 365 * 86_400_000),
      idleMs: wholeBetween(1, 86_400_000),
    },
  )
  const name = 'blob retention'
  const pass: Pass = async () => {
    const count = await store.expire(keepMs)
    if (count > 0) signals.emit('blobs.expired', { count })
    return count > 0 ? 'more' : 'idle'
  }
  return {
    name,
    pass,
    run: (life) =>
      loop(pass, life, {
        idleMs: () => idleMs,
        onError: (error, failures, delayMs) => signals.emit('service.failed', { service: name, error, failures, delayMs }),
        clock,
      }),
  }
}
