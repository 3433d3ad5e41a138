/**
 * Keeps what a pass holds in memory within a bound, whatever the size of the events it finds.
 *
 * Small events come with the look itself, as many as ever fit. When large ones are among them, the oldest rows that fit
 * together are kept and the others left for the next pass. What is left of a lane is always its end: no event goes out
 * without those before it. The oldest row is kept even if it is too large alone.
 */
import type { DispatchRow, FoundRow } from '../tables/dispatch.sql.ts'

type Body = Pick<DispatchRow, 'event_id' | 'payload' | 'headers'>

/** The rows that fit into `bytes`, complete. `readBodies` is asked for the large ones among them only. */
export async function withinBytes(
  found: readonly FoundRow[],
  bytes: number,
  readBodies: (eventIds: readonly string[]) => Promise<readonly Body[]>,
): Promise<readonly DispatchRow[]> {
  if (!found.some(isBehind)) return found as readonly DispatchRow[]
  const kept = oldestWithin(found, bytes)
  const bodies = new Map(
    (await readBodies(kept.filter(isBehind).map((row) => row.event_id))).map((body) => [body.event_id, body]),
  )
  // An event that went away in between is reported by the next look; nothing behind it goes out before.
  const gone = kept.findIndex((row) => isBehind(row) && !bodies.has(row.event_id))
  return (gone < 0 ? kept : kept.slice(0, gone)).map((row) => ({ ...row, ...bodies.get(row.event_id) }) as DispatchRow)
}

/** Of a missing event nothing is left behind, and a row that is only held needs no body. */
function isBehind({ topic, blocked, payload }: FoundRow): boolean {
  return topic !== null && !blocked && payload === null
}

function oldestWithin(found: readonly FoundRow[], bytes: number): readonly FoundRow[] {
  const oldest = found.toSorted(bySeq)
  let sum = 0
  const end = oldest.findIndex((row, nth) => (sum += row.blocked ? 0 : row.bytes) > bytes && nth > 0)
  return end < 0 ? oldest : oldest.slice(0, end)
}

function bySeq(a: FoundRow, b: FoundRow): number {
  const [first, second] = [BigInt(a.seq), BigInt(b.seq)]
  return first < second ? -1 : Number(first > second)
}
