/**
 * Faults on purpose: what a broker and a network do at their worst, by probability, switched on and off at run time.
 *
 * None of them breaks a promise of the protocol. A message may come twice, late or in another order across keys, an
 * acknowledgement may be forgotten, a stored publish may be reported as failed; nothing confirmed is lost, and the
 * order within a key holds. The same seed and the same traffic give the same faults.
 */
import type { Random } from './random.ts'
import { PubsubServerError } from './server-error.ts'

/** Probabilities from 0 to 1; what is left out does not happen. */
export interface FaultOptions {
  /** A delivered message comes a second time right behind itself. Never on exactly-once subscriptions. */
  readonly duplicate?: number
  /** A published message (with the key it belongs to) is held back for `delayMs`. */
  readonly delay?: number
  /** @default 200 */
  readonly delayMs?: number
  /** An acknowledgement is taken and forgotten; exactly-once subscriptions report a transient failure. */
  readonly dropAcks?: number
  /** The next message is taken from somewhere else in the backlog; the order within a key holds. */
  readonly reorder?: number
  /** A Publish is stored and answered with UNAVAILABLE or DEADLINE_EXCEEDED. */
  readonly publishError?: number
  /** A Publish, Pull, StreamingPull, Acknowledge or ModifyAckDeadline is refused with UNAVAILABLE. */
  readonly refuse?: number
  /** A stream ends with UNAVAILABLE right after a response. */
  readonly cutStreams?: number
}

export type FaultName = Exclude<keyof FaultOptions, 'delayMs'>

const faultNames: readonly FaultName[] = ['duplicate', 'delay', 'dropAcks', 'reorder', 'publishError', 'refuse', 'cutStreams']
const defaultDelayMs = 200

export class Faults {
  readonly #random: Random
  readonly #fired: Record<FaultName, number>
  #options: FaultOptions = {}
  #isOn = false

  constructor(random: Random, options: FaultOptions = {}) {
    this.#random = random
    this.#fired = { duplicate: 0, delay: 0, dropAcks: 0, reorder: 0, publishError: 0, refuse: 0, cutStreams: 0 }
    this.set(options)
  }

  get options(): FaultOptions {
    return this.#options
  }

  /** Whether any fault can strike. */
  get isOn(): boolean {
    return this.#isOn
  }

  /** How often each fault has struck since the start. */
  get fired(): Readonly<Record<FaultName, number>> {
    return this.#fired
  }

  /** Replaces the faults in force. */
  set(options: FaultOptions): void {
    for (const [name, value] of Object.entries(options) as Array<[string, unknown]>) {
      const isKnown = name === 'delayMs' || faultNames.some((known) => known === name)
      if (!isKnown)
        throw new PubsubServerError('INVALID_OPTION', `faults.${name}: unknown; known: ${[...faultNames, 'delayMs'].join(', ')}`)
      const limit = name === 'delayMs' ? 600_000 : 1
      if (typeof value !== 'number' || !(value >= 0 && value <= limit)) {
        throw new PubsubServerError('INVALID_OPTION', `faults.${name}: must be a number from 0 to ${limit}, not ${String(value)}`)
      }
    }
    this.#options = { ...options }
    this.#isOn = faultNames.some((name) => (options[name] ?? 0) > 0)
  }

  clear(): void {
    this.set({})
  }

  /** Whether the fault strikes now; counts it if so. */
  strikes(name: FaultName): boolean {
    if (!this.#isOn) return false
    const probability = this.#options[name] ?? 0
    if (probability === 0 || this.#random.next() >= probability) return false
    this.#fired[name] += 1
    return true
  }

  /** How long a message just published is held back. */
  publishDelayMs(): number {
    return this.strikes('delay') ? (this.#options.delayMs ?? defaultDelayMs) : 0
  }

  /** Which of `count` ready items goes next. */
  pick(count: number): number {
    return count > 1 && this.strikes('reorder') ? Math.floor(this.#random.next() * count) : 0
  }

  /** A coin, for faults that come in two kinds. */
  flip(): boolean {
    return this.#random.next() < 0.5
  }
}
