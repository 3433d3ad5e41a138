/**
 * Keeps measurements and writes them in Prometheus' text format (0.0.4).
 *
 * Memory is bounded: a metric has at most `maxSeries` sets of labels, and what comes after is counted as `other`. Counters
 * without labels are shown from the start, so that their first event is an increase.
 */
import type { Clock } from '../core/service/clock.ts'
import {
  metricDefinitions,
  prometheusName,
  type Labels,
  type MetricDefinition,
  type MetricName,
  type MetricSink,
} from './metric-definitions.ts'

export interface Exposition extends MetricSink {
  /** The text of all that was measured. */
  text(): string
}

export interface ExpositionOptions {
  readonly clock: Pick<Clock, 'monotonicMs'>
  readonly maxSeries: number
}

interface Series {
  /** `{consumer="catalog"}`, or nothing. */
  readonly labels: string
  value: number
  setAtMs: number
  /** Observations per bucket, not cumulated; the last one is beyond the highest bound. */
  readonly counts: number[]
}

const longestLabel = 200

export function createExposition({ clock, maxSeries }: ExpositionOptions): Exposition {
  const kept = new Map<MetricName, Map<string, Series>>()
  const find = (metric: MetricName, labels: Labels): Series => {
    const all = kept.get(metric) ?? new Map<string, Series>()
    if (all.size === 0) kept.set(metric, all)
    const { labels: names = [], buckets = [] }: MetricDefinition = metricDefinitions[metric]
    const values = names.map((name) => (labels[name] ?? '').slice(0, longestLabel).toWellFormed())
    const found = all.get(values.join('\u0000'))
    if (found !== undefined) return found
    const isFull = all.size >= maxSeries
    const shown = isFull ? names.map(() => 'other') : values
    const key = shown.join('\u0000')
    const counts = [...buckets, Infinity].map(() => 0)
    const series = all.get(key) ?? { labels: labelText(names, shown), value: 0, setAtMs: 0, counts }
    all.set(key, series)
    return series
  }
  for (const [metric, { kind, labels }] of entries()) if (kind === 'counter' && labels?.length === 0) find(metric, {})
  return {
    add: (metric, amount, labels = {}) => void (find(metric, labels).value += amount),
    set: (metric, value, labels = {}) => {
      const series = find(metric, labels)
      series.value = value
      series.setAtMs = clock.monotonicMs()
    },
    observe: (metric, value, labels = {}) => {
      const series = find(metric, labels)
      const { buckets = [] }: MetricDefinition = metricDefinitions[metric]
      const at = bucketOf(buckets, value)
      series.counts[at] = (series.counts[at] ?? 0) + 1
      series.value += value
    },
    text: () => {
      const now = clock.monotonicMs()
      return entries()
        .flatMap(([metric, definition]) => {
          const series = [...(kept.get(metric)?.values() ?? [])].filter(
            ({ setAtMs }) => definition.kind !== 'gauge' || now - setAtMs <= (definition.maxAgeMs ?? Infinity),
          )
          return series.length === 0 ? [] : [family(prometheusName(metric), definition, series)]
        })
        .join('')
    },
  }
}

function entries(): readonly (readonly [MetricName, MetricDefinition])[] {
  return Object.entries(metricDefinitions) as [MetricName, MetricDefinition][]
}

/** The first bucket that takes the value; one beyond the last if none does. */
function bucketOf(buckets: readonly number[], value: number): number {
  const at = buckets.findIndex((bound) => value <= bound)
  return at === -1 ? buckets.length : at
}

function family(name: string, { kind, help, buckets = [] }: MetricDefinition, series: readonly Series[]): string {
  const lines = series.flatMap((each) =>
    kind === 'histogram' ? histogramLines(name, buckets, each) : [`${name}${each.labels} ${numberText(each.value)}`],
  )
  return `# HELP ${name} ${help.replaceAll('\\', '\\\\').replaceAll('\n', '\\n')}\n# TYPE ${name} ${kind}\n${lines.join('\n')}\n`
}

function histogramLines(name: string, buckets: readonly number[], { labels, value, counts }: Series): string[] {
  let total = 0
  const rest = labels === '' ? '' : `${labels.slice(1, -1)},`
  const lines = [...buckets, Infinity].map((bound, index) => {
    total += counts[index] ?? 0
    return `${name}_bucket{${rest}le="${numberText(bound)}"} ${total}`
  })
  return [...lines, `${name}_sum${labels} ${numberText(value)}`, `${name}_count${labels} ${total}`]
}

function labelText(names: readonly string[], values: readonly string[]): string {
  if (names.length === 0) return ''
  return `{${names.map((name, index) => `${name}="${escapeLabel(values[index] ?? '')}"`).join(',')}}`
}

function escapeLabel(value: string): string {
  return value.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n')
}

function numberText(value: number): string {
  if (value === Infinity) return '+Inf'
  return value === -Infinity ? '-Inf' : String(value)
}
