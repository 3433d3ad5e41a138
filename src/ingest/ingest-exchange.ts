/**
 * One request of the ingest client and its answer, bounded in time together with the headers that it needs.
 */
import type { Clock } from '../core/service/clock.ts'
import { underSignals, unlessAborted } from '../core/service/abort.ts'

export interface ExchangeOptions {
  readonly url: string
  readonly fetch: typeof fetch
  readonly headers: () => Readonly<Record<string, string>> | Promise<Readonly<Record<string, string>>>
  readonly attemptTimeoutMs: number
  readonly clock: Clock
}

export interface ExchangeRequest {
  readonly method: 'GET' | 'POST'
  readonly path: string
  /** As JSON. */
  readonly body: string | undefined
  readonly signal: AbortSignal | undefined
}

export interface Exchange {
  readonly status: number
  /** The parsed body; `undefined` if it is not JSON. */
  readonly body: unknown
  readonly retryAfterMs: number | undefined
}

/** A service that asks for a longer wait is asked again after this. */
const longestRetryAfterMs = 60_000

/** Rejects if nobody answered in time. */
export async function exchange(options: ExchangeOptions, { method, path, body, signal }: ExchangeRequest): Promise<Exchange> {
  const { clock, attemptTimeoutMs } = options
  const done = new AbortController()
  const late = new AbortController()
  void clock.sleep(attemptTimeoutMs, done.signal).then(() => late.abort())
  const ends = signal === undefined ? [late.signal] : [late.signal, signal]
  try {
    return await underSignals(ends, async (end) => {
      const headers = await unlessAborted(Promise.resolve(options.headers()), end)
      end.throwIfAborted()
      const response = await options.fetch(`${options.url}${path}`, {
        method,
        headers: { ...(method === 'POST' ? { 'content-type': 'application/json' } : {}), ...headers },
        ...(body === undefined ? {} : { body }),
        signal: end,
      })
      const text = await response.text()
      return {
        status: response.status,
        body: parse(text),
        retryAfterMs: retryAfterMs(response.headers.get('retry-after'), clock),
      }
    })
  } finally {
    done.abort()
  }
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text) as unknown
  } catch {
    return undefined
  }
}

/** Seconds, or a date. */
function retryAfterMs(header: string | null, clock: Clock): number | undefined {
  if (header === null) return undefined
  const ms = /^\d+$/.test(header.trim()) ? Number(header) * 1_000 : Date.parse(header) - clock.nowMs()
  return Number.isNaN(ms) ? undefined : Math.min(Math.max(0, ms), longestRetryAfterMs)
}
