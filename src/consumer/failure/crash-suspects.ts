/**
 * Which items are suspect: an earlier delivery of theirs may have ended a process, or has attempts written down. Suspects are
 * looked up and marked before they begin, which is before they are decoded, and their marks go with their effect; for all others a
 * batch has no statement.
 *
 * Brokers tell what they gave back, but not all of them count a delivery whose receiver died. So everything is suspect for a
 * while after a start: what was in hand comes first. Before it may come any number that are done: a log begins again where its
 * oldest open message is. So that while lasts until as many as can be in hand came in a row and all of them were new.
 * Letters and waiting messages come again at every start, and no broker counts them: they always are. A message of stored mode has its
 * failures counted in its row, which its reader passes on by `markFailed`.
 *
 * Apart from that it knows the slow ones: those whose handler, or a statement of it, ran out of time in this process.
 */
import type { Applied, Item, UnreadItem } from '../model/batch-item.ts'

export interface CrashSuspects {
  readonly isSuspect: (item: UnreadItem) => boolean
  /** A failure of this item was written down, and it comes again. */
  readonly markFailed: (item: UnreadItem) => void
  /** Its handler ran out of time: it is slow until it is committed. */
  readonly timedOut: (item: UnreadItem) => void
  readonly isSlow: (item: Pick<UnreadItem, 'event'>) => boolean
  /** The marks of these items are gone. */
  readonly committed: (items: readonly Item[], applied: Pick<Applied, 'duplicates'>) => void
}

/** The newest are remembered: whatever failed longer ago comes rarely. */
const mostRemembered = 10_000
/** Where duplicates never end, the start does, after so many times what can be in hand. */
const longestStart = 100

export function createCrashSuspects(maxInFlight: number): CrashSuspects {
  /** What this process has marked, or has failed, and not finished. */
  const open = new Set<string>()
  const slow = new Set<string>()
  let isStarting = true
  let newInARow = 0
  let total = 0
  const remember = (id: string, ids = open): void => {
    ids.add(id)
    if (ids.size <= mostRemembered) return
    for (const oldest of ids) return void ids.delete(oldest)
  }
  return {
    isSuspect: ({ event, origin }) => {
      if (origin.kind === 'dead' || origin.kind === 'waiting' || open.has(event.id)) return true
      const isAgain = origin.kind === 'delivery' && (origin.delivery.message.deliveryAttempt ?? 1) > 1
      if (!isStarting && !isAgain) return false
      remember(event.id)
      return true
    },
    markFailed: ({ event }) => remember(event.id),
    timedOut: ({ event }) => remember(event.id, slow),
    isSlow: ({ event }) => slow.size > 0 && slow.has(event.id),
    committed: (items, { duplicates }) => {
      for (const ids of [open, slow]) if (ids.size > 0) for (const { event } of items) ids.delete(event.id)
      if (!isStarting) return
      total += items.length
      newInARow = duplicates > 0 ? 0 : newInARow + items.length
      isStarting = newInARow < maxInFlight && total < longestStart * maxInFlight
    },
  }
}
