/**
 * One trace from an HTTP request to the projection in another service, and on to what its handler emits.
 */
import { context } from '@opentelemetry/api'
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor, type ReadableSpan } from '@opentelemetry/sdk-trace-base'
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { z } from 'zod'
import { command } from '../../src/command/model/command.ts'
import { createCommands } from '../../src/command/commands.ts'
import { newId } from '../../src/core/event/id.ts'
import { run } from '../../src/core/service/lifetime.ts'
import { openTelemetryTracing } from '../../src/opentelemetry.ts'
import { createOutbox } from '../../src/outbox/outbox.ts'
import { createRelay } from '../../src/outbox/relay/relay.ts'
import { fetchCommand } from '../../src/integrations/fetch.ts'
import { fromPg } from '../../src/postgres/adapters/from-pg.ts'
import { transaction } from '../../src/postgres/transaction/transaction.ts'
import { eventually } from '../../src/testing/kit/eventually.ts'
import { kafka } from '../../src/transport/kafka/kafka.ts'
import { FakeKafka } from '../kafka/fake-kafka.ts'
import { consumerFixture, mails, videos } from '../setup/consumer-fixture.ts'
import { testDatabase } from '../setup/test-database.ts'
import { asyncContext } from './async-context.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
const exporter = new InMemorySpanExporter()
const tracing = openTelemetryTracing({
  tracerProvider: new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] }),
})
const traceId = '0af7651916cd43dd8448eb211c80319c'
const traceparent = `00-${traceId}-b7ad6b7169203331-01`

beforeAll(() => void context.setGlobalContextManager(asyncContext()))
afterAll(() => context.disable())
beforeEach(() => exporter.reset())

/** A service that takes commands, its relay, and a catalog that follows. */
async function startServices(mode: 'direct' | 'stored') {
  const fixture = await consumerFixture(db)
  const { schema, broker, signals } = fixture
  const outbox = createOutbox({ schema, tracing })
  const publishVideo = command('PublishVideo', {
    input: z.object({ id: z.string(), title: z.string() }),
    plan: (input) => input,
    execute: async (_tx, { id, title }, { emit }) => emit(videos.VideoPublished, id, { title }),
  })
  const commands = createCommands({ db, outbox, schema, signals, tracing })
  const handle = fetchCommand(commands, publishVideo, { principal: () => 'ann' })
  const catalog = fixture.consumer({ mode, outbox, tracing })
  catalog.project(videos, { table: `${schema}.video_view`, key: 'video_id', set: (event) => ({ title: event.data.title }) })
  catalog.on(videos.VideoPublished, (event, { emit }) => {
    if (event.data.title === 'poison') throw new Error('canary-payload')
    emit(mails.MailRequested, event.aggregateId, { to: 'bob' })
  })
  const relay = createRelay({ db, outbox, transport: broker, signals, tracing })
  const stop = new AbortController()
  const running = run([relay, catalog], { signal: stop.signal, signals })
  let requests = 0
  return {
    fixture,
    outbox,
    send: async (id: string, title: string, headers: Record<string, string> = {}) => {
      const body = JSON.stringify({ id, title })
      const key = { 'content-type': 'application/json', 'idempotency-key': `${mode}-${(requests += 1)}` }
      const response = await handle(new Request('http://shop/videos', { method: 'POST', body, headers: { ...key, ...headers } }))
      expect(response.status).toBeLessThan(300)
    },
    stop: async () => {
      stop.abort()
      await running
    },
  }
}

function spans(name: string): readonly ReadableSpan[] {
  return exporter.getFinishedSpans().filter((span) => span.name === name)
}

async function spanOf(name: string): Promise<ReadableSpan> {
  return await eventually(() => spans(name)[0] ?? false)
}

