/**
 * What an event may be, checked when it is added: the narrowest limits of the brokers we know.
 *
 * An event that only the broker refuses is found out long after its transaction committed, and blocks its aggregate. Here
 * it fails inside the transaction, and the same event fits every transport: moving from one to another surprises nobody.
 *
 * What Postgres refuses all the same is explained by what the caller can do about it.
 */
import { isDate } from 'node:util/types'
import { aggregateIdFault } from '../core/event/aggregate-id.ts'
import { WaybillError, isWaybillError } from '../core/errors.ts'
import type { EncodedEvent } from './tables/outbox.sql.ts'
import { constraintName, isReadOnly, isUniqueViolation, sqlState } from '../postgres/query/sql-state.ts'

/** Pub/Sub takes 100 attributes; the rest is left for ours and for those of tracing and CloudEvents. */
const mostHeaders = 80
const longestNameBytes = 256
const longestValueBytes = 1_024

/** The attributes that the relay adds, each with the most bytes of a value that is not counted by itself. */
const attributeBytes = {
  event_id: 36,
  event_type: 0,
  aggregate_type: 0,
  aggregate_id: 0,
  version: 19,
  schema_version: 10,
  occurred_at: 27,
  content_type: 0,
}
const fixedBytes = Object.entries(attributeBytes).reduce((sum, [name, most]) => sum + name.length + most, 0)
/** Of the key that a stream ordered by lane has: `lane-32767`. */
const laneKeyBytes = 10

/** Throws INVALID_INPUT unless the id can be an attribute and a key at every broker. */
export function assertAggregateId(aggregateId: unknown, eventType: string): asserts aggregateId is string {
  const fault = aggregateIdFault(aggregateId)
  if (fault !== undefined) throw refused(eventType, `the aggregate id ${fault}`)
}

/** The first and the last second that every part can write: of the years 1 and 9999. */
const [earliestMs, latestMs] = [-62_135_596_800_000, 253_402_300_799_000]

/** Throws INVALID_INPUT for what is no date, or one that cannot be written. */
export function assertNotBefore(notBefore: unknown, eventType: string): void {
  if (notBefore === undefined) return
  const ms = isDate(notBefore) ? notBefore.getTime() : NaN
  if (ms >= earliestMs && ms <= latestMs) return
  throw refused(eventType, 'notBefore must be a valid Date, at most 9999-12-31T23:59:59Z')
}

/** Throws INVALID_INPUT for headers that a broker would refuse. */
export function assertHeaders(headers: Readonly<Record<string, string>>, eventType: string): void {
  const entries = Object.entries(headers)
  if (entries.length > mostHeaders) throw refused(eventType, `it has ${entries.length} headers; at most ${mostHeaders} are taken`)
  for (const [name, value] of entries) {
    const shown = JSON.stringify(name.slice(0, 60))
    if (name === '' || Buffer.byteLength(name) > longestNameBytes || name.toLowerCase().startsWith('goog')) {
      throw refused(eventType, `the name of header ${shown} must have 1 to ${longestNameBytes} bytes and not begin with "goog"`)
    }
    if (typeof value !== 'string' || `${name}${value}`.includes('\u0000'))
      throw refused(eventType, `header ${shown} must be text without NUL`)
    if (!name.isWellFormed() || !value.isWellFormed()) throw refused(eventType, `header ${shown} is not well-formed Unicode text`)
    if (Buffer.byteLength(value) > longestValueBytes)
      throw refused(eventType, `header ${shown} has more than ${longestValueBytes} bytes`)
  }
}

/** Throws INVALID_INPUT for a content type that cannot be an attribute at every broker. */
export function assertContentType(contentType: string, eventType: string): void {
  if (Buffer.byteLength(contentType) <= longestValueBytes) return
  throw refused(eventType, `its content type has more than ${longestValueBytes} bytes`)
}

/** Throws INVALID_INPUT for a hash that would not be kept as it is given. */
export function assertContentHash(hash: string | undefined, eventType: string): void {
  if (hash !== undefined && !/^[0-9a-f]{32}$/.test(hash))
    throw refused(eventType, 'the content hash of its source must have 32 hexadecimal digits')
}

/** Throws TOO_LARGE when the event would not fit with its attributes and its key, counted as the transports count them. */
export function assertSize(event: EncodedEvent, maxBytes: number): void {
  const idBytes = Buffer.byteLength(event.aggregateId)
  let bytes = event.payload.byteLength + fixedBytes + idBytes + Math.max(idBytes, laneKeyBytes)
  for (const text of [event.eventType, event.aggregateType, event.contentType]) bytes += Buffer.byteLength(text)
  for (const [name, value] of Object.entries(event.headers)) bytes += Buffer.byteLength(name) + Buffer.byteLength(value)
  if (bytes <= maxBytes) return
  throw new WaybillError(
    'TOO_LARGE',
    `outbox.add ${event.eventType}: the event has ${bytes} bytes with its attributes, and stream ${event.aggregateType} allows ${maxBytes}. Raise maxBytes if the broker allows it, or use a claim check.`,
    { details: { bytes, maxBytes } },
  )
}

function refused(eventType: string, why: string): WaybillError {
  return new WaybillError('INVALID_INPUT', `outbox.add ${eventType}: ${why}.`)
}

/** The state that `add_events` raises for a version out of turn. */
const versionOutOfOrder = 'WB001'
/** The state that `add_event` and `add_events` raise for a date ahead while a connector publishes. */
const dateRefused = 'WB004'
/** The state that they raise for an event whose row a trigger of the user's has dropped. */
const eventDropped = 'WB006'
const undefinedFunction = '42883'
const undefinedSchema = '3F000'

export function explainAddError(error: unknown, events: readonly EncodedEvent[], schema: string): unknown {
  if (isWaybillError(error)) return error
  const state = sqlState(error)
  const what = events.length === 1 ? `outbox.add ${events[0]?.eventType}` : `outbox.addMany of ${events.length} events`
  if (state === versionOutOfOrder) {
    return new WaybillError(
      'VERSION_OUT_OF_ORDER',
      `${what}: ${messageOf(error)} Somebody else changed the aggregate, or a version was left out.`,
      { cause: error },
    )
  }
  if (isReadOnly(error)) {
    return new WaybillError(
      'REFUSED',
      `${what}: this transaction is read only (readOnly: true, set transaction read only, or a server without writes), so nothing was recorded. Add events in one that may write.`,
      { cause: error },
    )
  }
  if (state === eventDropped) {
    const advice = 'Let the trigger return the row as it is; what must not be published is not to be added.'
    return new WaybillError('REFUSED', `${what}: ${messageOf(error)} ${advice}`, { cause: error })
  }
  if (state === dateRefused) return new WaybillError('REFUSED', `${what}: ${messageOf(error)}`, { cause: error })
  if (isUniqueViolation(error) && constraintName(error)?.startsWith('outbox_') === true) {
    return new WaybillError(
      'INVALID_INPUT',
      `${what}: an event with this id or version is in the outbox already. The same fact was recorded before.`,
      { cause: error },
    )
  }
  if (state === undefinedFunction || state === undefinedSchema) {
    return new WaybillError(
      'SCHEMA_MISMATCH',
      `${what}: schema "${schema}" has no outbox. Run "waybill migrate up", or name the schema that has one.`,
      { cause: error },
    )
  }
  return error
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
