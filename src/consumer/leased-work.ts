/**
 * Takes redriven letters and released messages into one hand before they are worked.
 *
 *   free ──take──▶ in hand ──applied, dead again or put to rest──▶ gone
 *    ▲               │
 *    └──given back───┘   or its lease is over, because the process died
 *
 * Every instance sees the same ones. An attempt that begins is marked, and a mark that nobody finished tells of the death of a
 * process: two instances with the same one in hand would look like that. The lease is as long as a handler may take.
 */
import { execute, rows } from '../postgres/database.ts'
import type { ConsumerSettings } from './consumer-options.ts'
import type { Scope } from './inbox.sql.ts'
import { lineOf, type Item } from './item.ts'
import { giveLetters, giveWaiting, takeLetters, takeWaiting } from './leased-work.sql.ts'

export interface LeasedWorkDeps {
  readonly settings: Pick<ConsumerSettings, 'db' | 'handlerTimeoutMs'>
  readonly scope: Scope
  /** Settles every item; never rejects. */
  readonly work: (items: readonly Item[]) => Promise<void>
}

/** Works those items that nobody else has in hand: letters, or waiting messages, each aggregate's in the order of versions. */
export function createLeasedWork({ settings, scope, work }: LeasedWorkDeps): (items: readonly Item[]) => Promise<void> {
  const { db, handlerTimeoutMs } = settings
  return async (items) => {
    const [first] = items
    if (first === undefined) return
    const isLetters = first.origin.kind === 'dead'
    const taken = await rows(db, (isLetters ? takeLetters : takeWaiting)(scope, items, handlerTimeoutMs))
    if (taken.length === 0) return
    try {
      await work(behindNobody(items, new Set(taken.map(({ id }) => id))))
    } finally {
      await execute(db, (isLetters ? giveLetters : giveWaiting)(scope, taken))
    }
  }
}

/** What was taken, except what is in line behind one that another instance has. */
function behindNobody(items: readonly Item[], taken: ReadonlySet<string>): readonly Item[] {
  const blocked = new Set(items.filter(({ event }) => !taken.has(event.id)).map(lineOf))
  return blocked.size === 0 ? items : items.filter((item) => !blocked.has(lineOf(item)))
}
