/**
 * Which items are suspect: an earlier delivery of theirs may have ended a process, or has attempts written down. Suspects are
 * looked up and marked before they begin, which is before they are decoded, and their marks go with their effect; for all others a
 * batch has no statement.
 *
 * Brokers tell what they gave back, but not all of them count a delivery whose receiver died. So everything is suspect for a
 * while after a start: what was in hand comes first. Before it may come any number that are done: a log begins again where its
 * oldest open message is. So that while lasts until as many as can be in hand came in a row and all of them were new.
 * Of letters and waiting messages nobody tells anything, and they come again at every start: they always are. A message of
 * stored mode has its failures counted in its row: who reads it, whoever charged it, says so by `charged`.
 */
import type { Applied, Item, UnreadItem } from './item.ts'

export interface Suspicion {
  readonly isSuspect: (item: UnreadItem) => boolean
  /** A failure of this item was written down, and it comes again. */
  readonly charged: (item: UnreadItem) => void
  /** The marks of these items are gone. */
  readonly committed: (items: readonly Item[], applied: Pick<Applied, 'duplicates'>) => void
}

/** The newest are remembered: whatever failed longer ago comes rarely. */
const mostRemembered = 10_000
/** Where duplicates never end, the start does, after so many times what can be in hand. */
const longestStart = 100

export function createSuspicion(maxInFlight: number): Suspicion {
  /** What this process has marked, or charged, and not finished. */
  const open = new Set<string>()
  let isStarting = true
  let newInARow = 0
  let total = 0
  const remember = (id: string): void => {
    open.add(id)
    if (open.size <= mostRemembered) return
    for (const oldest of open) return void open.delete(oldest)
  }
  return {
    isSuspect: ({ event, origin }) => {
      if (origin.kind === 'dead' || origin.kind === 'waiting' || open.has(event.id)) return true
      const isAgain = origin.kind === 'delivery' && (origin.delivery.message.deliveryAttempt ?? 1) > 1
      if (!isStarting && !isAgain) return false
      remember(event.id)
      return true
    },
    charged: ({ event }) => remember(event.id),
    committed: (items, { duplicates }) => {
      if (open.size > 0) for (const { event } of items) open.delete(event.id)
      if (!isStarting) return
      total += items.length
      newInARow = duplicates > 0 ? 0 : newInARow + items.length
      isStarting = newInARow < maxInFlight && total < longestStart * maxInFlight
    },
  }
}
