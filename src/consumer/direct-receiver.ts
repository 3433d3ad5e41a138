/**
 * Direct mode: what came is worked at once, in batches; a message that is not ours becomes a dead letter.
 *
 * Deliveries that have a place in a log are worked in its order, the foreign ones among them too: an offset never moves over
 * something that was not settled.
 */
import type { Delivery } from '../transport/transport.ts'
import type { ConsumerSettings } from './consumer-options.ts'
import { toUnread } from './decode.ts'
import { byVersion, type UnreadItem } from './item.ts'
import { lineOfPlace, type Place, type PlacedDelivery } from './partition-lines.ts'
import type { Pumped } from './pump.ts'
import { isForeign, type ForeignMessage, type ReceivedEvent } from './received-event.ts'
import type { Routes } from './routes.ts'
import { placeOf } from './take-offsets.ts'
import type { Undertaker } from './undertaker.ts'

/** A delivery in line with its aggregate, or with its partition. */
export interface Entry extends Pumped {
  readonly event: ReceivedEvent | ForeignMessage
  readonly delivery: Delivery
}

export interface DirectDeps {
  readonly settings: ConsumerSettings
  readonly routes: Routes
  readonly undertaker: Undertaker
  /** Settles every item; never rejects. */
  readonly work: (items: readonly UnreadItem[]) => Promise<void>
}

/** The delivery as it stands in line. */
export function toEntry(
  delivery: Delivery,
  event: ReceivedEvent | ForeignMessage,
  { bytes, sinceMs, isSuspect }: Pick<Entry, 'bytes' | 'sinceMs'> & { readonly isSuspect: boolean },
): Entry {
  const place = placeOfDelivery(delivery)
  const key = place !== undefined ? lineOfPlace(place) : isForeign(event) ? '' : event.key
  return { key, bytes, sinceMs, isSuspect, event, delivery }
}

/** Settles a batch; never rejects. */
export async function workDelivered(deps: DirectDeps, batch: readonly Entry[]): Promise<void> {
  let items: UnreadItem[] = []
  for (const { event, delivery } of batch) {
    if (isForeign(event)) {
      if (items.length > 0) await deps.work(items)
      items = []
      await settleForeign(deps, delivery, event)
      continue
    }
    const stream = deps.routes.stream(event.aggregateType)
    if (stream === undefined) continue
    const origin = { kind: 'delivery', delivery, place: placeOfDelivery(delivery) } as const
    items.push(toUnread({ event, message: delivery.message, origin }, stream))
  }
  if (items.length > 0) await deps.work(items)
}

/** A message that carries no event of ours. Never rejects. */
export async function settleForeign(
  { undertaker, settings }: Pick<DirectDeps, 'undertaker' | 'settings'>,
  delivery: Delivery,
  foreign: ForeignMessage,
): Promise<void> {
  const { message } = delivery
  try {
    await undertaker.buryForeign({ message, foreign, place: placeOfDelivery(delivery) })
    await delivery.ack()
  } catch (error) {
    settings.signals.emit('consumer.disturbed', { consumer: settings.name, topic: message.topic, error })
    await delivery.nack(settings.backoff.firstMs)
  }
}

/** One order for everybody, so that batches that meet lock in the same one: of the log, else of aggregates and versions. */
export function inOrder(items: readonly UnreadItem[]): readonly UnreadItem[] {
  return items.toSorted(items.some((item) => placeOf(item) !== undefined) ? byPlace : byVersion)
}

function byPlace(a: UnreadItem, b: UnreadItem): number {
  const placeA = placeOf(a)
  const placeB = placeOf(b)
  if (placeA === undefined || placeB === undefined) return byVersion(a, b)
  return compare(lineOfPlace(placeA), lineOfPlace(placeB)) || compare(placeA.offset, placeB.offset)
}

function compare<Value extends string | bigint>(a: Value, b: Value): -1 | 0 | 1 {
  return a === b ? 0 : a < b ? -1 : 1
}

/** Where it is in the log, if offsets are kept in order. */
export function placeOfDelivery(delivery: Delivery): Place | undefined {
  return (delivery as Partial<PlacedDelivery>).place
}
