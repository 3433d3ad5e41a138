/**
 * Where a simulation takes place: time stands still until the schedule moves it, and nothing happens but by its choice.
 *
 * Every answer of the store or the broker and every look at the clock is a task of fast-check's scheduler, which picks one at
 * a time. All that the task sets free runs to its next wait before another is picked. So a seed is a history, and the trace
 * of a history, which is what its hash is made of, is the same whenever the seed is.
 */
import { createHash } from 'node:crypto'
import { setImmediate as turn } from 'node:timers/promises'
import type { Scheduler } from 'fast-check'

interface Sleeper {
  readonly dueMs: number
  readonly wake: () => void
}

export class Stage {
  readonly #scheduler: Scheduler
  readonly #asleep = new Set<Sleeper>()
  readonly #hash = createHash('sha256')
  readonly trace: string[] = []
  #planned: { readonly at: number; readonly happen: () => void }[] = []
  #elapsedMs = 0
  #isTickDue = false
  steps = 0

  constructor(scheduler: Scheduler) {
    this.#scheduler = scheduler
  }

  get elapsedMs(): number {
    return this.#elapsedMs
  }

  /** Resolves when the schedule comes to it. */
  async step(what: string): Promise<void> {
    await this.#scheduler.schedule(Promise.resolve(), what)
    this.note(what)
  }

  /** A line of the history. */
  note(what: string): void {
    this.#hash.update(what).update('\n')
    if (this.trace.push(what) > longestTrace) this.trace.shift()
  }

  /** What happened, as one text that is the same for the same history. */
  hash(): string {
    return this.#hash.copy().digest('hex').slice(0, 16)
  }

  sleep(ms: number, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      if (signal?.aborted === true) return resolve()
      const wake = (): void => {
        this.#asleep.delete(sleeper)
        signal?.removeEventListener('abort', wake)
        resolve()
      }
      const sleeper: Sleeper = { dueMs: this.#elapsedMs + Math.max(0, ms), wake }
      this.#asleep.add(sleeper)
      signal?.addEventListener('abort', wake, { once: true })
    })
  }

  /** Makes something happen at a step of the schedule. */
  plan(at: number, happen: () => void): void {
    this.#planned.push({ at, happen })
  }

  /** Whether all that was planned has happened. */
  get isOver(): boolean {
    return this.#planned.length === 0
  }

  /** Moves time; whoever falls due is woken when the schedule looks at the clock. */
  leap(ms: number): void {
    this.#elapsedMs += ms
  }

  /** Lets the schedule pick, until `done` says so; `false` if that took more than `maxSteps`. */
  async run(done: () => boolean, maxSteps: number): Promise<boolean> {
    for (let left = maxSteps; left > 0; left -= 1) {
      await turn()
      if (done()) return true
      this.#offerTick()
      if (this.#scheduler.count() === 0) return done()
      this.steps += 1
      this.#happen()
      await this.#scheduler.waitOne()
    }
    return done()
  }

  #happen(): void {
    const due = this.#planned.filter(({ at }) => at <= this.steps)
    if (due.length === 0) return
    this.#planned = this.#planned.filter(({ at }) => at > this.steps)
    for (const { happen } of due) happen()
  }

  /** The clock is one task among the others: looked at, it goes on to the next moment that somebody waits for. */
  #offerTick(): void {
    if (this.#isTickDue || this.#asleep.size === 0) return
    this.#isTickDue = true
    void this.#scheduler.schedule(Promise.resolve(), 'clock').then(() => {
      this.#isTickDue = false
      let next: Sleeper | undefined
      for (const sleeper of this.#asleep) if (next === undefined || sleeper.dueMs < next.dueMs) next = sleeper
      if (next === undefined) return
      this.#elapsedMs = Math.max(this.#elapsedMs, next.dueMs)
      this.note(`clock ${this.#elapsedMs.toFixed(3)}`)
      next.wake()
    })
  }
}

/** What is shown of a failed history. */
const longestTrace = 400
