/**
 * Waits until a consumer has reached versions of aggregates: any number of waiters, one query a tick.
 *
 * Nobody holds a connection while waiting. One loop asks for the positions of all awaited aggregates with one statement, at a
 * fixed pace, and runs only while somebody waits; a commit of this process ends the pause at once. Places are bounded, and
 * every wait ends by its own deadline, also when the database does not answer. A look that is not answered is given up after a
 * few seconds: its connection may be dead, and the next look goes out on another one.
 */
import { backoffMs } from '../core/service/backoff.ts'
import type { Clock } from '../core/service/clock.ts'
import { WaybillError } from '../core/errors.ts'
import { createWaker } from '../core/service/loop.ts'
import { systemRandom } from '../core/service/random.ts'
import type { AggregateVersion } from '../core/event/token.ts'
import { unlessLate } from '../core/service/abort.ts'
import type { Version } from '../core/event/version.ts'
import type { AggregateName } from './reads.sql.ts'

export interface WaitingRoomOptions {
  /** The version of each aggregate, in the order given; `undefined` for one that was not seen. */
  readonly look: (aggregates: readonly AggregateName[]) => Promise<readonly (Version | undefined)[]>
  /** The pause between two looks. */
  readonly pollMs: number
  readonly maxWaiters: number
  readonly clock: Clock
}

export interface WaitOptions {
  readonly waitMs: number
  readonly signal?: AbortSignal | undefined
}

type End = 'reached' | 'not-yet' | 'absurd' | 'aborted'

interface Waiter {
  readonly version: Version
  readonly settle: (end: End) => void
}

interface Group extends AggregateName {
  readonly waiters: Set<Waiter>
  seen: Version
}

/** Nobody writes an aggregate a thousand million times while a reader waits: such a token was made up. */
const absurdlyAhead = 1_000_000_000n
/** A look that is not answered for so long is given up: longer than a slow database takes for one. */
export const lookMs = 5_000
const forever = new AbortController().signal

export class WaitingRoom {
  readonly #options: WaitingRoomOptions
  readonly #groups = new Map<string, Group>()
  readonly #waker = createWaker()
  #count = 0
  #looking = false
  #failure: unknown

  constructor(options: WaitingRoomOptions) {
    this.#options = options
  }

  /** How many wait now. */
  get count(): number {
    return this.#count
  }

  /** Resolves when `at` is reached; NOT_YET at the deadline, OVERLOADED if there is no place, INVALID_INPUT if it is absurd. */
  async wait(at: AggregateVersion, { waitMs, signal }: WaitOptions): Promise<void> {
    const { maxWaiters, clock } = this.#options
    if (this.#count >= maxWaiters) throw overloaded(maxWaiters)
    const group = this.#group(at)
    const end = await new Promise<End>((resolve) => {
      const over = new AbortController()
      const waiter: Waiter = {
        version: at.version,
        settle: (how) => {
          if (!this.#leave(group, waiter)) return
          over.abort()
          resolve(how)
        },
      }
      group.waiters.add(waiter)
      this.#count += 1
      void clock.sleep(waitMs, over.signal).then(() => waiter.settle('not-yet'))
      signal?.addEventListener('abort', () => waiter.settle('aborted'), { once: true, signal: over.signal })
      if (signal?.aborted === true) waiter.settle('aborted')
      else if (!this.#looking) void this.#lookWhileAwaited()
    })
    if (end !== 'reached') throw failures[end](at, group.seen, this.#failure)
  }

  /** A transaction of this process moved these aggregates: look now, if somebody waits for one of them. */
  committed(aggregates: Iterable<AggregateName>): void {
    if (this.#count === 0) return
    for (const aggregate of aggregates) if (this.#groups.has(keyOf(aggregate))) return this.#waker.wake()
  }

  async #lookWhileAwaited(): Promise<void> {
    const { pollMs, clock } = this.#options
    this.#looking = true
    let failed = 0
    // Whoever comes in this same turn is part of the first look.
    await Promise.resolve()
    while (this.#groups.size > 0) {
      const since = this.#waker.count()
      try {
        await this.#look()
        this.#failure = undefined
        failed = 0
      } catch (error) {
        this.#failure = error
        failed += 1
      }
      const pauseMs = failed === 0 ? pollMs : backoffMs({ firstMs: pollMs, maxMs: 1_000 }, failed, systemRandom)
      if (this.#groups.size > 0) await this.#waker.sleep(pauseMs, { clock, signal: forever, since })
    }
    this.#looking = false
  }

  /** Throws if it failed, or took too long; what is seen too late still counts for those who wait. */
  async #look(): Promise<void> {
    const { look, clock } = this.#options
    const groups = [...this.#groups.values()]
    const seen = look(groups).then((versions) => this.#saw(groups, versions))
    if ((await unlessLate(seen, lookMs, clock)) !== undefined) return
    throw new WaybillError('TIMEOUT', `The database did not say within ${lookMs} ms how far the projection is.`)
  }

  #saw(groups: readonly Group[], versions: readonly (Version | undefined)[]): true {
    groups.forEach((group, i) => {
      group.seen = versions[i] ?? 0n
      for (const waiter of group.waiters) {
        if (waiter.version <= group.seen) waiter.settle('reached')
        else if (isAbsurd(waiter.version, group.seen)) waiter.settle('absurd')
      }
    })
    return true
  }

  #group(at: AggregateVersion): Group {
    const key = keyOf(at)
    const known = this.#groups.get(key)
    if (known !== undefined) return known
    const group = { aggregateType: at.aggregateType, aggregateId: at.aggregateId, waiters: new Set<Waiter>(), seen: 0n }
    this.#groups.set(key, group)
    return group
  }

  /** `false` if it had left before. */
  #leave(group: Group, waiter: Waiter): boolean {
    if (!group.waiters.delete(waiter)) return false
    this.#count -= 1
    if (group.waiters.size === 0) this.#groups.delete(keyOf(group))
    return true
  }
}

/** The projection is not there yet. */
export function notYet(at: AggregateVersion, seen: Version, cause?: unknown): WaybillError {
  const { aggregateType, aggregateId, version } = at
  return new WaybillError(
    'NOT_YET',
    `The projection has not reached version ${version} of ${aggregateType} ${aggregateId} yet. Ask again, wait for longer, or ask the owner.`,
    { cause, details: { aggregateType, aggregateId, wanted: String(version), seen: String(seen) } },
  )
}

/** A version that no writer can have reached. */
export function isAbsurd(version: Version, seen: Version): boolean {
  return version - seen > absurdlyAhead
}

/** It does not say what the aggregate is at: whoever makes up a token may not be somebody who reads that aggregate. */
export function absurd({ aggregateType, aggregateId, version }: AggregateVersion): WaybillError {
  return new WaybillError(
    'INVALID_INPUT',
    `Consistency token refused: it asks for version ${version} of ${aggregateType} ${aggregateId}, far beyond what there is. Sign tokens with createTokens({ secrets }).`,
  )
}

const failures = {
  'not-yet': notYet,
  absurd,
  aborted: (): WaybillError => new WaybillError('ABORTED', 'The reader gave up waiting for its consistency token.'),
} as const

/** More readers hold tokens than there are places. */
export function overloaded(maxWaiters: number): WaybillError {
  return new WaybillError(
    'OVERLOADED',
    `${maxWaiters} readers wait for consistency tokens already. Ask the owner, or raise maxWaiters if the projection is expected to lag.`,
  )
}

function keyOf({ aggregateType, aggregateId }: AggregateName): string {
  return `${aggregateType}\u0000${aggregateId}`
}
