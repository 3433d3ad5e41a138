/**
 * Whether a consumer's projections can be relied on: complete, and not too far behind.
 *
 * Complete is remembered in the register, for every process: it is set when a running instance has caught up for the first
 * time, and when a rebuild is swapped in. Lag is what this process sees, if the consumer runs in it: the age of the newest
 * event of its last batch. With nothing in hand and nothing new for a while it has caught up, whatever that age was.
 *
 * An instance that got nothing knows only of itself: others may have all the partitions, or all the lanes, and its broker may
 * not have begun. And what failed and was given back is in nobody's hand. Before it says complete for everybody, it must have heard
 * nothing for long enough, no error either, and the tables must show that no other is at work and that nothing rests.
 */
import type { BackoffOptions } from '../core/service/backoff.ts'
import type { Clock } from '../core/service/clock.ts'
import { execute, first, one, type Interruptible } from '../postgres/query/database.ts'
import { withDeadlines } from '../postgres/transaction/deadline.ts'
import { countVersions, markComplete, readRegister, type ReadScope } from './reads.sql.ts'
import { lookMs } from './waiting-room.ts'

export type NotReadyCode = 'unknown' | 'paused' | 'incomplete' | 'lagging'

export interface Readiness {
  readonly ready: boolean
  /** Why not; empty if ready. */
  readonly reasons: readonly { readonly code: NotReadyCode; readonly message: string }[]
  /** What to know of one that may be ready all the same; usually nothing. */
  readonly notes: readonly { readonly code: 'mixed-versions'; readonly message: string }[]
}

export interface ReadinessOptions extends ReadScope {
  readonly db: Interruptible
  readonly clock: Clock
  readonly readyLagMs: number
  readonly backoff: Pick<BackoffOptions, 'maxMs'>
}

/** Nothing came for this long, and nothing is in hand: there is nothing. */
const quietMs = 2_000
/** What any instance did shows when its batch commits. So tables and broker must be still for longer than a batch takes. */
const stillMs = 10_000
/** A broker that is out of reach is still as well, and errors come as seldom as a transport tries: longer than it ever rests. */
const calmMs = 60_000

/** What a running instance sees of its own progress. */
export class ReadinessWatch {
  readonly #options: ReadinessOptions
  /** Or that it waits for the broker; `undefined` if it does not run here. */
  #isIdle: (() => boolean) | 'opening' | undefined
  #changedAtMs = 0
  #disturbedAtMs = -Infinity
  #lagMs: number | undefined

  constructor(options: ReadinessOptions) {
    // A probe that nobody answers is made again and again: none of them may keep its connection.
    this.#options = { ...options, db: withDeadlines(options.db, { statementMs: lookMs, clock: options.clock }) }
  }

  /** It runs, and waits for the broker: there may be any number of messages. */
  opening(): void {
    this.#isIdle = 'opening'
  }

  /** Deliveries come from now on; `isIdle` tells whether any is in hand. */
  opened(isIdle: () => boolean): void {
    this.#isIdle = isIdle
    this.#lagMs = undefined
    this.#changedAtMs = this.#options.clock.monotonicMs()
  }

  closed(): void {
    this.#isIdle = undefined
  }

  /** A batch committed; its newest event occurred at this moment. */
  applied(newestOccurredAtMs: number): void {
    this.#lagMs = Math.max(0, this.#options.clock.nowMs() - newestOccurredAtMs)
    this.#changedAtMs = this.#options.clock.monotonicMs()
  }

  /** The broker could not be reached, or something was given back and rests for so long: silence says nothing. */
  disturbed(restMs = 0): void {
    this.#disturbedAtMs = Math.max(this.#disturbedAtMs, this.#options.clock.monotonicMs() + restMs)
  }

  async readiness(): Promise<Readiness> {
    const { db, consumer } = this.#options
    const register = await first(db, readRegister(this.#options))
    if (register === undefined) return notReady('unknown', `Consumer ${consumer} has never run on this schema.`)
    const caughtUp = this.isCaughtUp()
    const reasons: { readonly code: NotReadyCode; readonly message: string }[] = []
    if (register.paused) reasons.push({ code: 'paused', message: `Consumer ${consumer} is paused by an operator.` })
    const complete = register.complete || (caughtUp === true && (await this.#markComplete()))
    if (!complete)
      reasons.push({ code: 'incomplete', message: `The projections of ${consumer} are being filled for the first time.` })
    if (caughtUp === false && register.complete) reasons.push({ code: 'lagging', message: this.#lagging() })
    return { ready: reasons.length === 0, reasons, notes: await this.#notes() }
  }

  /** A deploy that is half done makes nobody unready: then it could not be ended. */
  async #notes(): Promise<Readiness['notes']> {
    const { db, consumer } = this.#options
    const { versions } = await one(db, countVersions(this.#options))
    if (versions < 2) return []
    const message = `Mixed versions: the running instances of ${consumer} read different streams or event types, in ${versions} versions. What only some of them know is put aside for those.`
    return [{ code: 'mixed-versions', message }]
  }

  /** `undefined` if the consumer does not run here. */
  isCaughtUp(): boolean | undefined {
    if (this.#isIdle === undefined) return undefined
    if (this.#isIdle === 'opening') return false
    const { clock, readyLagMs } = this.#options
    const sameMs = clock.monotonicMs() - this.#changedAtMs
    if (this.#isIdle()) return sameMs >= quietMs || this.#isFresh()
    return this.#isFresh() && sameMs <= readyLagMs
  }

  /** Its last events were new when they were applied. */
  #isFresh(): boolean {
    return (this.#lagMs ?? Infinity) <= this.#options.readyLagMs
  }

  /** Neither anything applied nor an error for a while. That it opened a moment ago is no silence. */
  #isStill(): boolean {
    const nowMs = this.#options.clock.monotonicMs()
    return nowMs - this.#changedAtMs >= stillMs && nowMs - this.#disturbedAtMs >= calmMs
  }

  /** With new events coming there is always something under way; without, nobody must have anything. */
  async #markComplete(): Promise<boolean> {
    const { db, readyLagMs, backoff } = this.#options
    if (!this.#isFresh() && !this.#isStill()) return false
    const restMs = Math.max(calmMs, 2 * backoff.maxMs)
    const stillness = this.#isFresh() ? { dueMs: readyLagMs } : { stillMs, restMs }
    return (await execute(db, markComplete(this.#options, stillness))) > 0
  }

  #lagging(): string {
    const { consumer, readyLagMs } = this.#options
    if (this.#isIdle === 'opening') return `Consumer ${consumer} waits for the broker: what it has missed is not known yet.`
    const age =
      this.#lagMs === undefined ? 'It has not caught up since it was started' : `Its last events were ${this.#lagMs} ms old`
    return `Consumer ${consumer} is behind: ${age}; ready means ${readyLagMs} ms at most.`
  }
}

function notReady(code: NotReadyCode, message: string): Readiness {
  return { ready: false, reasons: [{ code, message }], notes: [] }
}
