/**
 * One message on its way through a consumer, wherever it came from, and what one batch made of it.
 *
 *   delivery   from the broker: settled by ack or nack
 *   stored     from inbox_message, in stored mode: its row goes when it is applied, and rests when it fails
 *   waiting    from inbox_message, because it came before its turn: its row goes when it is applied
 *   dead       a dead letter that an operator redrives
 */
import type { Version } from '../../core/event/version.ts'
import type { Delivery } from '../../transport/port/transport.ts'
import { lineOfPlace, type Place } from './partition-order.ts'
import type { DeadReason, RawMessage, ReceivedEvent } from './received-event.ts'
import type { Route } from './routes.ts'
import { WaybillError } from '../../core/errors.ts'

/** An item whose data is not decoded yet. Decoding alone may end the process, so a crash suspect is marked before it. */
export interface UnreadItem {
  readonly event: ReceivedEvent
  readonly message: RawMessage
  /** The aggregate, as one text. */
  readonly key: string
  /** `undefined` for an event without an effect here: a void, or a type that has no handler and no projection. */
  readonly route: Route | undefined
  /** Versions of this aggregate are taken one after the other. */
  readonly sequential: boolean
  readonly origin: ItemOrigin
}

export interface Item extends UnreadItem {
  /** Why it cannot be applied, found while decoding. */
  readonly refusal: Refusal | undefined
  readonly data: unknown
}

export type ItemOrigin =
  | { readonly kind: 'delivery'; readonly delivery: Delivery; readonly place?: Place | undefined }
  | { readonly kind: 'stored'; readonly lane: number; readonly seq: string; readonly state: number }
  | { readonly kind: 'waiting' }
  | { readonly kind: 'dead'; readonly letterId: string }

/** Its place in the log, if offsets are kept in order. */
export function placeOf({ origin }: Pick<UnreadItem, 'origin'>): Place | undefined {
  return origin.kind === 'delivery' ? origin.place : undefined
}

/** What an item is in line with: its aggregate, or its partition if offsets are kept in order. */
export function orderKey({ key, origin }: Pick<Item, 'key' | 'origin'>): string {
  return origin.kind === 'delivery' && origin.place !== undefined ? lineOfPlace(origin.place) : key
}

/** The order of aggregates, and of versions in each. */
export function byVersion(a: Pick<Item, 'key' | 'event'>, b: Pick<Item, 'key' | 'event'>): number {
  return a.key === b.key ? Number(a.event.version - b.event.version) : a.key < b.key ? -1 : 1
}

/** Whether it comes again behind one of its line that is given back. What waits in a table always does. */
export function isOrdered({ message, origin }: Pick<Item, 'message' | 'origin'>): boolean {
  if (message.orderingKey !== undefined || origin.kind === 'waiting') return true
  return origin.kind === 'delivery' && origin.place !== undefined
}

export interface Refusal {
  readonly reason: DeadReason
  readonly error: string
  /** It may pass: an outage, which is not counted, or a failure, which is counted and tried again. */
  readonly passing?: 'outage' | 'failure' | undefined
}

/** What became of the items of a batch whose transaction committed. */
export interface Applied {
  readonly applied: number
  /** Those whose effects committed, stored ones included. */
  readonly effects: readonly Item[]
  /** Seen before, older than what was applied, or given up already. */
  readonly duplicates: number
  /** Those whose id was recorded before with other content: the first one stays. */
  readonly conflicts: readonly Item[]
  /** Those whose version is too far ahead of what was seen of their aggregate. */
  readonly jumps: readonly { readonly item: Item; readonly from: Version }[]
  /** Stored, until their turn comes. */
  readonly waiting: readonly Item[]
  /** Those whose version was taken under another id, stored ones included. */
  readonly forks: readonly Item[]
  /** Stored ones whose turn came with this batch. */
  readonly drained: number
  readonly emitted: number
}

/** An item failed; the batch was rolled back because of it. */
export class ItemFailure extends Error {
  override readonly name: string = 'ItemFailure'
  readonly item: Item

  constructor(item: Item, cause: unknown) {
    super(cause instanceof Error ? cause.message : String(cause), { cause })
    this.item = item
  }
}

/** Another instance has the items of a batch by now, or they are not next in the log: nothing was written or counted. They come again. */
export class LostClaimError extends WaybillError {
  constructor(message: string) {
    super('ABORTED', message)
  }
}

/** The version of an event was taken by another one, and it is to be a dead letter, whatever its attempts. */
export class Forked extends Error {
  override readonly name: string = 'Forked'
}
