/**
 * The first of the three layers: a cache that answers repeats without a transaction. Never the truth.
 *
 *   (nothing) ──claim──▶ pending ──complete, after COMMIT──▶ completed
 *       ▲                   │
 *       └──release, expiry──┘
 *
 * It may forget, lie dead or answer late: then the database decides alone. A pending value carries a random token, and only
 * who knows it completes or releases it.
 */
import { createHash } from 'node:crypto'
import type { MarkerKey } from './command.sql.ts'

/** A cache by its shape: values are opaque text. Each call is bounded in time by the caller. */
export interface CommandCache {
  /** Sets `value` if the key is free and returns nothing; otherwise returns what is there. */
  claim(key: string, value: string, options: { readonly ttlMs: number }): Promise<string | undefined>
  /** Replaces `pending` by `value`; also sets it where the key is free. Never touches another's pending value. */
  complete(key: string, pending: string, options: { readonly value: string; readonly ttlMs: number }): Promise<void>
  /** Removes the key if it still holds `pending`. */
  release(key: string, pending: string): Promise<void>
}

/** What stands in the cache: a run under way, or the end of one that has committed. */
export type CacheEntry = PendingEntry | CompletedEntry

export interface PendingEntry {
  readonly state: 'pending'
  readonly fingerprint: string
  readonly token: string
  /** When the run last said that it lives, by the clock of its machine. It renews the entry while it plans. */
  aliveAtMs: number
}

export interface CompletedEntry {
  readonly state: 'completed'
  readonly fingerprint: string
  readonly rejected: boolean
  /** The response as JSON; absent where it was not kept. */
  readonly response?: string
  readonly token?: string
}

/** The key of a request: a hash, so that ids of any length and characters fit, and nobody's key can be another's. */
export function cacheKey(scope: string, { principal, requestId }: MarkerKey): string {
  return createHash('sha256')
    .update(JSON.stringify([scope, principal, requestId]))
    .digest('base64url')
}

export function encodeEntry(entry: CacheEntry): string {
  return JSON.stringify(entry)
}

/** The entry, or undefined for anything that is not one of ours: it is treated as if nothing were there. */
export function decodeEntry(text: string): CacheEntry | undefined {
  try {
    const entry = JSON.parse(text) as CacheEntry | null
    const isOurs = (entry?.state === 'pending' || entry?.state === 'completed') && typeof entry.fingerprint === 'string'
    return isOurs ? entry : undefined
  } catch {
    return undefined
  }
}
