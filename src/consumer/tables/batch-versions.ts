/**
 * What a batch holds of each aggregate: its oldest version, its newest event, and whether its versions follow each other without
 * a gap.
 *
 * A position that was moved to the newest of a batch no longer tells where it was. Without a gap it need not: had it been within
 * the batch, the event there would be a duplicate, and had it been beyond, it would still be. In a gap nothing tells.
 */
import type { Version } from '../../core/event/version.ts'
import type { Item } from '../model/batch-item.ts'

export interface BatchVersions {
  oldest: Version
  newest: Item['event']
  hasGap: boolean
  /** Two events have one version. */
  hasTwins: boolean
  readonly sequential: boolean
}

/** By aggregate. Items of one aggregate come in the order of versions; where they do not, that is taken for a gap. */
export function batchVersions(items: readonly Pick<Item, 'event' | 'key' | 'sequential'>[]): Map<string, BatchVersions> {
  const found = new Map<string, BatchVersions>()
  for (const { key, event, sequential } of items) {
    const known = found.get(key)
    if (known === undefined) found.set(key, { oldest: event.version, newest: event, hasGap: false, hasTwins: false, sequential })
    else add(known, event)
  }
  return found
}

function add(known: BatchVersions, event: Item['event']): void {
  const { version } = known.newest
  known.hasTwins ||= event.version === version
  known.hasGap ||= event.version !== version && event.version !== version + 1n
  if (event.version < known.oldest) known.oldest = event.version
  if (event.version > version) known.newest = event
}
