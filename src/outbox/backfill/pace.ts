/**
 * How fast a backfill may go: rows per second, without catching up in a burst after a pause; and when it will be done.
 */
import type { Clock } from '../../core/service/clock.ts'

export interface BackfillPace {
  /** The largest batch that keeps to the rate: a quarter of a second's worth. */
  readonly mostRows: number
  /** Waits until so many more rows are due. */
  spend(rows: number, signal: AbortSignal): Promise<void>
  /** Rows per second since the start, and how long what is left takes at the pace so far. */
  progress(since: { readonly rows: number; readonly done: number; readonly left: number | undefined }): {
    readonly rowsPerSecond: number
    readonly etaMs: number | undefined
  }
}

export function createBackfillPace(
  clock: Clock,
  { rowsPerSecond, batchSize }: { readonly rowsPerSecond: number; readonly batchSize: number },
): BackfillPace {
  const startMs = clock.monotonicMs()
  let freeAtMs = startMs
  return {
    mostRows: Math.min(batchSize, Math.max(1, Math.ceil(rowsPerSecond / 4))),
    spend: async (rows, signal) => {
      const nowMs = clock.monotonicMs()
      // Time that was not used is gone: after a wait for the relay the rate is the same as ever.
      freeAtMs = Math.max(freeAtMs, nowMs) + (rows * 1000) / rowsPerSecond
      if (freeAtMs > nowMs) await clock.sleep(freeAtMs - nowMs, signal)
    },
    progress: ({ rows, done, left }) => {
      const elapsedMs = clock.monotonicMs() - startMs
      return {
        rowsPerSecond: elapsedMs > 0 ? (rows * 1000) / elapsedMs : 0,
        etaMs: left === undefined || done === 0 ? undefined : Math.max(0, (left * elapsedMs) / done),
      }
    },
  }
}
