/**
 * Traces recorded by OpenTelemetry. Without a provider that somebody registered, its API does nothing, and so does this.
 *
 * Contexts travel as W3C headers whatever propagator is registered, so that services which differ there still meet in one
 * trace. Of an error the span keeps its class or code: messages may quote data.
 */
import {
  context,
  createTraceState,
  isSpanContextValid,
  ROOT_CONTEXT,
  SpanKind,
  SpanStatusCode,
  trace,
  type Context,
  type Link,
  type Span,
  type SpanContext,
  type SpanOptions,
  type Tracer,
  type TracerProvider,
} from '@opentelemetry/api'
import { isWaybillError } from '../core/errors.ts'
import { readTraceContext, writeTraceContext, type SpanDetails, type TraceHeaders, type Tracing } from '../core/tracing.ts'

export interface OpenTelemetryTracingOptions {
  /** @default the provider that is registered globally */
  readonly tracerProvider?: TracerProvider
}

const kinds = {
  internal: SpanKind.INTERNAL,
  server: SpanKind.SERVER,
  producer: SpanKind.PRODUCER,
  consumer: SpanKind.CONSUMER,
} as const

export function openTelemetryTracing({ tracerProvider = trace.getTracerProvider() }: OpenTelemetryTracingOptions = {}): Tracing {
  const tracer: Tracer = tracerProvider.getTracer('waybill')
  return {
    isOn: true,
    headers: () => {
      const active = trace.getSpanContext(context.active())
      if (active === undefined || !isSpanContextValid(active)) return {}
      const { traceId, spanId, traceFlags: flags, traceState } = active
      return writeTraceContext({ traceId, spanId, flags, state: traceState?.serialize() })
    },
    span: async (details, work) => {
      const parent = contextOf(details.parent) ?? context.active()
      const span = tracer.startSpan(details.name, optionsOf(details), parent)
      try {
        return await context.with(trace.setSpan(parent, span), () =>
          work({ set: (attributes) => void span.setAttributes(attributes) }),
        )
      } catch (error) {
        markFailed(span, error)
        throw error
      } finally {
        span.end()
      }
    },
    record: (details, { startedAtMs, endedAtMs }) => {
      const options = { ...optionsOf(details), startTime: startedAtMs }
      tracer.startSpan(details.name, options, contextOf(details.parent) ?? context.active()).end(endedAtMs)
    },
  }
}

function optionsOf({ kind, attributes = {}, links = [] }: SpanDetails): SpanOptions {
  const found = links.flatMap((headers): Link[] => {
    const linked = spanContextOf(headers)
    return linked === undefined ? [] : [{ context: linked }]
  })
  return { kind: kinds[kind], attributes: { ...attributes }, links: found }
}

function contextOf(headers: TraceHeaders | undefined): Context | undefined {
  const found = headers === undefined ? undefined : spanContextOf(headers)
  return found === undefined ? undefined : trace.setSpanContext(ROOT_CONTEXT, found)
}

function spanContextOf(headers: TraceHeaders): SpanContext | undefined {
  const found = readTraceContext(headers)
  if (found === undefined) return undefined
  const { traceId, spanId, flags: traceFlags, state } = found
  return { traceId, spanId, traceFlags, isRemote: true, ...(state === undefined ? {} : { traceState: createTraceState(state) }) }
}

function markFailed(span: Span, error: unknown): void {
  const type = isWaybillError(error) ? error.code : error instanceof Error ? error.name : typeof error
  span.setAttribute('error.type', type)
  span.setStatus({ code: SpanStatusCode.ERROR })
}
