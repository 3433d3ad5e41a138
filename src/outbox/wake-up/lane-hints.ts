/**
 * Where a relay that rests looks first when it is woken: at the lanes of the aggregates that changed, instead of at all of its own.
 *
 * A hint only makes one look cheaper. All lanes are looked at after every look that found something, and at least once in the
 * time that a relay without hints would sleep; so what nobody gave a hint for is found as soon as ever.
 */
import { hash } from 'node:crypto'
import type { Clock } from '../../core/service/clock.ts'

/** The ends of the changed aggregates' keys, which choose their lanes, however many lanes there are. Undefined: anywhere. */
export type LaneHint = readonly number[] | undefined

/** Beyond these, telling them apart costs more than looking everywhere. */
const mostHints = 8
/** Lanes are numbered by a smallint. */
const laneBits = 0x7f_ff

export interface AggregateName {
  readonly aggregateType: string
  readonly aggregateId: string
}

/** As `add_event` computes the key. */
export function hintOf(aggregates: readonly AggregateName[]): LaneHint {
  if (aggregates.length > mostHints) return undefined
  return aggregates.map(({ aggregateType, aggregateId }) => {
    return hash('sha256', `${aggregateType}\u001F${aggregateId}`, 'buffer').readUInt16BE(6) & laneBits
  })
}

/** A hint as the payload of a notification, and back. */
export function writeHint(hint: LaneHint): string {
  return hint?.join(' ') ?? ''
}

/** What is no hint says "anywhere": anybody may send a notification. */
export function readHint(payload: string): LaneHint {
  return /^\d{1,5}(?: \d{1,5}){0,7}$/.test(payload) ? payload.split(' ').map(Number) : undefined
}

/** Hints that come while nobody has time for them. */
export class GatheredHints {
  #places: Set<number> | undefined = new Set()

  add(hint: LaneHint): void {
    for (const place of hint ?? []) this.#places?.add(place)
    if (hint === undefined || (this.#places?.size ?? 0) > mostHints) this.#places = undefined
  }

  /** All of them as one, and begins again. Without any it is an empty one. */
  take(): LaneHint {
    const places = this.#places
    this.#places = new Set()
    return places === undefined ? undefined : [...places]
  }
}

export interface LaneHints {
  add(hint: LaneHint): void
  /** Which of `lanes` lanes the next look is at; undefined: all of them. `isResting`: the last look found nothing. */
  take(lanes: number, isResting: boolean): ReadonlySet<number> | undefined
}

export function createLaneHints(clock: Clock, idleMs: number): LaneHints {
  const gathered = new GatheredHints()
  let lookedAt = Number.NEGATIVE_INFINITY
  return {
    add: (hint) => gathered.add(hint),
    take: (lanes, isResting) => {
      const hint = gathered.take() ?? []
      const now = clock.monotonicMs()
      if (isResting && hint.length > 0 && now - lookedAt < idleMs) return new Set(hint.map((place) => place & (lanes - 1)))
      lookedAt = now
      return undefined
    },
  }
}
