/**
 * Facts between their arrival and the broker's word: bounded, gathered into batches, never forgotten.
 *
 *   push ──▶ waiting ──▶ under way (a few batches at once) ──▶ confirmed · rejected · unavailable
 *
 * What arrives together, or while all batches are under way, goes out together. Nothing is kept beyond the bounds: when too much
 * is in flight, when the oldest has waited too long, or when the broker is down, `refusal` says so before anything is taken.
 */
import { createBreaker, type Breaker } from '../core/service/breaker.ts'
import { underSignals } from '../core/service/abort.ts'
import type { PublishOutcome } from '../transport/port/transport.ts'
import type { Fact } from './fact.ts'
import { refused, type Refused } from './fact-outcome.ts'
import type { FactSink } from './fact-sink.ts'
import type { IngestSettings } from './ingest-options.ts'

interface Waiting {
  readonly fact: Fact
  readonly sinceMs: number
  readonly settle: (outcome: PublishOutcome) => void
}

export class FactQueue {
  readonly #sink: FactSink
  readonly #settings: IngestSettings
  readonly #breaker: Breaker
  readonly #giveUp = new AbortController()
  /** The start of the oldest fact of each batch that is under way. */
  readonly #underWay = new Set<{ readonly sinceMs: number }>()
  #waiting: Waiting[] = []
  #inFlight = 0
  #bytes = 0
  #isScheduled = false
  #isClosed = false
  /** Everything has its answer, for all who close. */
  readonly #emptied = Promise.withResolvers<void>()

  constructor(sink: FactSink, settings: IngestSettings) {
    const { breakerBackoff: backoff, clock, random, signals, event } = settings
    this.#sink = sink
    this.#settings = settings
    const onChange = (state: 'closed' | 'open' | 'probing'): void => signals.emit('ingest.breaker', { event: event.name, state })
    this.#breaker = createBreaker({ backoff, clock, random, onChange })
  }

  /** Why a fact of this size cannot be taken now; `undefined` if it can. */
  refusal(bytes = 0): Refused | undefined {
    const { maxInFlight, maxInFlightBytes, slowMs, retryAfterMs, clock } = this.#settings
    if (this.#isClosed) return refused('ABORTED', 'This instance is stopping. Send the fact again.', retryAfterMs)
    if (this.#breaker.state() === 'open')
      return refused('UNAVAILABLE', 'The broker is out of reach. Send the fact again.', this.#breaker.waitMs())
    if (this.#inFlight >= maxInFlight || (this.#inFlight > 0 && this.#bytes + bytes > maxInFlightBytes))
      return refused('OVERLOADED', 'Too many facts wait for the broker. Send this one again.', retryAfterMs)
    if (clock.monotonicMs() - this.#oldestMs() > slowMs)
      return refused('OVERLOADED', 'The broker is slow to confirm. Send the fact again.', retryAfterMs)
    return undefined
  }

  /** Resolves with the broker's word. Ask `refusal` first, without a pause in between. */
  push(fact: Fact): Promise<PublishOutcome> {
    this.#inFlight += 1
    this.#bytes += fact.bytes
    return new Promise((settle) => {
      this.#waiting.push({ fact, sinceMs: this.#settings.clock.monotonicMs(), settle })
      this.#schedule()
    })
  }

  /** Takes no more and waits for what is in flight; once `aborting` aborts, that is given up as unavailable. */
  async close(aborting?: AbortSignal): Promise<void> {
    this.#isClosed = true
    const giveUp = (): void => this.#giveUp.abort()
    if (aborting?.aborted === true) giveUp()
    aborting?.addEventListener('abort', giveUp, { once: true })
    if (this.#inFlight > 0) await this.#emptied.promise
    aborting?.removeEventListener('abort', giveUp)
  }

  /** Requests that came in the same turn of the event loop have all been read when this runs. */
  #schedule(): void {
    if (this.#isScheduled) return
    this.#isScheduled = true
    setImmediate(() => {
      this.#isScheduled = false
      this.#pump()
    })
  }

  #pump(): void {
    while (this.#waiting.length > 0) {
      const state = this.#breaker.state()
      if (state === 'open' || this.#giveUp.signal.aborted) return this.#settle(this.#waiting.splice(0), [])
      if (this.#underWay.size >= (state === 'probing' ? 1 : this.#settings.concurrency)) return
      void this.#send(this.#take())
    }
  }

  #take(): readonly Waiting[] {
    const { batchSize, batchBytes } = this.#settings
    let count = 0
    let bytes = 0
    for (const { fact } of this.#waiting) {
      if (count === batchSize || (count > 0 && bytes + fact.bytes > batchBytes)) break
      count += 1
      bytes += fact.bytes
    }
    return this.#waiting.splice(0, count)
  }

  async #send(batch: readonly Waiting[]): Promise<void> {
    const { clock, publishTimeoutMs, signals, event } = this.#settings
    const startedMs = clock.monotonicMs()
    const mark = { sinceMs: batch[0]?.sinceMs ?? startedMs }
    this.#underWay.add(mark)
    const done = new AbortController()
    const late = new AbortController()
    void clock.sleep(publishTimeoutMs, done.signal).then(() => late.abort())
    const facts = batch.map(({ fact }) => fact)
    const outcomes = await underSignals([late.signal, this.#giveUp.signal], (signal) => this.#sink.send(facts, signal))
    done.abort()
    this.#underWay.delete(mark)
    this.#judge(outcomes)
    const count = outcomes.filter(({ status }) => status === 'confirmed').length
    if (count > 0) signals.emit('ingest.accepted', { event: event.name, count, durationMs: clock.monotonicMs() - startedMs })
    this.#settle(batch, outcomes)
    this.#pump()
  }

  /** An answer about any fact, even a rejection, shows that the broker is there. */
  #judge(outcomes: readonly PublishOutcome[]): void {
    if (outcomes.some(({ status }) => status === 'confirmed' || status === 'rejected')) this.#breaker.succeeded()
    else if (this.#breaker.state() !== 'open') this.#breaker.failed()
  }

  #settle(batch: readonly Waiting[], outcomes: readonly PublishOutcome[]): void {
    batch.forEach(({ fact, settle }, index) => {
      this.#inFlight -= 1
      this.#bytes -= fact.bytes
      settle(outcomes[index] ?? { status: 'not-sent' })
    })
    if (this.#isClosed && this.#inFlight === 0) this.#emptied.resolve()
  }

  #oldestMs(): number {
    let oldest = this.#waiting[0]?.sinceMs ?? Number.POSITIVE_INFINITY
    for (const { sinceMs } of this.#underWay) oldest = Math.min(oldest, sinceMs)
    return oldest
  }
}
