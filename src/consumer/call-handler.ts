/**
 * Calls a handler within its time. One that does not return is given up: its transaction is rolled back, and whatever it
 * still tries on it is refused.
 */
import type { Clock } from '../core/clock.ts'
import { WaybillError } from '../core/errors.ts'

/** Runs `handler`; rejects with TIMEOUT after `handlerTimeoutMs`, with ABORTED when the process gives up its work. */
export async function callHandler(
  handler: (signal: AbortSignal) => Promise<void> | void,
  { handlerTimeoutMs, clock }: { readonly handlerTimeoutMs: number; readonly clock: Clock },
  aborting: AbortSignal,
): Promise<void> {
  const over = new AbortController()
  const done = new AbortController()
  const abort = (): void => over.abort()
  aborting.addEventListener('abort', abort, { once: true })
  if (aborting.aborted) abort()
  try {
    const running = handler(over.signal)
    if (!(running instanceof Promise)) return
    const timer = clock.sleep(handlerTimeoutMs, done.signal).then(abort)
    await Promise.race([
      running,
      givenUp(over.signal, done.signal, () => failure(aborting, handlerTimeoutMs)),
      timer.then(() => running),
    ])
  } finally {
    done.abort()
    aborting.removeEventListener('abort', abort)
  }
}

/** Rejects when `over` aborts; stays silent once `done` aborts. */
function givenUp(over: AbortSignal, done: AbortSignal, error: () => Error): Promise<never> {
  return new Promise((_resolve, reject) => {
    const give = (): void => reject(error())
    if (over.aborted) return give()
    over.addEventListener('abort', give, { once: true })
    done.addEventListener('abort', () => over.removeEventListener('abort', give), { once: true })
  })
}

function failure(aborting: AbortSignal, handlerTimeoutMs: number): WaybillError {
  if (aborting.aborted) return new WaybillError('ABORTED', 'The handler was given up because the process is stopping.')
  return new WaybillError(
    'TIMEOUT',
    `The handler did not return within ${handlerTimeoutMs} ms. Let it listen to its signal, make it faster, or raise handlerTimeoutMs.`,
  )
}
