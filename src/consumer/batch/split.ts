/**
 * How a batch is cut into parts, which are worked one after the other. Pure.
 *
 *   the same event twice                  the second when the first is done
 *   a crash suspect, or a slow event      alone; slow ones behind the others
 *   an event failed                       those before it, itself alone, those after it
 *   an event ran out of time              those before it, then it is settled as it is, those after it
 *   an error that names no event          halves
 *   a stored event failed                 the same again without stored ones: it fails by itself another time
 */
import { isWaybillError } from '../../core/errors.ts'
import { isLockTimeout, isStatementTimeout } from '../../postgres/query/sql-state.ts'
import { ItemFailure, orderKey, placeOf, type Item, type UnreadItem } from '../model/batch-item.ts'
import { suspectsLast } from '../model/places.ts'

export interface Duplicates<Each> {
  readonly first: readonly Each[]
  readonly again: readonly Each[]
}

/** The same event twice in one batch: the second is looked at when the first is done. In a log, with all that comes behind it. */
export function splitDuplicates<Each extends Pick<UnreadItem, 'event' | 'origin'>>(items: readonly Each[]): Duplicates<Each> {
  const seen = new Set<string>()
  const isAgain = items.map(({ event }) => {
    const wasSeen = seen.has(event.id)
    seen.add(event.id)
    return wasSeen
  })
  const at = isAgain.indexOf(true)
  if (at === -1) return { first: items, again: [] }
  const [item] = items
  if (item !== undefined && placeOf(item) !== undefined) return { first: items.slice(0, at), again: items.slice(at) }
  return { first: items.filter((_, i) => isAgain[i] === false), again: items.filter((_, i) => isAgain[i] === true) }
}

/** The items in order, cut so that those which must be alone are. */
export function isolate<Each>(items: readonly Each[], isAlone: (item: Each) => boolean): readonly (readonly Each[])[] {
  return cut(items, (item, before) => isAlone(item) || isAlone(before))
}

/** The items in order, cut where `is` changes. */
export function splitRuns<Each>(items: readonly Each[], is: (item: Each) => boolean): readonly (readonly Each[])[] {
  return cut(items, (item, before) => is(item) !== is(before))
}

function cut<Each>(items: readonly Each[], isBetween: (item: Each, before: Each) => boolean): readonly (readonly Each[])[] {
  const parts: Each[][] = []
  let before: Each | undefined
  for (const item of items) {
    if (before === undefined || isBetween(item, before)) parts.push([item])
    else parts.at(-1)?.push(item)
    before = item
  }
  return parts
}

/** The first parts of a round: crash suspects alone, and slow ones alone, behind the others with what is in line behind them. */
export function splitSuspects<Each extends UnreadItem>(
  items: readonly Each[],
  { isSlow, hasCrashed }: { readonly isSlow: (item: Each) => boolean; readonly hasCrashed: (item: Each) => boolean },
): readonly (readonly Each[])[] {
  const { others, suspects } = suspectsLast(items, isSlow, orderKey)
  const isAlone = (item: Each): boolean => hasCrashed(item) || isSlow(item)
  return [...isolate(others, isAlone), ...isolate(suspects, isAlone)]
}

/** A part whose transaction was rolled back. `drain`: stored events whose turn came were applied with it. */
export interface FailedPart<Each> {
  readonly items: readonly Each[]
  readonly drain: boolean
  readonly error: unknown
}

export type NextParts<Each> =
  | { readonly kind: 'without stored' }
  | { readonly kind: 'parts'; readonly parts: readonly (readonly Each[])[] }
  /** This one is to blame, and is settled between the others. */
  | { readonly kind: 'settle'; readonly before: readonly Each[]; readonly item: Each; readonly after: readonly Each[] }

/** What is worked next instead of a part that failed, other than by an outage. */
export function splitFailed<Each extends Item>({ items, drain, error }: FailedPart<Each>): NextParts<Each> {
  const culprit = error instanceof ItemFailure ? items.findIndex((item) => item === error.item) : undefined
  if (culprit === -1 && drain) return { kind: 'without stored' }
  const [only] = items
  if (items.length === 1 && only !== undefined) {
    // Rows and emitted events are written for all at once, so it may have been a stored one as well.
    if (drain && culprit === undefined) return { kind: 'without stored' }
    return { kind: 'settle', before: [], item: only, after: [] }
  }
  const item = items[culprit ?? -1]
  if (culprit === undefined || item === undefined) {
    const middle = Math.ceil(items.length / 2)
    return { kind: 'parts', parts: [items.slice(0, middle), items.slice(middle)] }
  }
  const [before, after] = [items.slice(0, culprit), items.slice(culprit + 1)]
  // It had its time to itself: another try would be taken from its neighbours.
  if (isOutOfTime(error)) return { kind: 'settle', before, item, after }
  return { kind: 'parts', parts: [before, [item], after] }
}

/**
 * How many errors in a row a part is tried through. After that an outage that came out of one handler is the handler's, and after
 * time-outs of our own statements the part is too much for the time, or the lock of one of its rows may last. An operator's cancel, or a
 * slow moment, does not come so often.
 */
const retryLimits = { handlerOutage: 3, timeout: 3, slowTimeout: 1 }

/** `isSlow`: a part of the batch met a time-out before. Its parts are halved at once; an item alone is charged for it, so is tried again. */
export function retryLimitOf(error: unknown, { isSlow, count }: { readonly isSlow: boolean; readonly count: number }): number {
  if (error instanceof ItemFailure) return retryLimits.handlerOutage
  if (!isTimeout(error)) return Infinity
  return isSlow && (count > 1 || isLockTimeout(error)) ? retryLimits.slowTimeout : retryLimits.timeout
}

/** A statement of ours ran out of time, or met a lock. */
export function isTimeout(error: unknown): boolean {
  return isStatementTimeout(error) || isLockTimeout(error)
}

/** A handler, or a statement of it, ran out of time. */
export function isOutOfTime(error: unknown): boolean {
  if (!(error instanceof ItemFailure)) return false
  return isWaybillError(error.cause, 'TIMEOUT') || isStatementTimeout(error.cause)
}
