/**
 * How a handler steers what becomes of an event that it does not apply.
 *
 *   throw discard(reason)   never wanted: recorded as a discarded dead letter, acknowledged, not tried again
 *   throw retryAfter(ms)    not now: tried again after this time, counted as an attempt
 *   throw anything else     tried again with growing delays, then a dead letter
 *
 * Whatever the handler wrote before it threw is rolled back.
 */
import { WaybillError } from '../../core/errors.ts'

/** Thrown by a handler that wants an event put aside for good. Made by `discard`. */
export class Discarded extends Error {
  override readonly name: string = 'Discarded'
}

/** Thrown by a handler that names the delay itself. Made by `retryAfter`. */
export class RetryAfter extends Error {
  override readonly name: string = 'RetryAfter'
  readonly delayMs: number

  constructor(delayMs: number, options?: ErrorOptions) {
    super(`The handler asked to be called again in ${delayMs} ms.`, options)
    this.delayMs = delayMs
  }
}

/** Puts the event aside: `throw discard('negative total')`. */
export function discard(reason: string): Discarded {
  return new Discarded(typeof reason === 'string' && reason !== '' ? reason : 'no reason given')
}

/** Asks for another attempt after `delayMs`: `throw retryAfter(30_000)`. */
export function retryAfter(delayMs: number, cause?: unknown): RetryAfter {
  if (!Number.isFinite(delayMs) || delayMs < 0 || delayMs > longestDelayMs)
    throw new WaybillError('INVALID_INPUT', `retryAfter: the delay must be 0 to ${longestDelayMs} ms, got ${delayMs}.`)
  return new RetryAfter(Math.round(delayMs), { cause })
}

const longestDelayMs = 86_400_000

/** By name, not `instanceof`: two copies of this package may be installed side by side. */
export function isDiscarded(error: unknown): error is Discarded {
  return error instanceof Error && error.name === 'Discarded'
}

export function isRetryAfter(error: unknown): error is RetryAfter {
  return error instanceof Error && error.name === 'RetryAfter'
}
