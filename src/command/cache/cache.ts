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
import { createHash, createHmac } from 'node:crypto'
import { isEqualSecret } from '../../core/equal-secret.ts'
import type { MarkerKey } from '../model/command.sql.ts'
import { readRejection } from '../model/rejection.ts'

/** A cache by its shape: values are opaque text. Each call is bounded in time by the caller. */
export interface CommandCache {
  /** Whether only this process can write to it: its entries need no seal. @default false */
  readonly isPrivate?: boolean
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

/** Entries as the text that stands in the cache, and back. */
export interface EntryTexts {
  write(key: string, entry: CacheEntry): string
  /** The entry, or undefined for anything that is not one of ours: it is treated as if nothing were there. */
  read(key: string, text: string): CacheEntry | undefined
}

/**
 * With a secret, an entry is sealed by a MAC (HMAC-SHA-256) over its key and itself: what was written without the secret, or taken
 * from another request, is not ours.
 */
export function entryTexts({
  secret,
  maxLength,
  isPlain = true,
}: {
  readonly secret: string | undefined
  readonly maxLength: number
  /** Responses are JSON here, not what a codec makes of it. @default true */
  readonly isPlain?: boolean
}): EntryTexts {
  const sealOf = (key: string, json: string): string =>
    createHmac('sha256', secret ?? '')
      .update(`waybill command cache\n${key}\n${json}`)
      .digest('base64url')
  return {
    write: (key, entry) => {
      const json = JSON.stringify(entry)
      return secret === undefined ? json : `${sealOf(key, json)}.${json}`
    },
    read: (key, text) => {
      if (text.length > maxLength) return undefined
      if (secret === undefined) return parseEntry(text, isPlain)
      const end = text.indexOf('.')
      const json = text.slice(end + 1)
      return end > 0 && isEqualSecret(text.slice(0, end), sealOf(key, json)) ? parseEntry(json, isPlain) : undefined
    },
  }
}

/** Read field by field: what has another shape than ours is not ours, and what answers a repeat can be answered. */
function parseEntry(json: string, isPlain: boolean): CacheEntry | undefined {
  const { state, fingerprint, token, aliveAtMs, rejected, response } = (parsed(json) ?? {}) as Record<string, unknown>
  if (typeof fingerprint !== 'string') return undefined
  if (state === 'pending')
    return typeof token === 'string' && Number.isFinite(aliveAtMs)
      ? { state, fingerprint, token, aliveAtMs: aliveAtMs as number }
      : undefined
  if (state !== 'completed' || typeof rejected !== 'boolean') return undefined
  if (token !== undefined && !isToken(token)) return undefined
  const kept = token === undefined ? {} : { token }
  if (response === undefined) return rejected ? undefined : { state, fingerprint, rejected, ...kept }
  if (typeof response !== 'string') return undefined
  const isAnswer =
    !isPlain || (rejected ? readRejection(response) !== undefined : response === '' || parsed(response) !== undefined)
  return isAnswer ? { state, fingerprint, rejected, response, ...kept } : undefined
}

/** What a header can carry. */
function isToken(value: unknown): value is string {
  return typeof value === 'string' && /^[!-~]{1,4096}$/.test(value)
}

function parsed(json: string): unknown {
  try {
    return JSON.parse(json) as unknown
  } catch {
    return undefined
  }
}
