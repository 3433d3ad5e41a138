/**
 * Turns a message into an item: finds what this consumer does with it, and then decodes its data, if anybody wants it.
 *
 * What cannot be read is not an exception here but a refusal that travels with the item: whether the event is a duplicate,
 * or has to wait, is decided first. Nor is an outage of what the codec reads from: a refusal says whether it may pass, and what
 * is tried again is decoded again.
 *
 * A batch that is rolled back runs again with the same items. Its handlers and projections may have changed the data that they got, so
 * data that was handed out is decoded again for the next run.
 */
import { errorMessage, isWaybillError, WaybillError } from '../../core/errors.ts'
import { voidEventType } from '../../core/event/event.ts'
import { contextOf, readData } from '../../core/event/stream.ts'
import { ItemFailure, type Item, type ItemOrigin, type Refusal, type UnreadItem } from './batch-item.ts'
import {
  isForeign,
  readEvent,
  type ForeignMessage,
  type RawMessage,
  type ReceivedEvent,
  type StoredRow,
} from './received-event.ts'
import { writesRow, type Route, type Routes, type StreamRoutes } from './routes.ts'

/** Finds the route. Without its stream it has none. */
export function toUnread(
  { event, message, origin }: Pick<UnreadItem, 'event' | 'message' | 'origin'>,
  stream: StreamRoutes | undefined,
): UnreadItem {
  const route = event.type === voidEventType ? undefined : stream?.route(event.type)
  return { event, message, key: event.key, route, sequential: stream?.sequential ?? false, origin }
}

/** Decodes the data. A promise only if the codec or the schema takes its time. */
export function readItem(unread: UnreadItem, routes: Routes): Item | Promise<Item> {
  const { event, message, key, route, sequential, origin } = unread
  const item = (data: unknown, refusal?: Refusal): Item => ({ event, message, key, route, sequential, origin, refusal, data })
  if (event.type === voidEventType) return item(undefined)
  if (route === undefined) return item(undefined, unknownType(event))
  const stream = routes.stream(event.aggregateType)?.stream
  if (stream !== undefined && message.body.byteLength > stream.maxBytes) return item(undefined, tooLarge(message, stream))
  if (route.handler === undefined && (!writesRow(route) || route.kind === 'tombstone')) return item(undefined)
  const refused = (error: unknown): Item => item(undefined, unreadable(error))
  try {
    const data = readNow(route, message, event)
    return isPromise(data) ? data.then((later) => item(later), refused) : item(data)
  } catch (error) {
    return refused(error)
  }
}

/** How many bytes its data has once it is decoded: that of a claim check is fetched for it. */
export function bytesOf({ body }: Pick<RawMessage, 'body'>, event: ReceivedEvent | ForeignMessage, routes: Routes): number {
  const route = isForeign(event) ? undefined : routes.stream(event.aggregateType)?.route(event.type)
  return route?.type.codec.sizeOf?.(body) ?? body.byteLength
}

/**
 * As many of these, from the first, as may be decoded in one go: their data is in memory together. They were read within
 * `batchBytes` as they are stored, so only those that refer to their data can be too many.
 */
export function limitDecodedBytes<Row extends StoredRow>(
  found: readonly Row[],
  batchBytes: number,
  routes: Routes,
): readonly Row[] {
  if (!routes.hasReferences) return found
  let bytes = 0
  const over = found.findIndex((row) => {
    const message = toMessage(row)
    const isOver = bytes >= batchBytes
    bytes += bytesOf(message, readEvent(message), routes)
    return isOver
  })
  return over === -1 ? found : found.slice(0, over)
}

/** Decodes the data of all of them, without a turn of the event loop if none takes its time. */
export function readItems(unread: readonly UnreadItem[], routes: Routes): readonly Item[] | Promise<readonly Item[]> {
  return all(unread.map((each) => readItem(each, routes)))
}

