/**
 * What the relay has in hand, as seen by the loop that renews its leases: which rows, and whether it has hung.
 */
import type { Clock } from '../../core/service/clock.ts'
import type { DispatchRow } from '../tables/dispatch.sql.ts'

export interface BatchWatch {
  /** A batch is under way, perhaps beside another, from before it is read. */
  begin(): WatchedBatch
  /** The rows under way, from the lowest to the highest. */
  range(): { readonly from: string; readonly to: string } | undefined
  /** Under way for too long: its leases are not renewed any more. */
  isStuck(): boolean
}

export interface WatchedBatch {
  /** These are in hand. */
  holds(rows: readonly DispatchRow[]): void
  end(): void
}

interface Batch {
  readonly startedAt: number
  range: { readonly from: bigint; readonly to: bigint } | undefined
}

export function createBatchWatch(clock: Clock, timeoutMs: number): BatchWatch {
  const batches = new Set<Batch>()
  return {
    begin: () => {
      const batch: Batch = { startedAt: clock.monotonicMs(), range: undefined }
      batches.add(batch)
      return {
        holds: (rows) => {
          const seqs = rows.map((row) => BigInt(row.seq))
          batch.range = { from: seqs.reduce(lower), to: seqs.reduce(higher) }
        },
        end: () => void batches.delete(batch),
      }
    },
    range: () => {
      const all = [...batches].flatMap(({ range }) => range ?? [])
      if (all.length === 0) return undefined
      return { from: String(all.map(({ from }) => from).reduce(lower)), to: String(all.map(({ to }) => to).reduce(higher)) }
    },
    isStuck: () => [...batches].some(({ startedAt }) => clock.monotonicMs() - startedAt > timeoutMs),
  }
}

function lower(a: bigint, b: bigint): bigint {
  return a < b ? a : b
}

function higher(a: bigint, b: bigint): bigint {
  return a > b ? a : b
}
