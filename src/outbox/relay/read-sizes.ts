/**
 * How many due rows to read of each lane: even at first, growing where there is more, shrinking where there is not.
 *
 * A limit over all lanes together would let one hot lane starve those behind it. So each lane has a window of its own;
 * lanes that filled theirs share the room of a whole batch evenly. The batch is bounded in rows and in bytes; what the last
 * one tells of the size of events only keeps the next look from finding much more than fits.
 */
import type { HeldLane } from '../../postgres/lanes/lanes.sql.ts'
import type { DispatchRow, ReadLimits, ReadWindow } from '../tables/dispatch.sql.ts'

export interface LaneWindows {
  of(lane: number): number
  /** The limits of the next read, for each of its parts. */
  limits(): ReadLimits
  /** The windows for the next read: in one part, or while there is much to do in two that are worked side by side. */
  plan(held: readonly HeldLane[]): readonly (readonly ReadWindow[])[]
  /** Learns from what was read, and whether a key could have sent more from behind its head. */
  learn(rows: readonly DispatchRow[], ranOut: boolean): void
}

const smallestChain = 16
/** Payloads and headers that a pass holds in memory at most, unless one event alone is larger. */
const batchBytes = 64 * 1024 * 1024

export function createLaneWindows(batchSize: number, drainSize: number): LaneWindows {
  let sizes = new Map<number, number>()
  let room = drainSize
  let base = batchSize
  let chain = smallestChain
  let isDeep = false
  const of = (lane: number): number => sizes.get(lane) ?? base
  const next = (size: number, fair: number): number => (size < fair ? Math.min(size * 2, fair) : Math.max(fair, size >> 1))
  return {
    of,
    limits: () => ({ heads: Math.max(4, base), chain, bytes: isDeep ? batchBytes / 2 : batchBytes }),
    plan: (held) => {
      base = Math.max(1, Math.ceil(Math.min(batchSize, room) / Math.max(1, held.length)))
      sizes = new Map(held.map(({ lane }) => [lane, Math.max(base, sizes.get(lane) ?? base)]))
      const windows = held.map((each) => ({ ...each, window: of(each.lane) }))
      if (!isDeep || held.length < 2) return [windows]
      return [windows.filter((_, i) => i % 2 === 0), windows.filter((_, i) => i % 2 === 1)]
    },
    learn: (rows, ranOut) => {
      const due = new Map<number, number>()
      let chained = 0
      let bytes = 0
      for (const { state, lane, payload } of rows) {
        if (state === 0) due.set(lane, (due.get(lane) ?? 0) + 1)
        if (state === 2) chained += 1
        bytes += (payload as Uint8Array | null)?.byteLength ?? 0
      }
      isDeep = rows.length >= batchSize
      if (bytes > 0) room = Math.max(1, Math.min(drainSize, Math.floor((batchBytes * rows.length) / bytes)))
      // Heads share the chain, and not all of them have one: half of it filled means that there is more.
      if (ranOut && chained * 2 >= chain) chain *= 2
      // A key whose events go to two topics in turn sends one a pass, and would have its whole chain read for it.
      if (!ranOut && chained > 0) chain = chained >> 1
      chain = Math.max(Math.min(chain, room), Math.min(smallestChain, room))
      const isFull = (lane: number): boolean => (due.get(lane) ?? 0) >= of(lane)
      const full = [...sizes.keys()].filter(isFull)
      const fair = Math.max(base, Math.floor(room / Math.max(1, full.length)))
      for (const [lane, size] of sizes) sizes.set(lane, full.includes(lane) ? next(size, fair) : Math.max(base, size >> 1))
    },
  }
}
