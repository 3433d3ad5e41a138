/**
 * Turns a message into an item: finds what this consumer does with it and decodes its data, if anybody wants it.
 *
 * What cannot be read is not an exception here but a refusal that travels with the item: whether the event is a duplicate,
 * or has to wait, is decided first.
 */
import { errorMessage, isWaybillError } from '../core/errors.ts'
import { readData } from '../core/stream.ts'
import type { StoredRow } from './inbox.sql.ts'
import type { Item, ItemOrigin, Refusal } from './item.ts'
import { aggregateKey, isForeign, readEvent, voidEventType, type RawMessage, type ReceivedEvent } from './received-event.ts'
import type { Route, Routes, StreamRoutes } from './routes.ts'

/** Decodes the data and finds the route. The stream is known. */
export async function toItem(
  { event, message, origin }: Pick<Item, 'event' | 'message' | 'origin'>,
  streamRoutes: StreamRoutes,
): Promise<Item> {
  const route = streamRoutes.route(event.type)
  const item = {
    event,
    message,
    key: aggregateKey(event),
    sequential: streamRoutes.sequential,
    origin,
    data: undefined,
    refusal: undefined,
  }
  if (event.type === voidEventType) return { ...item, route: undefined }
  if (route === undefined) return { ...item, route, refusal: unknownType(event) }
  if (message.body.byteLength > streamRoutes.stream.maxBytes) return { ...item, route, refusal: tooLarge(message, streamRoutes) }
  if (route.handler === undefined && (route.projections.length === 0 || route.kind === 'tombstone')) return { ...item, route }
  return { ...item, route, ...(await decode(route, message, event)) }
}

/** A stored message as an item, or `undefined` if this process does not know its stream. */
export async function fromStored(row: StoredRow, kind: 'waiting' | 'dead', routes: Routes): Promise<Item | undefined> {
  return await fromRow(row, kind === 'dead' ? { kind, letterId: row.seq } : { kind, seq: row.seq }, routes)
}

/** The same for a message of stored mode. */
export async function fromReceived(row: StoredRow & { readonly lane: number }, routes: Routes): Promise<Item | undefined> {
  return await fromRow(row, { kind: 'stored', lane: row.lane, seq: row.seq }, routes)
}

async function fromRow(row: StoredRow, origin: ItemOrigin, routes: Routes): Promise<Item | undefined> {
  const message: RawMessage = {
    messageId: row.message_id,
    topic: row.topic,
    orderingKey: row.ordering_key ?? undefined,
    attributes: JSON.parse(row.attributes) as Record<string, string>,
    body: row.body,
    publishedAtMs: Number(row.published_at_ms),
  }
  const event = readEvent(message)
  const stream = isForeign(event) ? undefined : routes.stream(event.aggregateType)
  if (isForeign(event) || stream === undefined) return undefined
  return await toItem({ event, message, origin }, stream)
}

async function decode(
  route: Route,
  message: RawMessage,
  event: ReceivedEvent,
): Promise<{ readonly data: unknown } | { readonly refusal: Refusal }> {
  try {
    return { data: await readData(route.type, message.body, event.schemaVersion) }
  } catch (error) {
    return {
      refusal: { reason: isWaybillError(error, 'UNKNOWN_NAME') ? 'unknown_schema' : 'invalid', error: errorMessage(error) },
    }
  }
}

function unknownType({ type, aggregateType }: ReceivedEvent): Refusal {
  return {
    reason: 'unknown_type',
    error: `Stream ${aggregateType} has no event type ${JSON.stringify(type)} in this process. Deploy readers before writers, then redrive.`,
  }
}

function tooLarge({ body }: RawMessage, { stream }: StreamRoutes): Refusal {
  return {
    reason: 'invalid',
    error: `The payload has ${body.byteLength} bytes; stream ${stream.aggregateType} allows ${stream.maxBytes}.`,
  }
}
