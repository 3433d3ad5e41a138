/**
 * Calls the handlers of one batch, one after the other, each within its time. One that does not return is given up: the
 * transaction is rolled back, and whatever the handler still tries on it is refused.
 *
 * One timer watches all of them, and a handler that does not ask for its signal costs none: thousands of handlers a second
 * would otherwise spend more on timers and signals than on what they do.
 */
import type { Clock } from '../../core/service/clock.ts'
import { isWaybillError, WaybillError } from '../../core/errors.ts'

export interface HandlerCalls {
  /** Runs `handler`; rejects with TIMEOUT after `handlerTimeoutMs`, with ABORTED when the process gives up its work. */
  call(handler: (calling: HandlerCall) => Promise<void> | void): Promise<void>
  /** No more handlers are called. */
  end(): void
}

export interface HandlerCall {
  /** Aborts when the handler's time is over or the process gives up its work. */
  readonly signal: AbortSignal
}

interface Running extends HandlerCall {
  readonly startedAtMs: number
  readonly giveUp: (error: Error) => void
}

export function createHandlerCalls(
  { handlerTimeoutMs, clock }: { readonly handlerTimeoutMs: number; readonly clock: Clock },
  aborting: AbortSignal,
): HandlerCalls {
  let running: Running | undefined
  let watch: AbortController | undefined
  const abort = (): void =>
    running?.giveUp(new WaybillError('ABORTED', 'The handler was given up because the process is stopping.'))

  /** Sleeps until the handler that runs then could be over its time; while others take turns that is soon enough. */
  const watchTime = async (over: AbortSignal): Promise<void> => {
    let leftMs = handlerTimeoutMs
    while (!over.aborted) {
      await clock.sleep(leftMs, over)
      const tookMs = running === undefined ? 0 : clock.monotonicMs() - running.startedAtMs
      leftMs = handlerTimeoutMs - tookMs
      if (leftMs > 0) continue
      running?.giveUp(tooSlow(handlerTimeoutMs))
      leftMs = handlerTimeoutMs
    }
  }
  const begin = (): void => {
    watch = new AbortController()
    aborting.addEventListener('abort', abort)
    void watchTime(watch.signal)
  }
  return {
    call: async (handler) => {
      try {
        await new Promise<void>((resolve, reject) => {
          const calling = createCall(clock.monotonicMs(), reject)
          running = calling
          if (aborting.aborted) return abort()
          const returned = handler(calling)
          // Query builders are not promises, and do nothing until they are awaited.
          if (typeof returned?.then !== 'function') return resolve()
          if (watch === undefined) begin()
          returned.then(resolve, reject)
        })
      } finally {
        running = undefined
      }
    },
    end: () => {
      watch?.abort()
      aborting.removeEventListener('abort', abort)
    },
  }
}

/** The handler may still be at work, or wait for the server. */
export function isGivenUp(error: unknown): boolean {
  return isWaybillError(error, 'TIMEOUT') || isWaybillError(error, 'ABORTED')
}

function createCall(startedAtMs: number, reject: (error: Error) => void): Running {
  let over: AbortController | undefined
  let givenUp = false
  return {
    startedAtMs,
    get signal() {
      over ??= new AbortController()
      if (givenUp) over.abort()
      return over.signal
    },
    giveUp: (error) => {
      givenUp = true
      over?.abort()
      reject(error)
    },
  }
}

function tooSlow(handlerTimeoutMs: number): WaybillError {
  return new WaybillError(
    'TIMEOUT',
    `The handler did not return within ${handlerTimeoutMs} ms. Let it listen to its signal, make it faster, or raise handlerTimeoutMs.`,
  )
}
