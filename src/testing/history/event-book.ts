/**
 * Every event of a history by its id: which version it stands for, and the lines in which it was committed and first published.
 *
 * Entries are not kept, only line numbers: what an explanation shows of them is made again from here.
 */
import type { Evidence } from './describe-entry.ts'
import type { HistoryEntry, Log } from './entry.ts'

export interface EventTrack {
  readonly event: string
  /** As its commit has it; before that, as whoever mentioned it first. */
  aggregate: string
  version: number
  /** Lines; 0 if it did not happen yet. */
  committed: number
  published: number
  /** Whose logs it is in. */
  publishedBy: readonly string[]
  /** An operator dropped it. */
  isDropped: boolean
  /** Readers may have got the void in its place before the event itself; of the two they keep the first. */
  isVoid: boolean
}

export class EventBook {
  readonly #tracks = new Map<string, EventTrack>()
  /** Messages in any log. */
  logged = 0
  /** Messages that were more than the first of their event in one log. */
  duplicates = 0

  get size(): number {
    return this.#tracks.size
  }

  all(): Iterable<EventTrack> {
    return this.#tracks.values()
  }

  find(event: string): EventTrack | undefined {
    return this.#tracks.get(event)
  }

  /** Notes what the entry says about its event. Judges see the entry after that. */
  see(entry: HistoryEntry, line: number): void {
    switch (entry.op) {
      case 'commit': {
        const track = this.#track(entry)
        if (track.committed > 0) return
        track.committed = line
        track.aggregate = entry.aggregate
        track.version = entry.version
        return
      }
      case 'log':
        return this.#publish(entry, line)
      case 'excuse':
        if (entry.consumer === undefined) this.#track(entry).isDropped = true
        return
      case 'deliver':
      case 'apply':
        this.#track(entry)
        return
      default:
    }
  }

  #publish(entry: Log, line: number): void {
    const track = this.#track(entry)
    const { source = '', isUnordered = false, isVoid = false } = entry
    const isFirst = !track.publishedBy.includes(source)
    this.logged += 1
    if (track.published === 0) track.published = line
    if (isFirst) track.publishedBy = [...track.publishedBy, source]
    else this.duplicates += 1
    // Where no order is known, whichever is recorded later may have come first.
    if (isVoid && (isFirst || isUnordered)) track.isVoid = true
  }

  #track({ event, aggregate = '', version = 0 }: { event: string; aggregate?: string; version?: number }): EventTrack {
    const known = this.#tracks.get(event)
    if (known !== undefined) return known
    const happened = { committed: 0, published: 0, publishedBy: [], isDropped: false, isVoid: false }
    const track: EventTrack = { event, aggregate, version, ...happened }
    this.#tracks.set(event, track)
    return track
  }
}

/** `video a v3` */
export function versionText({ aggregate, version }: { readonly aggregate: string; readonly version: number }): string {
  return `${aggregate} v${version}`
}

/** The commit of an event, as evidence. */
export function commitOf({ committed, event, aggregate, version }: EventTrack): Evidence {
  return { line: committed, entry: { op: 'commit', event, aggregate, version } }
}
