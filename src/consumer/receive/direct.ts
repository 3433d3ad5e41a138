/**
 * Direct mode: what came is worked at once, in batches; a message that is not ours becomes a dead letter, and so does an event of an
 * unknown stream by choice.
 *
 * Deliveries that have a place in a log are worked in its order, the foreign ones among them too: an offset never moves over
 * something that was not settled.
 */
import type { Delivery } from '../../transport/port/transport.ts'
import { toUnread } from '../model/decode.ts'
import { byVersion, placeOf, type UnreadItem } from '../model/batch-item.ts'
import { lineOfPlace, type Place, type PlacedDelivery } from '../model/partition-order.ts'
import type { Collected } from './batcher.ts'
import { isForeign, type ForeignMessage, type ReceivedEvent } from '../model/received-event.ts'
import type { Routes } from '../model/routes.ts'
import { deadLetterForeign, deadLetterItem, type SettleDeps } from '../failure/settle.ts'

/** A delivery in line with its aggregate, or with its partition. */
export interface Entry extends Collected {
  readonly event: ReceivedEvent | ForeignMessage
  readonly delivery: Delivery
}

export interface DirectDeps extends SettleDeps {
  readonly routes: Routes
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
    if (isForeign(event) || (delivery as Partial<PlacedDelivery>).fate === 'dead-letter') {
      if (items.length > 0) await deps.work(items)
      items = []
      await settleForeign(deps, delivery, event)
      continue
    }
    const origin = { kind: 'delivery', delivery, place: placeOfDelivery(delivery) } as const
    items.push(toUnread({ event, message: delivery.message, origin }, deps.routes.stream(event.aggregateType)))
  }
  if (items.length > 0) await deps.work(items)
}

/** Makes a dead letter of a message that carries no event of ours, or one of a stream that nobody reads. Never rejects. */
export async function settleForeign(
  deps: Omit<DirectDeps, 'work'>,
  delivery: Delivery,
  event: ReceivedEvent | ForeignMessage,
): Promise<void> {
  const { settings, routes } = deps
  const { message } = delivery
  const place = placeOfDelivery(delivery)
  try {
    if (isForeign(event)) {
      await deadLetterForeign(deps, message, event, place)
      await delivery.ack()
    } else {
      const item = toUnread({ event, message, origin: { kind: 'delivery', delivery, place } }, routes.stream(event.aggregateType))
      await deadLetterItem(deps, item, { reason: 'unknown_stream', error: unreadStream(event), attempts: 1 })
    }
  } catch (error) {
    settings.signals.emit('consumer.disturbed', { consumer: settings.name, topic: message.topic, error })
    await delivery.nack(settings.backoff.firstMs)
  }
}

function unreadStream({ aggregateType }: ReceivedEvent): string {
  return `No running instance reads the stream ${JSON.stringify(aggregateType)}. Add it to \`streams\`, then redrive; or discard.`
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
