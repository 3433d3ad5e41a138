/**
 * What the relay has in hand, as seen by the loop that renews its leases: which rows, and whether it has hung.
 */
import type { Clock } from '../core/clock.ts'
import type { DispatchRow } from './dispatch.sql.ts'

export interface BatchWatch {
  begin(rows: readonly DispatchRow[]): void
  end(): void
  /** The rows under way, from the lowest to the highest. */
  range(): { readonly from: string; readonly to: string } | undefined
  /** Under way for too long: its leases are not renewed any more. */
  isStuck(): boolean
}

export function createBatchWatch(clock: Clock, timeoutMs: number): BatchWatch {
  let range: { readonly from: string; readonly to: string } | undefined
  let startedAt = 0
  return {
    begin: (rows) => {
      startedAt = clock.monotonicMs()
      const seqs = rows.map((row) => BigInt(row.seq))
      const from = seqs.reduce((a, b) => (a < b ? a : b))
      const to = seqs.reduce((a, b) => (a > b ? a : b))
      range = { from: String(from), to: String(to) }
    },
    end: () => {
      range = undefined
    },
    range: () => range,
    isStuck: () => range !== undefined && clock.monotonicMs() - startedAt > timeoutMs,
  }
}
