import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from '@opentelemetry/sdk-metrics'
import { afterAll, expect, test } from 'vitest'
import { createSignals } from '../core/signals.ts'
import { createFakeClock } from '../testing/kit/fake-clock.ts'
import { openTelemetryMetrics } from './opentelemetry-metrics.ts'

const exporter = new InMemoryMetricExporter(AggregationTemporality.DELTA)
const reader = new PeriodicExportingMetricReader({ exporter, exportIntervalMillis: 86_400_000 })
const meterProvider = new MeterProvider({ readers: [reader] })
const signals = createSignals()
const clock = createFakeClock()
const end = openTelemetryMetrics({ signals, meterProvider, clock })
afterAll(() => meterProvider.shutdown())

/** Exports what happened since the last time; the data points of a metric by its name. */
async function exportNow() {
  exporter.reset()
  await meterProvider.forceFlush()
  const all = exporter.getMetrics().flatMap(({ scopeMetrics }) => scopeMetrics.flatMap(({ metrics }) => metrics))
  return (name: string) => all.find(({ descriptor }) => descriptor.name === name)?.dataPoints ?? []
}

async function points(name: string) {
  return (await exportNow())(name)
}

test('counters, histograms and gauges say what the signals said', async () => {
  signals.emit('relay.published', { relay: 'r', count: 2, durationMs: 5, delaysMs: [10, 4_000] })
  signals.emit('consumer.dead', {
    consumer: 'catalog',
    eventId: 'e',
    messageId: 'm',
    orderingKey: undefined,
    eventType: 't',
    aggregateType: 'a',
    aggregateId: 'i',
    reason: 'invalid',
    attempts: 1,
    held: false,
    error: 'x',
  })
  const exported = await exportNow()
  expect(exported('waybill.relay.published')).toMatchObject([{ value: 2 }])
  expect(exported('waybill.consumer.dead_letters')).toMatchObject([
    { value: 1, attributes: { consumer: 'catalog', reason: 'invalid' } },
  ])
  expect(exported('waybill.relay.publish_delay')[0]?.value).toMatchObject({ count: 2, sum: 4.01 })
})

test('a gauge that nobody sets any more disappears', async () => {
  signals.emit('command.cleaned', { deleted: 1, lagMs: 1_500, durationMs: 2 })
  expect(await points('waybill.command.cleanup_lag')).toMatchObject([{ value: 1.5 }])
  await clock.advance(60_001)
  expect(await points('waybill.command.cleanup_lag')).toEqual([])
})

test('nothing is measured after the end, and no gauge keeps its last value', async () => {
  signals.emit('consumer.paused', { consumer: 'catalog', paused: true })
  expect(await points('waybill.consumer.paused')).toMatchObject([{ value: 1 }])
  end()
  expect(await points('waybill.consumer.paused')).toEqual([])
  await points('waybill.relay.published')
  signals.emit('relay.published', { relay: 'r', count: 7, durationMs: 5, delaysMs: [] })
  expect(await points('waybill.relay.published')).toEqual([])
})
