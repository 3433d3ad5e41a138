/**
 * How a batch is cut into what is worked together.
 */
import type { UnreadItem } from '../model/batch-item.ts'
import { placeOf } from '../tables/offsets.ts'

export interface Twins {
  readonly first: readonly UnreadItem[]
  readonly again: readonly UnreadItem[]
}

/** The same event twice in one batch: the second is looked at when the first is done. */
export function splitTwins(items: readonly UnreadItem[]): Twins {
  const [first] = items
  return first !== undefined && placeOf(first) !== undefined ? untilTwin(items) : withoutTwins(items)
}

function withoutTwins(items: readonly UnreadItem[]): Twins {
  const seen = new Set<string>()
  const again: UnreadItem[] = []
  const first = items.filter((item) => {
    if (seen.size < seen.add(item.event.id).size) return true
    again.push(item)
    return false
  })
  return { first, again }
}

/** In a log nothing is passed over, so what comes behind a twin waits with it. */
function untilTwin(items: readonly UnreadItem[]): Twins {
  const seen = new Set<string>()
  const twin = items.findIndex(({ event }) => seen.size === seen.add(event.id).size)
  return twin === -1 ? { first: items, again: [] } : { first: items.slice(0, twin), again: items.slice(twin) }
}

/** The items in order, cut so that those which must be alone are. */
export function cutOut<Each>(items: readonly Each[], isAlone: (item: Each) => boolean): readonly (readonly Each[])[] {
  const parts: Each[][] = []
  let open: Each[] | undefined
  for (const item of items) {
    if (isAlone(item)) {
      parts.push([item])
      open = undefined
    } else if (open === undefined) parts.push((open = [item]))
    else open.push(item)
  }
  return parts
}

/** The items in order, cut where `is` changes. */
export function runsOf<Each>(items: readonly Each[], is: (item: Each) => boolean): readonly (readonly Each[])[] {
  const runs: Each[][] = []
  for (const [i, item] of items.entries()) {
    const before = items[i - 1]
    if (before !== undefined && is(before) === is(item)) runs.at(-1)?.push(item)
    else runs.push([item])
  }
  return runs
}
