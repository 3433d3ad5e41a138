/**
 * The same measurements as Prometheus gets, as instruments of an OpenTelemetry meter named `waybill`.
 *
 * Gauges are observed, not pushed, so that one which nobody sets any more is not reported any more. (An SDK that cumulates
 * may go on showing its last value; Prometheus' own endpoint does not.)
 */
import {
  metrics,
  type Attributes,
  type Counter,
  type Histogram,
  type Meter,
  type MeterProvider,
  type ObservableCallback,
} from '@opentelemetry/api'
import { systemClock, type Clock } from '../core/service/clock.ts'
import type { SignalBus } from '../core/signals.ts'
import { measureSignals } from './measure-signals.ts'
import { metricDefinitions, type GaugeName, type MetricDefinition, type MetricName } from './metric-definitions.ts'

export interface OpenTelemetryMetricsOptions {
  /** The bus that was given to relays, consumers and commands. */
  readonly signals: Pick<SignalBus, 'on'>
  /** @default the provider that is registered globally */
  readonly meterProvider?: MeterProvider
  readonly clock?: Clock
}

interface GaugeValue {
  readonly value: number
  readonly attributes: Attributes
  readonly setAtMs: number
}

interface Gauge {
  /** By their labels. */
  readonly values: Map<string, GaugeValue>
  /** Shows it no more. */
  remove(): void
}

/** Measures everything that is signalled from now on; returns the function that ends it. */
export function openTelemetryMetrics(options: OpenTelemetryMetricsOptions): () => void {
  const { signals, meterProvider = metrics.getMeterProvider(), clock = systemClock } = options
  const meter = meterProvider.getMeter('waybill')
  const counters = new Map<MetricName, Counter>()
  const histograms = new Map<MetricName, Histogram>()
  const gauges = new Map<MetricName, Gauge>()
  for (const [name, definition] of Object.entries(metricDefinitions) as [MetricName, MetricDefinition][]) {
    if (definition.kind === 'counter') counters.set(name, meter.createCounter(`waybill.${name}`, describe(definition)))
    else if (definition.kind === 'histogram') histograms.set(name, createHistogram(meter, name, definition))
    else gauges.set(name, createGauge(meter, { name: name as GaugeName, definition, clock }))
  }
  const end = measureSignals(signals, {
    // Nothing is nothing here: only Prometheus has to be shown a counter before it counts.
    add: (name, amount, labels) => (amount > 0 ? counters.get(name)?.add(amount, labels) : undefined),
    set: (name, value, labels = {}) =>
      void gauges.get(name)?.values.set(JSON.stringify(labels), { value, attributes: labels, setAtMs: clock.monotonicMs() }),
    observe: (name, value, labels) => histograms.get(name)?.record(value, labels),
  })
  return () => {
    end()
    for (const gauge of gauges.values()) gauge.remove()
  }
}

function createHistogram(meter: Meter, name: MetricName, definition: MetricDefinition): Histogram {
  const explicitBucketBoundaries = [...(definition.buckets ?? [])]
  return meter.createHistogram(`waybill.${name}`, { ...describe(definition), advice: { explicitBucketBoundaries } })
}

function createGauge(
  meter: Meter,
  { name, definition, clock }: { readonly name: GaugeName; readonly definition: MetricDefinition; readonly clock: Clock },
): Gauge {
  const values = new Map<string, GaugeValue>()
  const { maxAgeMs = Infinity } = definition
  const observe: ObservableCallback = (result) => {
    for (const { value, attributes, setAtMs } of values.values())
      if (clock.monotonicMs() - setAtMs <= maxAgeMs) result.observe(value, attributes)
  }
  const instrument = meter.createObservableGauge(`waybill.${name}`, describe(definition))
  instrument.addCallback(observe)
  return { values, remove: () => instrument.removeCallback(observe) }
}

function describe({ help, unit }: MetricDefinition): { readonly description: string; readonly unit?: string } {
  return { description: help, ...(unit === undefined ? {} : { unit }) }
}
