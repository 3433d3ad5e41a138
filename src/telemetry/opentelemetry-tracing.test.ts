import { context, SpanKind, SpanStatusCode } from '@opentelemetry/api'
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-base'
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { asyncContext } from '../../test/telemetry/async-context.ts'
import { WaybillError } from '../core/errors.ts'
import { openTelemetryTracing } from './opentelemetry-tracing.ts'

const exporter = new InMemorySpanExporter()
const tracerProvider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] })
const tracing = openTelemetryTracing({ tracerProvider })
const parent = { traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01', tracestate: 'a=1' }

beforeAll(() => void context.setGlobalContextManager(asyncContext()))
afterAll(() => context.disable())
beforeEach(() => exporter.reset())

test('outside of any span there are no headers', () => {
  expect(tracing.headers()).toEqual({})
})

test('a span continues the trace of its parent, is active meanwhile, and hands the trace on', async () => {
  const headers = await tracing.span({ name: 'a', kind: 'consumer', parent, attributes: { n: 1 } }, async (span) => {
    span.set({ m: 2 })
    await Promise.resolve()
    return tracing.headers()
  })
  const [span] = exporter.getFinishedSpans()
  expect(span?.spanContext().traceId).toBe('0af7651916cd43dd8448eb211c80319c')
  expect(span?.parentSpanContext?.spanId).toBe('b7ad6b7169203331')
  expect(span?.kind).toBe(SpanKind.CONSUMER)
  expect(span?.attributes).toEqual({ n: 1, m: 2 })
  expect(headers).toEqual({
    traceparent: `00-0af7651916cd43dd8448eb211c80319c-${span?.spanContext().spanId}-01`,
    tracestate: 'a=1',
  })
})

test('headers that are no context begin a trace of their own', async () => {
  await tracing.span({ name: 'a', kind: 'internal', parent: { traceparent: 'forged' } }, async () => undefined)
  expect(exporter.getFinishedSpans()[0]?.parentSpanContext).toBeUndefined()
})

test('a failed span keeps the class of its error and nothing that it said', async () => {
  const failing = tracing.span({ name: 'a', kind: 'internal' }, () =>
    Promise.reject(new WaybillError('TIMEOUT', 'canary-payload')),
  )
  await expect(failing).rejects.toThrow('canary-payload')
  const [span] = exporter.getFinishedSpans()
  expect(span?.status).toEqual({ code: SpanStatusCode.ERROR })
  expect(span?.attributes).toEqual({ 'error.type': 'TIMEOUT' })
  expect(span?.events).toEqual([])
})

test('a batch is linked to the traces of its messages', async () => {
  await tracing.span({ name: 'a', kind: 'consumer', links: [parent, {}] }, async () => undefined)
  const [span] = exporter.getFinishedSpans()
  expect(span?.links.map(({ context: linked }) => linked.spanId)).toEqual(['b7ad6b7169203331'])
  expect(span?.spanContext().traceId).not.toBe('0af7651916cd43dd8448eb211c80319c')
})

test('what is over is recorded with its own times', () => {
  tracing.record({ name: 'a', kind: 'producer', parent }, { startedAtMs: 1_000_000, endedAtMs: 1_000_250 })
  const [span] = exporter.getFinishedSpans()
  expect(span?.startTime).toEqual([1_000, 0])
  expect(span?.endTime).toEqual([1_000, 250_000_000])
  expect(span?.spanContext().traceId).toBe('0af7651916cd43dd8448eb211c80319c')
})
