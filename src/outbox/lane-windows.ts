/**
 * How many due rows to read of each lane: even at first, growing where there is more, shrinking where there is not.
 *
 * A limit over all lanes together would let one hot lane starve those behind it. So each lane has a window of its own;
 * a lane that filled its window gets a larger one, as long as the batch as a whole has room.
 */
import type { HeldLane } from '../postgres/lanes.sql.ts'
import type { DispatchRow, ReadWindow } from './dispatch.sql.ts'

export interface LaneWindows {
  of(lane: number): number
  /** Heads to take up per lane, and rows to read behind a head that has not failed. */
  limits(): { readonly heads: number; readonly chain: number }
  /** The windows for the next read. */
  plan(held: readonly HeldLane[]): readonly ReadWindow[]
  /** Learns from what was read. */
  learn(rows: readonly DispatchRow[]): void
}

const smallestChain = 16

export function createLaneWindows(batchSize: number, drainSize: number): LaneWindows {
  let sizes = new Map<number, number>()
  let base = batchSize
  let chain = smallestChain
  const of = (lane: number): number => sizes.get(lane) ?? base
  return {
    of,
    limits: () => ({ heads: Math.max(4, base), chain }),
    plan: (held) => {
      base = Math.max(1, Math.ceil(batchSize / Math.max(1, held.length)))
      sizes = new Map(held.map(({ lane }) => [lane, Math.max(base, sizes.get(lane) ?? base)]))
      return held.map((each) => ({ ...each, window: of(each.lane) }))
    },
    learn: (rows) => {
      const found = new Map<number, number>()
      for (const row of rows) if (row.state === 0) found.set(row.lane, (found.get(row.lane) ?? 0) + 1)
      const chained = rows.reduce((count, row) => count + (row.state === 2 ? 1 : 0), 0)
      if (rows.length > drainSize) chain = Math.max(smallestChain, Math.floor(chain / 2))
      else if (chained >= chain && rows.length <= drainSize / 2) chain = Math.min(drainSize, chain * 2)
      let room = drainSize
      for (const count of found.values()) room -= count
      for (const lane of sizes.keys()) {
        const size = of(lane)
        const full = (found.get(lane) ?? 0) >= size
        if (!full) sizes.set(lane, Math.max(base, Math.floor(size / 2)))
        else if (room > 0) {
          const grown = Math.min(size * 2, size + room, drainSize)
          room -= grown - size
          sizes.set(lane, grown)
        }
      }
    },
  }
}
