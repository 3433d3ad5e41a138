/**
 * A process in a simulation: what it asks of the world takes time, may get lost, and ends when the process is killed.
 *
 * A question is on its way to the other side (it may never arrive), is answered there, and the answer is on its way back (it
 * may get lost). A killed process hears nothing more; what it had asked may still happen.
 */
import type { Clock } from '../../src/core/service/clock.ts'
import type { Stage } from './stage.ts'
import { connectionLost } from './store/database-failure.ts'

/** One question under way. */
interface Call {
  isCut: boolean
  /** Whether a question that was cut off on its way still arrives. */
  arrives: boolean
  readonly cut: PromiseWithResolvers<'cut'>
}

const startMs = Date.UTC(2025, 0, 1)

export class Actor {
  readonly name: string
  readonly clock: Clock
  readonly #stage: Stage
  readonly #calls = new Set<Call>()
  readonly #onCut = new Set<() => void>()
  readonly #onDeath: (() => void)[] = []
  isAlive = true

  constructor(name: string, stage: Stage) {
    this.name = name
    this.#stage = stage
    this.clock = {
      nowMs: () => Math.floor(startMs + stage.elapsedMs),
      monotonicMs: () => stage.elapsedMs,
      sleep: (ms, signal) => this.heard(stage.sleep(ms, signal)),
    }
  }

  /** Asks `serve` of the other side. Rejects as if the connection was lost when it was. */
  async ask<Answer>(what: string, serve: () => Promise<Answer>): Promise<Answer> {
    const call: Call = { isCut: false, arrives: false, cut: Promise.withResolvers() }
    this.#calls.add(call)
    try {
      await this.#stage.step(`${this.name}: ${what} ▸`)
      if (call.isCut && !call.arrives) return await this.#lost()
      const served = serve()
      served.catch(() => undefined)
      await Promise.race([served.catch(() => undefined), call.cut.promise])
      await this.#stage.step(`${this.name}: ${what} ◂`)
      if (call.isCut) return await this.#lost()
      return await this.heard(served)
    } finally {
      this.#calls.delete(call)
    }
  }

  /** Something that a dead process never hears of. */
  async heard<Answer>(answer: Promise<Answer>): Promise<Answer> {
    try {
      const value = await answer
      return this.isAlive ? value : await never()
    } catch (error) {
      if (!this.isAlive) return await never()
      throw error
    }
  }

  /** Cuts every connection. `arrives` tells whether what is on its way still reaches the other side. */
  cut(arrives: boolean): void {
    for (const call of this.#calls) {
      call.isCut = true
      call.arrives = arrives
      call.cut.resolve('cut')
    }
    for (const listener of this.#onCut) listener()
  }

  /** Ends the process between two of its steps. */
  kill(arrives: boolean): void {
    this.isAlive = false
    this.cut(arrives)
    for (const listener of this.#onDeath) listener()
  }

  onDeath(listener: () => void): void {
    this.#onDeath.push(listener)
  }

  /** Told of every cut, until the returned function is called. */
  onCut(listener: () => void): () => void {
    this.#onCut.add(listener)
    return () => void this.#onCut.delete(listener)
  }

  async #lost(): Promise<never> {
    if (!this.isAlive) return await never()
    throw connectionLost()
  }
}

function never(): Promise<never> {
  return new Promise(() => undefined)
}
