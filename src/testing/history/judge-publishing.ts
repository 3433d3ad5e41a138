/**
 * Between the owner's database and the broker: nothing lost, nothing made up, first occurrences in order.
 */
import type { Evidence } from './describe-entry.ts'
import type { HistoryEntry, Log, Read } from './entry.ts'
import { commitOf, versionText, type EventBook, type EventTrack } from './event-book.ts'
import type { Findings, Judge } from './invariants.ts'

/** Every commit is followed by a publication, some time before the end. Commits and log may come in any order. */
export function judgeLoss(book: EventBook): Judge {
  const unpublished = new Set<EventTrack>()
  let commits = 0
  return {
    see: (entry) => {
      if (entry.op !== 'commit' && entry.op !== 'log') return
      const track = book.find(entry.event)
      if (track === undefined) return
      if (entry.op === 'commit') commits += 1
      if (track.published > 0) unpublished.delete(track)
      else unpublished.add(track)
    },
    end: (findings, rest) => {
      findings.check('no-loss', commits)
      for (const track of unpublished) {
        if (track.isDropped) continue
        findings.violate('no-loss', `${versionText(track)} was committed and never published`, [commitOf(track), ...rest])
      }
    },
  }
}

/** Whatever is mentioned anywhere was committed, under the id and the version that it is mentioned with. */
export function judgeGhosts(book: EventBook, findings: Findings): Judge {
  const versions = new Map<string, EventTrack>()
  const highest = new Map<string, number>()
  const unexplained = new Map<EventTrack, Mention[]>()
  const readAhead = new Map<string, { readonly line: number; readonly entry: Read }>()
  const compare = (track: EventTrack, mention: Mention): void => {
    const { aggregate = track.aggregate, version = track.version } = mention.entry
    if (aggregate === track.aggregate && version === track.version) return
    const text = `${versionText({ aggregate, version })} has the id of ${versionText(track)}`
    findings.violate('no-ghost', text, [commitOf(track), mention])
  }
  const commit = (track: EventTrack, of: Mention): void => {
    if (track.committed !== of.line) return compare(track, of)
    const name = versionText(track)
    const other = versions.get(name)
    if (other === undefined) versions.set(name, track)
    else if (other !== track)
      findings.violate('no-ghost', `${name} was committed as two events`, [commitOf(other), commitOf(track)])
    highest.set(track.aggregate, Math.max(track.version, highest.get(track.aggregate) ?? 0))
    for (const earlier of unexplained.get(track) ?? []) compare(track, earlier)
    unexplained.delete(track)
  }
  const mention = (track: EventTrack, of: Mention): void => {
    findings.check('no-ghost')
    if (track.committed > 0) return compare(track, of)
    const earlier = unexplained.get(track)
    if (earlier === undefined) unexplained.set(track, [of])
    else if (!earlier.some(({ entry }) => isSameVersion(entry, of.entry))) earlier.push(of)
  }
  return {
    see: (entry, line) => {
      if (entry.op === 'read') {
        if (entry.served > (readAhead.get(entry.aggregate)?.entry.served ?? 0)) readAhead.set(entry.aggregate, { line, entry })
        return
      }
      if (!isMention(entry)) return
      const track = book.find(entry.event)
      if (track === undefined) return
      if (entry.op === 'commit') commit(track, { line, entry })
      else mention(track, { line, entry })
    },
    end: (ended, rest) => {
      for (const [track, [of]] of unexplained) {
        if (of === undefined) continue
        const name = track.version === 0 ? `event ${track.event}` : versionText(track)
        ended.violate('no-ghost', `${name} ${happened[of.entry.op]} and was never committed`, [of, ...rest])
      }
      for (const of of readAhead.values()) {
        const { aggregate, served } = of.entry
        if (served <= (highest.get(aggregate) ?? 0)) continue
        ended.violate('no-ghost', `${versionText({ aggregate, version: served })} was read and never committed`, [of, ...rest])
      }
    },
  }
}

const happened = { commit: 'was committed', log: 'was published', deliver: 'was delivered', apply: 'was applied' } as const

interface Mention extends Evidence {
  readonly entry: Extract<HistoryEntry, { readonly op: keyof typeof happened }>
}

function isSameVersion(one: Mention['entry'], other: Mention['entry']): boolean {
  return one.aggregate === other.aggregate && one.version === other.version
}

function isMention(entry: HistoryEntry): entry is Mention['entry'] {
  return entry.op in happened
}

/** Per topic and aggregate, no version is first seen after a higher one. Only the order of that topic's log matters. */
export function judgeOrder(findings: Findings): Judge {
  const seen = new Map<string, Set<string>>()
  const highest = new Map<string, { readonly line: number; readonly entry: Log }>()
  const isFirst = ({ source = '', topic = '', event }: Log): boolean => {
    const log = `${source}\n${topic}`
    const events = seen.get(log) ?? new Set()
    seen.set(log, events)
    return events.size < events.add(event).size
  }
  return {
    see: (entry, line) => {
      if (entry.op !== 'log' || entry.isUnordered === true || !isFirst(entry)) return
      findings.check('first-occurrence-order')
      const place = `${entry.source ?? ''}\n${entry.topic ?? ''}\n${entry.aggregate}`
      const last = highest.get(place)
      if (last === undefined || entry.version > last.entry.version) highest.set(place, { line, entry })
      else if (entry.version < last.entry.version)
        findings.violate('first-occurrence-order', `${versionText(entry)} was first published after v${last.entry.version}`, [
          last,
          { line, entry },
        ])
    },
    end: () => {},
  }
}
