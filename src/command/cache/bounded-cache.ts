/**
 * A cache that cannot hurt: every call is bounded in time, every failure is swallowed and reported, and after one the cache is
 * left out for a while, then tried by one call at a time.
 *
 * What it holds that is not ours (a wrong seal, a wrong shape) counts as nothing, and gives way to the first entry that is.
 *
 * A claim that came too late may still have been set. So the end of a claim that was sent is sent too, although the cache is left
 * out by then: otherwise a repeat would be told for long that the request is under way.
 */
import { createBreaker } from '../../core/service/breaker.ts'
import type { Clock } from '../../core/service/clock.ts'
import { defaults } from '../../core/defaults.ts'
import { WaybillError } from '../../core/errors.ts'
import type { Random } from '../../core/service/random.ts'
import type { SignalBus, Signals } from '../../core/signals.ts'
import { entryTexts, type CacheEntry, type CommandCache, type CompletedEntry, type PendingEntry } from './cache.ts'

export interface GuardedCache {
  /** Whether an entry that is found was written by one of us: it is sealed, or nobody else can write. */
  readonly isProved: boolean
  /** `claimed`, or what somebody else set, or `unknown`: go on without. */
  claim(key: string, pending: PendingEntry): Promise<'claimed' | 'unknown' | CacheEntry>
  /** Says that the run of this entry still lives. */
  renew(key: string, pending: PendingEntry, nowMs: number): Promise<void>
  complete(key: string, pending: CacheEntry, completed: CompletedEntry): Promise<void>
  release(key: string, pending: CacheEntry): Promise<void>
}

export interface GuardOptions {
  readonly budgetMs: number
  readonly pendingTtlMs: number
  readonly completedTtlMs: number
  /** Seals the entries; undefined leaves them open. */
  readonly secret: string | undefined
  /** Responses are kept as plain JSON. */
  readonly isPlain: boolean
  readonly maxResponseBytes: number
  readonly signals: SignalBus
  readonly clock: Clock
  readonly random: Random
}

type Operation = Signals['command.cache-failed']['operation']

/** No cache: the database decides alone. */
export const noCache: GuardedCache = {
  isProved: true,
  claim: async () => 'unknown',
  renew: async () => undefined,
  complete: async () => undefined,
  release: async () => undefined,
}

export function guardCache(cache: CommandCache, options: GuardOptions): GuardedCache {
  const { budgetMs, pendingTtlMs, completedTtlMs, signals, clock, random } = options
  // A response is text inside of JSON, which doubles its quotes at most; a token and the rest are short.
  const { secret, isPlain } = options
  const texts = entryTexts({ secret, isPlain, maxLength: 2 * options.maxResponseBytes + 16_384 })
  /** What stands in the place of an entry, if that is not the entry's own text. */
  const inPlaceOf = new WeakMap<CacheEntry, string>()
  const textOf = (key: string, entry: CacheEntry): string => inPlaceOf.get(entry) ?? texts.write(key, entry)
  const breaker = createBreaker({
    backoff: defaults.command.cacheBackoff,
    clock,
    random,
    onChange: (state) => signals.emit('command.cache-breaker', { state }),
  })
  const sent = new WeakSet<CacheEntry>()
  const isProved = secret !== undefined || cache.isPrivate === true
  let isToldOf = isProved
  let isProbing = false

  const guarded = async <Result>(operation: Operation, call: () => Promise<Result>): Promise<Result | 'unknown'> => {
    const state = breaker.state()
    if (state === 'open' || (state === 'probing' && isProbing)) return 'unknown'
    isProbing = state === 'probing'
    try {
      return await tried(operation, call)
    } finally {
      if (state === 'probing') isProbing = false
    }
  }
  const tried = async <Result>(operation: Operation, call: () => Promise<Result>): Promise<Result | 'unknown'> => {
    try {
      const result = await within(budgetMs, operation, call)
      breaker.succeeded()
      return result
    } catch (error) {
      // What was under way when it opened is the same failure, not another one.
      if (breaker.state() !== 'open') breaker.failed()
      signals.emit('command.cache-failed', { operation, error })
      return 'unknown'
    }
  }
  /** The end of a claim: sent whatever the breaker says, if the claim was. */
  const ended = (pending: CacheEntry): typeof guarded => (sent.has(pending) ? tried : guarded)
  return {
    isProved,
    claim: async (key, pending) => {
      if (!isToldOf) signals.emit('command.cache-unsealed', { option: 'cacheSecret' })
      isToldOf = true
      const own = texts.write(key, pending)
      const found = await guarded('claim', () => {
        sent.add(pending)
        return cache.claim(key, own, { ttlMs: pendingTtlMs })
      })
      // A client that lost its connection sends the claim again, and the second meets the first.
      if (found === undefined || found === own) return 'claimed'
      if (found === 'unknown') return found
      const entry = texts.read(key, found)
      inPlaceOf.set(entry ?? pending, found)
      return entry ?? 'unknown'
    },
    renew: async (key, pending, nowMs) => {
      await guarded('renew', () => {
        sent.add(pending)
        const before = textOf(key, pending)
        pending.aliveAtMs = nowMs
        inPlaceOf.delete(pending)
        return cache.complete(key, before, { value: texts.write(key, pending), ttlMs: pendingTtlMs })
      })
    },
    complete: async (key, pending, completed) => {
      const value = texts.write(key, completed)
      await ended(pending)('complete', () => cache.complete(key, textOf(key, pending), { value, ttlMs: completedTtlMs }))
    },
    release: async (key, pending) => void (await ended(pending)('release', () => cache.release(key, textOf(key, pending)))),
  }
}

/** The time is the caller's, not the cache's: what comes later is not waited for. */
function within<Result>(budgetMs: number, operation: Operation, call: () => Promise<Result>): Promise<Result> {
  return new Promise((done, fail) => {
    const timer = setTimeout(
      () => fail(new WaybillError('TIMEOUT', `The command cache did not answer ${operation} within ${budgetMs} ms.`)),
      budgetMs,
    )
    call()
      .then(done, (error: unknown) => fail(error instanceof Error ? error : new Error(String(error))))
      .finally(() => clearTimeout(timer))
  })
}
