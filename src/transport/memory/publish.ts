/**
 * How messages reach the in-memory broker: at once when all is well, or by requests that can go wrong in every way that
 * requests to a real broker do.
 */
import type { Clock } from '../../core/service/clock.ts'
import { isWaybillError, WaybillError } from '../../core/errors.ts'
import { randomInt } from '../../core/service/random.ts'
import { untilAborted } from '../../core/service/abort.ts'
import type { MemoryBroker } from './broker.ts'
import type { Dice } from './faults.ts'
import { messageBytes, type RunSender } from '../port/publish-runs.ts'
import type { OutgoingMessage, PublishOptions, PublishOutcome } from '../port/transport.ts'

/** `refuse`: requests fail at once. `hang`: they never end by themselves. `lie`: they land, and fail all the same. */
export type Outage = 'none' | 'refuse' | 'hang' | 'lie'

export interface PublishingOptions {
  readonly broker: MemoryBroker
  readonly dice: Dice
  readonly clock: Clock
  readonly maxBytes: number
  readonly latencyMs: number
  readonly lateMs: number
  readonly rejects: (message: OutgoingMessage) => boolean
}

export class MemoryPublishing implements RunSender {
  readonly maxRequestMessages = 1_000
  readonly maxConcurrentRequests = 64
  readonly maxRequestBytes: number
  readonly #options: PublishingOptions
  readonly #late = new Set<Promise<void>>()
  outage: Outage = 'none'
  missing: ReadonlySet<string> = new Set()
  rejects: (message: OutgoingMessage) => boolean

  constructor(options: PublishingOptions) {
    this.#options = options
    this.rejects = options.rejects
    this.maxRequestBytes = options.maxBytes
  }

  isRejection(error: unknown): boolean {
    return isWaybillError(error, 'REJECTED')
  }

  isUnroutable(error: unknown): boolean {
    return isWaybillError(error, 'NOT_FOUND')
  }

  /** The fast way, when nothing can go wrong but the messages themselves: each is a request of its own. */
  publishAtOnce(messages: readonly OutgoingMessage[], { signal, maySend }: PublishOptions): readonly PublishOutcome[] {
    const stopped = new Set<string>()
    let sending = true
    return messages.map((message): PublishOutcome => {
      if (stopped.size > 0 && stopped.has(keyOf(message))) return { status: 'not-sent' }
      sending &&= !signal.aborted && maySend()
      if (!sending) return { status: 'not-sent' }
      const error = this.#refusal(message)
      if (error === undefined) return { status: 'confirmed', messageId: this.#options.broker.land(message) }
      if (message.orderingKey !== undefined) stopped.add(keyOf(message))
      return { status: 'rejected', error }
    })
  }

  async send(messages: readonly OutgoingMessage[], signal: AbortSignal): Promise<readonly string[]> {
    const { dice } = this.#options
    if (this.outage === 'hang') await untilAborted(signal)
    if (this.outage === 'hang' || this.outage === 'refuse') throw unavailable('the broker is down')
    const topic = messages[0]?.topic ?? ''
    if (this.missing.has(topic)) throw new WaybillError('NOT_FOUND', `There is no topic ${topic}.`)
    for (const message of messages) {
      const refusal = this.#refusal(message)
      if (refusal !== undefined) throw refusal
    }
    if (dice.strikes('failPublish')) throw unavailable('the request got lost')
    if (dice.strikes('landLate')) {
      this.#landLate(messages)
      throw unavailable('the request took too long')
    }
    if (this.outage !== 'lie' && !dice.strikes('lieOnPublish')) return await this.#confirm(messages, signal)
    const landed = this.outage === 'lie' ? messages.length : randomInt(dice.random, 1, messages.length)
    for (const message of messages.slice(0, landed)) this.#options.broker.land(message)
    throw unavailable('the answer got lost')
  }

  /** Resolves when no late landing is on its way any more. */
  async quiet(): Promise<void> {
    while (this.#late.size > 0) await Promise.all(this.#late)
  }

  async #confirm(messages: readonly OutgoingMessage[], signal: AbortSignal): Promise<readonly string[]> {
    const { broker, dice, clock, latencyMs } = this.#options
    const ids = messages.map((message) => broker.land(message))
    if (dice.strikes('duplicatePublish')) {
      if (dice.random.next() < 0.5) for (const message of messages) broker.land(message)
      else this.#landLate(messages)
    }
    if (latencyMs === 0) return ids
    await clock.sleep(latencyMs, signal)
    if (signal.aborted) throw unavailable('the call was given up before the answer came')
    return ids
  }

  #landLate(messages: readonly OutgoingMessage[]): void {
    const { broker, clock, dice, lateMs } = this.#options
    const landing = clock.sleep(dice.random.next() * lateMs).then(() => {
      for (const message of messages) broker.land(message)
      this.#late.delete(landing)
    })
    this.#late.add(landing)
  }

  #refusal(message: OutgoingMessage): WaybillError | undefined {
    const { maxBytes } = this.#options
    const bytes = messageBytes(message)
    if (bytes > maxBytes)
      return new WaybillError('REJECTED', `memory: the message has ${bytes} bytes, more than the ${maxBytes} allowed.`)
    return this.rejects(message) ? new WaybillError('REJECTED', 'memory: the broker refuses this message.') : undefined
  }
}

export function unavailable(why: string): WaybillError {
  return new WaybillError('UNAVAILABLE', `memory: ${why}.`)
}

function keyOf({ topic, orderingKey }: OutgoingMessage): string {
  return orderingKey === undefined ? '' : `${topic}\u0000${orderingKey}`
}
