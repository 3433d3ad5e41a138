/**
 * Takes redriven letters and released messages into one hand before they are worked.
 *
 *   free ──take──▶ in hand ──applied, dead again or put to rest──▶ gone
 *    ▲               │
 *    └──given back───┘   or its lease is over, because the process died
 *
 * Every instance sees the same ones. An attempt that begins is marked, and a mark that nobody finished tells of the death of a
 * process: two instances with the same one in hand would look like that. The lease is short, so that a death costs little,
 * and is prolonged while they are worked. What a transaction of ours has locked needs no lease: nobody can take it.
 */
import { execute, rows } from '../../postgres/query/database.ts'
import type { Statement } from '../../postgres/query/sql.ts'
import type { ConsumerSettings } from '../model/consumer-options.ts'
import type { Scope } from '../tables/inbox.sql.ts'
import { lineOf, type UnreadItem } from '../model/batch-item.ts'
import { leasedLetters, leasedWaiting, type TakenRow } from '../tables/leased-work.sql.ts'

export interface LeasedWorkDeps {
  readonly settings: Pick<ConsumerSettings, 'db' | 'leaseMs' | 'clock'>
  readonly scope: Scope
  /** Settles every item; never rejects. */
  readonly work: (items: readonly UnreadItem[]) => Promise<void>
}

/**
 * Works those items that nobody else has in hand: letters, or waiting messages, each aggregate's in the order of versions.
 * Returns how many those were.
 */
export function createLeasedWork({ settings, scope, work }: LeasedWorkDeps): (items: readonly UnreadItem[]) => Promise<number> {
  const { db, leaseMs } = settings
  return async (items) => {
    const [first] = items
    if (first === undefined) return 0
    const { take, renew, give } = first.origin.kind === 'dead' ? leasedLetters : leasedWaiting
    const taken = await rows(db, take(scope, items, leaseMs))
    if (taken.length === 0) return 0
    const done = new AbortController()
    const kept = keep(settings, { taken, done: done.signal, renew: (held) => renew(scope, held, leaseMs) })
    const open = behindNobody(items, new Set(taken.map(({ id }) => id)))
    try {
      await work(open)
    } finally {
      done.abort()
      await execute(db, give(scope, await kept))
    }
    return open.length
  }
}

/** Prolongs the leases until the work is done; returns them as they are then. One that could not be prolonged ends by itself. */
async function keep(
  { db, leaseMs, clock }: LeasedWorkDeps['settings'],
  lease: {
    readonly taken: readonly TakenRow[]
    readonly done: AbortSignal
    readonly renew: (held: readonly TakenRow[]) => Statement<TakenRow>
  },
): Promise<readonly TakenRow[]> {
  let held = lease.taken
  for (;;) {
    await clock.sleep(leaseMs / 3, lease.done)
    if (lease.done.aborted) return held
    const renewed = await rows(db, lease.renew(held)).catch(() => [])
    const untils = new Map(renewed.map(({ id, until }) => [id, until]))
    held = held.map(({ id, until }) => ({ id, until: untils.get(id) ?? until }))
  }
}

/** What was taken, except what is in line behind one that another instance has. */
function behindNobody(items: readonly UnreadItem[], taken: ReadonlySet<string>): readonly UnreadItem[] {
  const blocked = new Set(items.filter(({ event }) => !taken.has(event.id)).map(lineOf))
  return blocked.size === 0 ? items : items.filter((item) => !blocked.has(lineOf(item)))
}
