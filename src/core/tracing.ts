/**
 * Traces as a port: where spans begin and end, without knowing who records them. `waybill/opentelemetry` does; nobody by default.
 *
 * A trace crosses the outbox and the broker as the W3C headers `traceparent` and `tracestate`: headers of an event,
 * attributes of its message. Baggage is not carried, because it may hold anything. Spans name events by their ids, never by
 * their data, and of an error they keep its class alone.
 */

/** `traceparent` and, where there is one, `tracestate`. Other names are ignored. */
export type TraceHeaders = Readonly<Record<string, string | undefined>>

export type SpanAttributes = Readonly<Record<string, string | number | boolean>>

export interface SpanDetails {
  readonly name: string
  readonly kind: 'internal' | 'server' | 'producer' | 'consumer'
  readonly attributes?: SpanAttributes
  /** The headers of what caused it, from elsewhere. @default the active span */
  readonly parent?: TraceHeaders | undefined
  /** Others that have a part in it: the messages of a batch. */
  readonly links?: readonly TraceHeaders[]
}

export interface OpenSpan {
  set(attributes: SpanAttributes): void
}

export interface Tracing {
  /** `false` if nothing is recorded: then nobody needs to collect what spans are made from. */
  readonly isOn: boolean
  /** The headers of the active span; empty if there is none. */
  headers(): Readonly<Record<string, string>>
  /** Runs `work` as a span: active meanwhile, ended with it, failed if it rejects. */
  span<Result>(details: SpanDetails, work: (span: OpenSpan) => Promise<Result>): Promise<Result>
  /** Records a span that is over. Times are milliseconds since 1970. */
  record(details: SpanDetails, times: { readonly startedAtMs: number; readonly endedAtMs: number }): void
}

const closed: OpenSpan = { set: () => undefined }
const noHeaders: Readonly<Record<string, string>> = {}

/** Records nothing. */
export const noTracing: Tracing = {
  isOn: false,
  headers: () => noHeaders,
  span: (_details, work) => work(closed),
  record: () => undefined,
}

/** The W3C trace context. What comes over the wire may be wrong or forged: what does not fit the format is no context, and nothing fails for it. */
interface TraceContext {
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
