/**
 * Metrics of this process for Prometheus: everything that the given signals say, as text.
 *
 *   const metrics = createMetrics({ signals })
 *   app.get('/metrics', (request) => metrics.handler(request))
 */
import { systemClock, type Clock } from '../core/service/clock.ts'
import { resolve, wholeBetween } from '../core/options.ts'
import type { SignalBus } from '../core/signals.ts'
import { measureSignals } from './measure-signals.ts'
import { createExposition } from './prometheus.ts'

export interface MetricsOptions {
  /** The bus that was given to relays, consumers and commands. */
  readonly signals: Pick<SignalBus, 'on'>
  /** Sets of labels that a metric may have; what comes after is counted as `other`. @default 500 */
  readonly maxSeries?: number
  readonly clock?: Clock
}

export interface Metrics {
  readonly contentType: string
  /** All metrics, in Prometheus' text format. */
  text(): string
  /** Answers a scrape, Fetch style. */
  handler(request: Request): Response
  /** Measures no more. */
  close(): void
}

const contentType = 'text/plain; version=0.0.4; charset=utf-8'

export function createMetrics(options: MetricsOptions): Metrics {
  const { signals, maxSeries, clock } = resolve<Required<MetricsOptions>>(
    'metrics',
    { signals: options.signals, maxSeries: 500, clock: systemClock },
    options,
    { maxSeries: wholeBetween(1, 100_000) },
  )
  const exposition = createExposition({ clock, maxSeries })
  const close = measureSignals(signals, exposition)
  return {
    contentType,
    text: () => exposition.text(),
    handler: ({ method }) => {
      if (method !== 'GET' && method !== 'HEAD') return new Response(null, { status: 405, headers: { allow: 'GET, HEAD' } })
      const headers = { 'content-type': contentType, 'cache-control': 'no-store' }
      return new Response(method === 'HEAD' ? null : exposition.text(), { headers })
    },
    close,
  }
}
