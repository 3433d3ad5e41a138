/**
 * The W3C trace context as text: what a `traceparent` says, and how one is written.
 *
 * Whatever comes over the wire may be wrong or forged: what does not fit the format is no context, and nothing fails for it.
 */
import type { TraceHeaders } from './tracing.ts'

export interface TraceContext {
  readonly traceId: string
  readonly spanId: string
  readonly flags: number
  readonly state: string | undefined
}

/** The longest `tracestate` that everybody must pass on. */
const longestState = 512
const format = /^(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(?:-|$)/

/** The context of these headers, or undefined if they have none. */
export function readTraceContext(headers: TraceHeaders): TraceContext | undefined {
  const found = format.exec(headers['traceparent'] ?? '')
  if (found === null) return undefined
  const [, traceId = '', spanId = '', flags = ''] = found
  const state = headers['tracestate']
  const isFit = state !== undefined && state !== '' && state.length <= longestState
  return { traceId, spanId, flags: Number.parseInt(flags, 16), state: isFit ? state : undefined }
}

/** The headers of a context. A longer `tracestate` is left out: an event is not refused for it. */
export function writeTraceContext({ traceId, spanId, flags, state }: TraceContext): Readonly<Record<string, string>> {
  const traceparent = `00-${traceId}-${spanId}-${(flags & 0xff).toString(16).padStart(2, '0')}`
  return state === undefined || state === '' || state.length > longestState ? { traceparent } : { traceparent, tracestate: state }
}
