/**
 * Reads what every message of ours says about its event, and refuses messages that do not say it.
 *
 * Only attributes are read here, so a message can be put into its aggregate's line before anybody decodes it. Nothing that
 * came over the wire is used as a property name.
 */
import { createHash } from 'node:crypto'
import { contentHashAttribute } from '../../core/event/content-hash.ts'
import { errorMessage } from '../../core/errors.ts'
import { businessKeyId, parseId } from '../../core/event/id.ts'
import { parseMoment } from '../../core/timestamps.ts'
import { parseVersion, type Version } from '../../core/event/version.ts'
import { storableMs } from '../../postgres/query/storable.ts'
import type { IncomingMessage } from '../../transport/port/transport.ts'

/** Why a message cannot be applied, in words that dead letters are grouped by. */
export type DeadReason =
  | 'failed'
  | 'crashed'
  | 'unknown_stream'
  | 'unknown_type'
  | 'unknown_schema'
  | 'invalid'
  | 'not_ours'
  | 'version_jump'
  | 'forked'
  | 'broker'
  | 'discarded'

/** What is known of an event before its payload is decoded. */
export interface ReceivedEvent {
  /** The aggregate, as one text. */
  readonly key: string
  readonly id: string
  readonly type: string
  readonly aggregateType: string
  readonly aggregateId: string
  readonly version: Version
  readonly schemaVersion: number
  readonly occurredAtMs: number
  /** Of a fact: the hash of its content, by which another one under its id is told apart. */
  readonly contentHash?: string | undefined
}

/** The message as it must be kept, should it have to wait or be given up. */
export type RawMessage = Omit<IncomingMessage, 'deliveryAttempt'>

/** A stored message as it was received. */
export interface StoredRow {
  readonly seq: string
  readonly topic: string
  readonly ordering_key: string | null
  readonly message_id: string
  readonly attributes: string
  readonly body: Uint8Array
  readonly published_at_ms: string
}

/** A message that carries no event of ours. */
export interface ForeignMessage {
  readonly id: string
  readonly type: string
  readonly problem: string
}

/**
 * In bytes, as the indexes of positions and dead letters count: name of the consumer, type and id must fit into 2,700 together,
 * however badly they compress. The outbox takes no longer ids either.
 */
const longestName = 512
const longestId = 1_024

/** The event of a message, or what is wrong with it. */
export function readEvent(message: RawMessage): ReceivedEvent | ForeignMessage {
  const { attributes } = message
  try {
    const aggregateType = text(attributes, 'aggregate_type', longestName)
    const aggregateId = text(attributes, 'aggregate_id', longestId)
    const occurredAtMs = parseMoment(attributes['occurred_at'] ?? '')
    return {
      key: aggregateKey({ aggregateType, aggregateId }),
      id: parseId(attributes['event_id'], 'event_id'),
      type: text(attributes, 'event_type', longestName),
      aggregateType,
      aggregateId,
      version: parseVersion(attributes['version'], 'version'),
      schemaVersion: Number(parseVersion(attributes['schema_version'], 'schema_version')),
      occurredAtMs: Number.isNaN(occurredAtMs) ? storableMs(message.publishedAtMs) : occurredAtMs,
      contentHash: contentHashOf(attributes),
    }
  } catch (error) {
    return {
      id: foreignId(message),
      type: String(attributes['event_type'] ?? '').slice(0, longestName),
      problem: errorMessage(error),
    }
  }
}

export function isForeign(event: ReceivedEvent | ForeignMessage): event is ForeignMessage {
  return 'problem' in event
}

/** One text for an aggregate, for maps; ids cannot contain the separator, because Postgres takes no NUL. */
export function aggregateKey({ aggregateType, aggregateId }: Pick<ReceivedEvent, 'aggregateType' | 'aggregateId'>): string {
  return `${aggregateType}\u0000${aggregateId}`
}

function contentHashOf(attributes: IncomingMessage['attributes']): string | undefined {
  const hash: unknown = attributes[contentHashAttribute]
  return typeof hash === 'string' && /^[0-9a-f]{32}$/.test(hash) ? hash : undefined
}

function text(attributes: IncomingMessage['attributes'], name: string, longest: number): string {
  const value: unknown = attributes[name]
  if (typeof value !== 'string' || value === '') throw new Error(`${name}: missing.`)
  if (value.length * 3 > longest && Buffer.byteLength(value) > longest) throw new Error(`${name}: longer than ${longest} bytes.`)
  // Half a surrogate pair has no bytes of its own: the database would keep another text than we know it by.
  if (!value.isWellFormed()) throw new Error(`${name}: not well-formed Unicode text.`)
  if (value.includes('\u0000')) throw new Error(`${name}: contains a NUL.`)
  return value
}

/** The same message always gets the same id, so that its redelivery finds the dead letter that is there already. */
function foreignId({ topic, messageId, body }: RawMessage): string {
  return businessKeyId('waybill.foreign', [topic, messageId || 'none', createHash('sha256').update(body).digest('hex')])
}
