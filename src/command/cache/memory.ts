/**
 * A command cache in this process: for one instance, for development, and for tests.
 *
 * It is bounded in bytes: the oldest entries go first. With several instances each has its own, and repeats that reach
 * another one are answered by the database.
 */
import { systemClock, type Clock } from '../../core/service/clock.ts'
import { defaults } from '../../core/defaults.ts'
import { resolve, wholeBetween } from '../../core/options.ts'
import type { CommandCache } from './cache.ts'

export interface MemoryCacheOptions {
  /** Keys and values together take at most this much. @default 33_554_432 */
  readonly maxBytes?: number
  readonly clock?: Clock
}

export function memoryCache(options: MemoryCacheOptions = {}): CommandCache {
  const { maxBytes, clock } = resolve<Required<MemoryCacheOptions>>(
    'memoryCache',
    { ...defaults.memoryCache, clock: systemClock },
    options,
    { maxBytes: wholeBetween(1, Number.MAX_SAFE_INTEGER) },
  )
  const entries = new Map<string, { readonly value: string; readonly expiresAtMs: number }>()
  let bytes = 0

  const sizeOf = (key: string, value: string): number => 2 * (key.length + value.length)
  const remove = (key: string): void => {
    const entry = entries.get(key)
    if (entry === undefined) return
    bytes -= sizeOf(key, entry.value)
    entries.delete(key)
  }
  const get = (key: string): string | undefined => {
    const entry = entries.get(key)
    if (entry !== undefined && entry.expiresAtMs > clock.monotonicMs()) return entry.value
    remove(key)
    return undefined
  }
  const set = (key: string, value: string, ttlMs: number): void => {
    remove(key)
    entries.set(key, { value, expiresAtMs: clock.monotonicMs() + ttlMs })
    bytes += sizeOf(key, value)
    for (const oldest of entries.keys()) {
      if (bytes <= maxBytes) break
      remove(oldest)
    }
  }
  return {
    isPrivate: true,
    claim: async (key, value, { ttlMs }) => {
      const found = get(key)
      if (found === undefined) set(key, value, ttlMs)
      return found
    },
    complete: async (key, pending, { value, ttlMs }) => {
      const found = get(key)
      if (found === undefined || found === pending) set(key, value, ttlMs)
    },
    release: async (key, pending) => {
      if (get(key) === pending) remove(key)
    },
  }
}