function all<Each>(items: readonly (Each | Promise<Each>)[]): readonly Each[] | Promise<readonly Each[]> {
  return items.some(isPromise) ? Promise.all(items) : (items as readonly Each[])
}

/** A stored message as an item, or `undefined` if it is no event of ours. */
export function fromStored(row: StoredRow, kind: 'waiting' | 'dead', routes: Routes): UnreadItem | undefined {
  return fromRow(row, kind === 'dead' ? { kind, letterId: row.seq } : { kind }, routes)
}

/** The same for a message of stored mode. */
export function fromReceived(
  row: StoredRow & { readonly lane: number; readonly state: number },
  routes: Routes,
): UnreadItem | undefined {
  return fromRow(row, { kind: 'stored', lane: row.lane, seq: row.seq, state: row.state }, routes)
}

function fromRow(row: StoredRow, origin: ItemOrigin, routes: Routes): UnreadItem | undefined {
  const message = toMessage(row)
  const event = readEvent(message)
  return isForeign(event) ? undefined : toUnread({ event, message, origin }, routes.stream(event.aggregateType))
}

function toMessage(row: StoredRow): RawMessage {
  return {
    messageId: row.message_id,
    topic: row.topic,
    orderingKey: row.ordering_key ?? undefined,
    attributes: JSON.parse(row.attributes) as Record<string, string>,
    body: row.body,
    publishedAtMs: Number(row.published_at_ms),
  }
}

/** Nearly every payload has the current shape and a codec that answers at once: promises would cost more than the reading. */
function readNow({ type }: Route, { body }: RawMessage, { schemaVersion, aggregateId }: ReceivedEvent): unknown {
  if (schemaVersion !== type.schemaVersion) return readData(type, body, schemaVersion, aggregateId)
  const decoded = type.codec.decode(body, schemaVersion, contextOf(type, aggregateId))
  return isPromise(decoded) ? decoded.then((data) => type.codec.validate(data)) : type.codec.validate(decoded)
}

/** What may pass says nothing about the event: a store or a registry is out of reach, or has not got the bytes. */
function unreadable(error: unknown): Refusal {
  if (isWaybillError(error) && error.retryable)
    return {
      reason: 'failed',
      error: errorMessage(error),
      passing: error.code === 'UNAVAILABLE' ? 'outage' : 'failure',
    }
  return { reason: isWaybillError(error, 'UNKNOWN_NAME') ? 'unknown_schema' : 'invalid', error: errorMessage(error) }
}

function isPromise(value: unknown): value is Promise<unknown> {
  return typeof (value as { readonly then?: unknown } | null | undefined)?.then === 'function'
}

function unknownType({ type, aggregateType }: ReceivedEvent): Refusal {
  return {
    reason: 'unknown_type',
    error: `Stream ${aggregateType} has no event type ${JSON.stringify(type)} in this process. Deploy readers before writers, then redrive.`,
  }
}

function tooLarge({ body }: RawMessage, stream: StreamRoutes['stream']): Refusal {
  return {
    reason: 'invalid',
    error: `The payload has ${body.byteLength} bytes; stream ${stream.aggregateType} allows ${stream.maxBytes}.`,
  }
}

export type DataOf = (item: Item) => unknown

const handedOut = new WeakSet<Item>()

/** The data of these items for one run, which has it to itself. Throws for what cannot be read any more, or not now. */
export async function freshData(items: readonly Item[], routes: Routes): Promise<DataOf> {
  const again = new Map<Item, unknown>()
  for (const item of items) if (handedOut.has(item)) again.set(item, await decodeAgain(item, routes))
  return (item) => {
    handedOut.add(item)
    return again.has(item) ? again.get(item) : item.data
  }
}

async function decodeAgain(item: Item, routes: Routes): Promise<unknown> {
  const { data, refusal } = await readItem(item, routes)
  if (refusal?.passing === 'outage') throw new WaybillError('UNAVAILABLE', refusal.error)
  if (refusal !== undefined) throw new ItemFailure(item, new Error(refusal.error))
  return data
}
