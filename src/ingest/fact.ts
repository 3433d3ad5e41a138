/**
 * A fact: an input that was validated, with the event id that follows from its business key.
 *
 * The id is a function of the event type and the key alone, so whoever sends the fact again, through any instance and after any
 * crash, sends the same event. Its aggregate is the business key itself, at version 1: a reader removes repeats by the id, and a
 * versioned upsert removes them by the version.
 */
import { businessKeyParts, businessKeyText, type BusinessKey, businessKeyId, type KeyPart } from '../core/event/id.ts'
import { contentHash, contentHashAttribute } from '../core/event/content-hash.ts'
import { WaybillError } from '../core/errors.ts'
import type { EventKind } from '../core/event/event.ts'
import { contextOf, type EventType } from '../core/event/stream.ts'
import type { OutgoingMessage } from '../transport/port/transport.ts'

export type AnyEventType = EventType<EventKind, never, unknown>

/** What names a fact. */
export interface FactName {
  readonly eventId: string
  /** The business key as one text: the aggregate's id. */
  readonly aggregateId: string
  /** The parts of the key, the scope first if there is one, as texts. */
  readonly key: readonly string[]
}

export interface Fact extends FactName {
  readonly data: unknown
  readonly headers: Readonly<Record<string, string>>
  readonly message: OutgoingMessage
  /** What makes it this fact and no other one under its key. */
  readonly contentHash: string
  /** What it takes of the bounds and of the broker's limit. */
  readonly bytes: number
}

export interface FactMaker {
  readonly event: AnyEventType
  readonly key: (data: never) => BusinessKey
  readonly headers: () => Readonly<Record<string, string>>
  readonly maxBytes: number
  readonly nowMs: () => number
}

/** The id of the fact that a business key names: the same as the one that an ingest of that event answers with. */
export function factId(event: AnyEventType, key: BusinessKey): string {
  return businessKeyId(`${event.stream.aggregateType}.${event.name}`, key)
}

/** The name of a fact. `scope` keeps the keys of different senders apart. */
export function nameFact(event: AnyEventType, key: BusinessKey, scope?: KeyPart): FactName {
  const parts = Array.isArray(key) ? (key as readonly KeyPart[]) : [key as KeyPart]
  const whole = scope === undefined ? parts : [scope, ...parts]
  const eventId = factId(event, whole)
  const aggregateId = businessKeyText(whole)
  return { eventId, aggregateId, key: businessKeyParts(aggregateId) }
}

/** Validates, names and encodes; throws INVALID_INPUT or TOO_LARGE. */
export async function makeFact(maker: FactMaker, input: unknown, scope?: KeyPart): Promise<Fact> {
  const { event, maxBytes } = maker
  const data = await event.codec.validate(input)
  const name = nameFact(event, maker.key(data as never), scope)
  const body = await event.codec.encode(data as never, contextOf(event, name.aggregateId))
  const headers = maker.headers()
  const hash = contentHash(body, contentTypeOf(event, body))
  const message = toMessage(maker, name, { body, headers: { ...headers, [contentHashAttribute]: hash } })
  const bytes = messageBytes(message)
  if (bytes > maxBytes) {
    throw new WaybillError(
      'TOO_LARGE',
      `${event.name}: the fact has ${bytes} bytes with its attributes; ${maxBytes} are allowed.`,
      {
        details: { bytes, maxBytes },
      },
    )
  }
  return { ...name, data, headers, message, contentHash: hash, bytes }
}

function toMessage(
  { event, nowMs }: FactMaker,
  { eventId, aggregateId }: FactName,
  { body, headers }: { readonly body: Uint8Array; readonly headers: Readonly<Record<string, string>> },
): OutgoingMessage {
  const { stream } = event
  return {
    topic: stream.topic,
    orderingKey: orderingKey(event, { eventId, aggregateId }),
    attributes: {
      ...headers,
      event_id: eventId,
      event_type: event.name,
      aggregate_type: stream.aggregateType,
      aggregate_id: aggregateId,
      version: '1',
      schema_version: String(event.schemaVersion),
      occurred_at: new Date(nowMs()).toISOString(),
      content_type: contentTypeOf(event, body),
    },
    body,
  }
}

function contentTypeOf({ codec }: AnyEventType, body: Uint8Array): string {
  return codec.contentTypeOf?.(body) ?? codec.contentType
}

/** As the stream asks for it, so that a repeat meets the first at the same place of the broker. */
function orderingKey({ stream }: AnyEventType, { eventId, aggregateId }: Omit<FactName, 'key'>): string | undefined {
  if (stream.ordering === 'version') return undefined
  return stream.ordering === 'aggregate' ? aggregateId : `lane-${Number.parseInt(eventId.slice(0, 2), 16) % 64}`
}

function messageBytes({ orderingKey: key = '', attributes, body }: OutgoingMessage): number {
  let bytes = body.byteLength + Buffer.byteLength(key)
  for (const [name, value] of Object.entries(attributes)) bytes += Buffer.byteLength(name) + Buffer.byteLength(value)
  return bytes
}