test.each(['direct', 'stored'] as const)(
  'one trace runs from a request to the projection and to what is emitted (%s)',
  async (mode) => {
    const services = await startServices(mode)
    await services.send('v1', 'one', { traceparent, tracestate: 'shop=1' })

    const commanded = await spanOf('command PublishVideo')
    expect(commanded.spanContext().traceId).toBe(traceId)
    expect(commanded.parentSpanContext?.spanId).toBe('b7ad6b7169203331')
    expect(commanded.attributes).toMatchObject({ 'waybill.outcome': 'executed' })

    const published = await spanOf('publish VideoPublished')
    const handled = await spanOf('handle VideoPublished')
    const projected = await spanOf('project VideoPublished')
    for (const span of [published, handled, projected]) {
      expect(span.spanContext().traceId).toBe(traceId)
      expect(span.spanContext().traceState?.serialize()).toBe('shop=1')
      expect(span.parentSpanContext?.spanId).toBe(commanded.spanContext().spanId)
      expect(span.attributes).toMatchObject({ 'waybill.aggregate.id': 'v1', 'waybill.event.version': '1' })
    }
    const emitted = await spanOf('publish MailRequested')
    expect(emitted.spanContext().traceId).toBe(traceId)
    expect(emitted.parentSpanContext?.spanId).toBe(handled.spanContext().spanId)

    const batch = await eventually(() => spans('apply catalog').find(({ links }) => links.length > 0) ?? false)
    expect(batch.links.map((link) => link.context.traceId)).toContain(traceId)
    expect(batch.spanContext().traceId).not.toBe(traceId)
    await services.stop()
  },
)

test('an active span goes before the headers of a request', async () => {
  const services = await startServices('direct')
  await tracing.span({ name: 'server', kind: 'server' }, () => services.send('v1', 'one', { traceparent }))
  const [server] = spans('server')
  const projected = await spanOf('project VideoPublished')
  expect(projected.spanContext().traceId).toBe(server?.spanContext().traceId)
  expect(projected.spanContext().traceId).not.toBe(traceId)
  await services.stop()
})

test('an event that nobody traced is applied, and begins no trace of its own', async () => {
  const services = await startServices('direct')
  await transaction(db, (tx) => services.outbox.add(tx, videos.VideoPublished, 'v1', { title: 'untraced' }))
  await eventually(async () => (await services.fixture.count('video_view')) === 1)
  const handled = await spanOf('handle VideoPublished')
  const batch = await spanOf('apply catalog')
  expect(handled.parentSpanContext?.spanId).toBe(batch.spanContext().spanId)
  expect([...spans('publish VideoPublished'), ...spans('project VideoPublished')]).toEqual([])
  await services.stop()
})

test('an event that a connector published to Kafka is handled in its trace, with its own headers beside those that we promise', async () => {
  const fixture = await consumerFixture(db)
  const broker = new FakeKafka(1)
  const transport = kafka({ brokers: ['nowhere:1'], client: () => broker.client() })
  const catalog = fixture.consumer({ transport, streams: [videos], tracing })
  const attributes: Readonly<Record<string, string>>[] = []
  catalog.on(videos.VideoPublished, (event) => void attributes.push(event.attributes))
  const stop = fixture.start(catalog)
  const promised = {
    event_id: newId(),
    event_type: 'VideoPublished',
    aggregate_type: 'video',
    aggregate_id: 'v1',
    version: '1',
    schema_version: '1',
    content_type: 'application/json',
    occurred_at: '2026-01-02T03:04:05.600000Z',
  }
  const own = `{"tenant": "acme", "version": "mine", "number": 12345678901234567890, "traceparent": "${traceparent}"}`
  broker.append(0, 'v1', { value: Buffer.from('{"title":"x"}'), headers: Object.entries({ ...promised, headers: own }) })
  const handled = await spanOf('handle VideoPublished')
  expect(handled.spanContext().traceId).toBe(traceId)
  expect(handled.parentSpanContext?.spanId).toBe('b7ad6b7169203331')
  expect(attributes).toEqual([{ tenant: 'acme', number: '12345678901234567890', traceparent, ...promised }])
  await stop()
  await transport.close()
})

test('a failed handler marks its span, and no span of a batch that was rolled back says that it projected', async () => {
  const services = await startServices('direct')
  await services.send('v1', 'poison', { traceparent })
  const handled = await spanOf('handle VideoPublished')
  expect(handled.attributes).toMatchObject({ 'error.type': 'Error' })
  await eventually(async () => (await services.fixture.count('dead_letter')) === 1)
  expect(spans('project VideoPublished')).toEqual([])
  expect(
    JSON.stringify(exporter.getFinishedSpans().map(({ attributes, status, events }) => [attributes, status, events])),
  ).not.toContain('canary')
  await services.stop()
})
