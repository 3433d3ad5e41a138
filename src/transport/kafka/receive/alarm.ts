/**
 * One timer for the earliest of many moments, however many there are.
 */
import type { Clock } from '../../../core/service/clock.ts'

export class Alarm {
  readonly #clock: Clock
  readonly #ring: (nowMs: number) => void
  #timer = new AbortController()
  #atMs = Infinity

  constructor(clock: Clock, ring: (nowMs: number) => void) {
    this.#clock = clock
    this.#ring = ring
  }

  /** Rings at `atMs` of the monotonic clock, unless it rings before that anyway. */
  set(atMs: number): void {
    if (atMs >= this.#atMs) return
    this.off()
    this.#atMs = atMs
    void this.#wait(atMs, this.#timer.signal)
  }

  /** Rings no more, until it is set again. */
  off(): void {
    this.#timer.abort()
    this.#timer = new AbortController()
    this.#atMs = Infinity
  }

  async #wait(atMs: number, off: AbortSignal): Promise<void> {
    await this.#clock.sleep(Math.max(0, atMs - this.#clock.monotonicMs()), off)
    if (off.aborted) return
    this.#atMs = Infinity
    // A timer may be early by a fraction of a millisecond; what it was set for is due all the same.
    this.#ring(Math.max(atMs, this.#clock.monotonicMs()))
  }
}
