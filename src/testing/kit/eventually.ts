/**
 * Waits for something to become true, for tests of things that happen elsewhere.
 *
 * It replaces sleeps: it returns as soon as the check passes, and a check that never passes fails with its own last
 * error, so that the report says what was wrong and not merely that time ran out. Its patience is for slow machines: what
 * is right returns long before.
 */
import { setTimeout as delay } from 'node:timers/promises'

import { errorMessage, WaybillError } from '../../core/errors.ts'

/** How long and how often to look. */
export interface EventuallyOptions {
  /** @default 60_000 */
  readonly timeoutMs?: number
  /** @default 10 */
  readonly intervalMs?: number
}

/** Repeats `check` until it neither throws nor returns false, and returns what it returned. */
export async function eventually<T>(check: () => T | Promise<T>, options: EventuallyOptions = {}): Promise<Exclude<T, false>> {
  const { timeoutMs = 60_000, intervalMs = 10 } = options
  const deadline = performance.now() + timeoutMs
  for (;;) {
    let last: unknown
    try {
      const result = await check()
      if (result !== false) return result as Exclude<T, false>
      last = new Error(`The check still returned false: ${check.toString()}`)
    } catch (error) {
      last = error
    }
    if (performance.now() >= deadline) {
      throw new WaybillError('TIMEOUT', `Not true within ${timeoutMs} ms: ${errorMessage(last)}`, { cause: last })
    }
    await delay(intervalMs)
  }
}
