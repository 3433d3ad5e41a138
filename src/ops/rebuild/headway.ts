/**
 * Whether a rebuild gets on, and what its engine last complained of.
 *
 * It does if less is missing than ever before. Until the feed is through it does with every batch and every dead letter as well:
 * an aggregate with a long history is missing until the end of it. After that such are new traffic, or come again and again, as
 * those of an aggregate that is held. A message that is given back for ever is none of it. While the consumer is paused nothing
 * can get on, and that time does not count.
 */
import { redactedMessage } from '../../core/redact.ts'
import { createSignals, type SignalBus, type SignalName, type Signals } from '../../core/signals.ts'

export interface Look {
  readonly nowMs: number
  readonly isThrough: boolean
  /** Aggregates with which the new generation is behind, and not only since a moment ago. */
  readonly missing: number
}

export class Headway {
  /** For the engine: its own, because those of the consumer tell of another lag. */
  readonly signals: SignalBus = createSignals()
  #settled = 0
  #isPaused = false
  #lastError: string | undefined
  #before: { readonly settled: number; readonly missing: number; readonly isThrough: boolean; readonly movedMs: number }

  constructor(nowMs: number) {
    this.#before = { settled: 0, missing: Infinity, isThrough: false, movedMs: nowMs }
    this.signals.on('consumer.applied', () => (this.#settled += 1))
    this.signals.on('consumer.dead', () => (this.#settled += 1))
    this.signals.on('consumer.paused', ({ paused }) => (this.#isPaused = paused))
    this.signals.onAny((event) => (this.#lastError = complaint(event) ?? this.#lastError))
  }

  /** Takes a look, and tells for how long it has not got on. */
  stillMs({ nowMs, isThrough, missing }: Look): number {
    const before = this.#before
    const settled = this.#settled
    const isFed = !before.isThrough && settled > before.settled
    const movedMs = isFed || missing < before.missing || this.#isPaused ? nowMs : before.movedMs
    this.#before = { settled, missing: Math.min(missing, before.missing), isThrough, movedMs }
    return nowMs - movedMs
  }

  get lastError(): string | undefined {
    return this.#lastError
  }
}

function complaint(event: Signals[SignalName]): string | undefined {
  if (!('error' in event) || event.error === undefined) return undefined
  const error = redactedMessage(event.error)
  return 'eventType' in event && 'aggregateId' in event ? `${event.eventType} ${event.aggregateId}: ${error}` : error
}
