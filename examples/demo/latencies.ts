/**
 * How long events take from their commit to the broker and to their effect: over the whole run, and in short slices for the chart.
 */
import { createHistogram, type RecordableHistogram } from 'node:perf_hooks'

export interface Percentiles {
  readonly p50: number
  readonly p95: number
}

/** What happened within one slice of time; `null` where nothing did. */
export interface Slice {
  readonly atMs: number
  readonly published: Percentiles | null
  readonly applied: Percentiles | null
}

const keptSlices = 120

export class Latencies {
  readonly slices: Slice[] = []
  readonly #whole = { published: createHistogram(), applied: createHistogram() }
  readonly #now = { published: createHistogram(), applied: createHistogram() }

  published(latencyMs: number): void {
    record(this.#whole.published, latencyMs)
    record(this.#now.published, latencyMs)
  }

  applied(latencyMs: number): void {
    record(this.#whole.applied, latencyMs)
    record(this.#now.applied, latencyMs)
  }

  /** Ends a slice and starts the next. */
  slice(): void {
    const { published, applied } = this.#now
    this.slices.push({ atMs: Date.now(), published: percentiles(published), applied: percentiles(applied) })
    if (this.slices.length > keptSlices) this.slices.shift()
    published.reset()
    applied.reset()
  }

  /** Of everything so far. */
  get whole(): { readonly commitToPublish: Percentiles | null; readonly commitToApplied: Percentiles | null } {
    return { commitToPublish: percentiles(this.#whole.published), commitToApplied: percentiles(this.#whole.applied) }
  }
}

/** Kept in microseconds: histograms hold whole numbers from 1 on. */
function record(histogram: RecordableHistogram, latencyMs: number): void {
  histogram.record(Math.max(1, Math.round(latencyMs * 1_000)))
}

function percentiles(histogram: RecordableHistogram): Percentiles | null {
  if (histogram.count === 0) return null
  const at = (percentile: number): number => Math.round(histogram.percentile(percentile) / 10) / 100
  return { p50: at(50), p95: at(95) }
}
