/**
 * What the relay has in hand, as seen by the loop that renews its leases: which rows, and whether it has hung.
 */
import type { Clock } from '../core/clock.ts'
import type { DispatchRow } from './dispatch.sql.ts'

export interface BatchWatch {
  /** A batch is under way, perhaps beside another, until the function that this returns is called. */
  begin(rows: readonly DispatchRow[]): () => void
  /** The rows under way, from the lowest to the highest. */
  range(): { readonly from: string; readonly to: string } | undefined
  /** Under way for too long: its leases are not renewed any more. */
  isStuck(): boolean
}

interface Batch {
  readonly startedAt: number
  readonly from: bigint
  readonly to: bigint
}

export function createBatchWatch(clock: Clock, timeoutMs: number): BatchWatch {
  const batches = new Set<Batch>()
  return {
    begin: (rows) => {
      const seqs = rows.map((row) => BigInt(row.seq))
      const batch = { startedAt: clock.monotonicMs(), from: seqs.reduce(lower), to: seqs.reduce(higher) }
      batches.add(batch)
      return () => void batches.delete(batch)
    },
    range: () => {
      if (batches.size === 0) return undefined
      const all = [...batches]
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
