/**
 * One direction of one connection through the fault proxy.
 *
 * Messages wait in a queue and leave it one by one, in order, each no sooner than the delay asks. An end or a reset
 * of the sender is queued like a message, so that a stalled pipe hides it too. Reading pauses while much is waiting.
 */
import { once } from 'node:events'
import type { Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'

import type { Direction, Framer } from './fault-proxy.ts'
import type { FaultRule, FaultRules } from './fault-rules.ts'

/** Faults that stay until they are healed; shared by all pipes of a direction. */
export interface LastingFaults {
  delayMs: number
  isDropping: boolean
  isStalled: boolean
}

interface PipeParts {
  readonly direction: Direction
  readonly from: Socket
  readonly to: Socket
  readonly frame: Framer
  readonly faults: LastingFaults
  readonly rules: FaultRules
  readonly cut: () => void
}

interface Arrival {
  readonly what: Buffer | 'end' | 'reset'
  readonly atMs: number
}

const maxQueued = 1_000

export class FaultPipe {
  /** The pipe that carries the answers. */
  opposite: FaultPipe | undefined
  readonly #parts: PipeParts
  readonly #queue: Arrival[] = []
  #isPumping = false
  #isStuck = false
  #wake = Promise.withResolvers<void>()
  #cutOnNext: FaultRule | undefined
  #bytes = 0
  #messages = 0

  constructor(parts: PipeParts) {
    this.#parts = parts
    const { from, frame } = parts
    from.on('data', (chunk) => {
      for (const message of frame(chunk)) this.#arrive(message)
      if (this.#queue.length > maxQueued) from.pause()
    })
    from.on('end', () => this.#arrive('end'))
    from.on('error', () => this.#arrive('reset'))
  }

  /** Messages that arrived and were not forwarded yet. */
  get waiting(): number {
    return this.#queue.length
  }

  /** Looks at the faults anew: they have changed, or the connection has been cut. */
  wake(): void {
    this.#wake.resolve()
    this.#wake = Promise.withResolvers<void>()
  }

  #arrive(what: Arrival['what']): void {
    this.#queue.push({ what, atMs: performance.now() })
    if (this.#isPumping) return
    this.#isPumping = true
    // The pump fails only with the sockets, and then there is nothing left to forward.
    this.#pump().catch(() => this.#parts.cut())
  }

  async #pump(): Promise<void> {
    const { from, to, faults } = this.#parts
    for (;;) {
      const next = this.#queue[0]
      if (next === undefined || to.destroyed) break
      const waitMs = next.atMs + faults.delayMs - performance.now()
      if (waitMs > 0) {
        await Promise.race([sleep(waitMs, undefined, { ref: false }), this.#wake.promise])
      } else if (faults.isStalled || this.#isStuck) {
        await this.#wake.promise
      } else {
        this.#queue.shift()
        if (from.isPaused() && this.#queue.length < maxQueued / 2) from.resume()
        if (!faults.isDropping) await this.#pass(next.what)
      }
    }
    this.#isPumping = false
  }

  async #pass(what: Arrival['what']): Promise<void> {
    const { direction, to, rules } = this.#parts
    if (what === 'end') return void to.end()
    if (what === 'reset') return void to.resetAndDestroy()
    if (this.#cutOnNext !== undefined) return this.#cut(this.#cutOnNext)
    const due = rules.take(direction, what, { bytes: this.#bytes, messages: this.#messages })
    if (due === undefined) return this.#forward(what)
    await this.#forward(what.subarray(0, due.forwardBytes))
    await this.#flushed()
    this.#act(due.rule)
  }

  async #forward(bytes: Buffer): Promise<void> {
    const { to } = this.#parts
    this.#bytes += bytes.length
    this.#messages += 1
    if (bytes.length === 0 || to.write(bytes)) return
    const stop = new AbortController()
    await Promise.race([once(to, 'drain', stop), once(to, 'close', stop)]).finally(() => stop.abort())
  }

  /** Closing a socket throws away what it has not sent yet, and a rule promises that what it forwards arrives. */
  #flushed(): Promise<void> {
    return new Promise((resolve) => void this.#parts.to.write('', () => resolve()))
  }

  #act(rule: FaultRule): void {
    if (rule.action === 'cut-reply') {
      if (this.opposite !== undefined) this.opposite.#cutOnNext = rule
    } else if (rule.action === 'stall') {
      this.#isStuck = true
      this.#parts.rules.count(rule.name)
    } else {
      this.#cut(rule)
    }
  }

  #cut(rule: FaultRule): void {
    this.#parts.cut()
    this.#parts.rules.count(rule.name)
  }
}
