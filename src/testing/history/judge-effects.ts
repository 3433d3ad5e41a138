/**
 * What consumers made of the events: each effect once, or a dead letter, and versions that never decrease.
 */
import { readerText, type Evidence } from './describe-entry.ts'
import { aggregateTypeOf, type Apply, type Excuse, type Follow, type HistoryEntry, type Observe } from './entry.ts'
import { commitOf, versionText, type EventBook, type EventTrack } from './event-book.ts'
import type { Findings, Judge, RestEvidence } from './invariants.ts'

/** A consumer in one of its lives. */
interface Reader {
  readonly consumer: string
  readonly generation: number
  /** The line of each effect. */
  readonly applied: Map<string, number>
  readonly excused: Set<string>
  /** Events whose dead letter nobody has settled, and where that stands. */
  readonly dead: Map<string, Evidence>
  /** What it reads, and where it said so. */
  readonly follows: Map<string, Evidence>
  /** Committed, of a type that it reads, and without an effect so far. */
  readonly outstanding: Set<EventTrack>
}

/**
 * No effect twice; and at rest, one effect of every event that the consumer reads, unless it is excused, and none of an event
 * whose dead letter waits for somebody.
 */
export function judgeEffects(book: EventBook, findings: Findings): Judge {
  const readers = new Map<string, Reader>()
  const readerOf = ({ consumer, generation = 1 }: { readonly consumer: string; readonly generation?: number }): Reader => {
    const name = `${consumer}\n${generation}`
    const known = readers.get(name)
    if (known !== undefined) return known
    const reader: Reader = {
      consumer,
      generation,
      applied: new Map(),
      excused: new Set(),
      dead: new Map(),
      follows: new Map(),
      outstanding: new Set(),
    }
    readers.set(name, reader)
    return reader
  }
  const apply = (entry: Apply, line: number): void => {
    const reader = readerOf(entry)
    const track = book.find(entry.event)
    findings.check('one-effect')
    const first = reader.applied.get(entry.event)
    if (first !== undefined) {
      const { source: _source, after: _after, ...again } = entry
      const evidence = [
        { line: first, entry: again },
        { line, entry },
      ] satisfies Evidence[]
      return findings.violate('one-effect', `${nameOf(track, entry.event)} was applied twice by ${readerText(entry)}`, evidence)
    }
    reader.applied.set(entry.event, line)
    if (track !== undefined) reader.outstanding.delete(track)
  }
  return {
    see: (entry, line) => {
      if (entry.op === 'apply') return apply(entry, line)
      if (entry.op === 'follow') return follow(readerOf(entry), { line, entry }, book)
      if (entry.op === 'excuse' && entry.consumer !== undefined)
        return excuse(readerOf({ ...entry, consumer: entry.consumer }), { line, entry }, findings)
      const track = entry.op === 'commit' ? book.find(entry.event) : undefined
      if (track !== undefined) for (const reader of readers.values()) expect(reader, track)
    },
    end: (ended, rest) => {
      for (const reader of readers.values()) {
        judgeMissing(reader, { book, findings: ended, rest })
        judgeDead(reader, ended, rest)
      }
    },
  }
}

function excuse(reader: Reader, evidence: Evidence & { readonly entry: Excuse }, findings: Findings): void {
  const { event, isDead = false } = evidence.entry
  reader.excused.add(event)
  findings.check('one-fate')
  if (isDead) reader.dead.set(event, evidence)
  else reader.dead.delete(event)
}

/** The letter of what was applied was settled with the effect. */
function judgeDead({ dead, applied, consumer, generation }: Reader, findings: Findings, rest: RestEvidence): void {
  for (const [event, letter] of dead) {
    const line = applied.get(event)
    if (line === undefined) continue
    const entry = { op: 'apply', consumer, generation, event } as const
    const text = `event ${event} was applied by ${readerText(entry)}, which has a dead letter of it that is not settled`
    findings.violate('one-fate', text, [{ line, entry }, letter, ...rest])
  }
}

function follow(reader: Reader, evidence: Evidence & { readonly entry: Follow }, book: EventBook): void {
  for (const type of evidence.entry.types) if (!reader.follows.has(type)) reader.follows.set(type, evidence)
  for (const track of book.all()) if (track.committed > 0) expect(reader, track)
}

function expect(reader: Reader, track: EventTrack): void {
  if (reader.follows.has(aggregateTypeOf(track.aggregate)) && !reader.applied.has(track.event)) reader.outstanding.add(track)
}

function judgeMissing(
  { outstanding, excused, follows, ...reader }: Reader,
  { book, findings, rest }: { readonly book: EventBook; readonly findings: Findings; readonly rest: RestEvidence },
): void {
  for (const track of outstanding) {
    // What was not published is lost, and that has been said.
    const isAway = track.isDropped || track.isVoid || (track.published === 0 && book.logged > 0)
    if (isAway || excused.has(track.event)) continue
    const follower = follows.get(aggregateTypeOf(track.aggregate))
    const evidence = [...(follower === undefined ? [] : [follower]), commitOf(track), ...rest]
    findings.violate('one-effect', `${versionText(track)} was never applied by ${readerText(reader)}`, evidence)
  }
}

function nameOf(track: EventTrack | undefined, event: string): string {
  return track === undefined || track.version === 0 ? `event ${event}` : versionText(track)
}

/** In the order of each source, what a projection is at never decreases. */
export function judgeVersions(book: EventBook, findings: Findings): Judge {
  const last = new Map<string, { readonly version: number; readonly evidence: Evidence }>()
  const look = (
    entry: Apply | Observe,
    at: { readonly aggregate: string; readonly version: number; readonly line: number },
  ): void => {
    findings.check('version-monotonic')
    const { consumer, generation = 1 } = entry
    const place = `${entry.op}\n${entry.source ?? ''}\n${consumer}\n${generation}\n${at.aggregate}`
    const before = last.get(place)
    const evidence = { line: at.line, entry }
    if (before !== undefined && at.version < before.version)
      findings.violate(
        'version-monotonic',
        `${at.aggregate} at ${readerText(entry)} went back from v${before.version} to v${at.version}`,
        [before.evidence, evidence],
      )
    last.set(place, { version: at.version, evidence })
  }
  return {
    see: (entry: HistoryEntry, line) => {
      if (entry.op === 'observe') look(entry, { aggregate: entry.aggregate, version: entry.version, line })
      if (entry.op !== 'apply' || entry.after === undefined) return
      const aggregate = entry.aggregate ?? book.find(entry.event)?.aggregate ?? ''
      if (aggregate !== '') look(entry, { aggregate, version: entry.after, line })
    },
    end: () => {},
  }
}
