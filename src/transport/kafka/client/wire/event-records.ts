/**
 * A message as a record of Kafka, and back: the ordering key is the record's key, attributes are its headers.
 *
 * A tombstone has a null value, so that compaction removes the key; what it says beyond that travels in a header. An empty
 * body that is no tombstone stays an empty value: to compaction it is a state like any other. The void of a compacted stream
 * must not be one: its record has a key of its own, so that the aggregate's last state stays. It has the partition of its
 * ordering key all the same, and whoever reads it here gets that key.
 *
 * Header values that are no UTF-8 are left out: made into text, different ones would become the same.
 */
import { isUtf8 } from 'node:buffer'
import { voidEventType } from '../../../../core/event/event.ts'
import { headerTexts } from '../../../../core/event/attributes.ts'
import type { IncomingMessage, OutgoingMessage } from '../../../port/transport.ts'

export interface KafkaRecord {
  readonly key: Uint8Array | null
  readonly value: Uint8Array | null
  readonly headers: readonly (readonly [name: string, value: string | Uint8Array])[]
  readonly timestampMs: number
}

export interface FetchedRecord {
  readonly offset: bigint
  readonly timestampMs: number
  readonly key: Uint8Array | null
  readonly value: Uint8Array | null
  /** Values as bytes, or as the text that they are. Bytes that are no UTF-8 are given as bytes. */
  readonly headers: readonly (readonly [name: string, value: string | Uint8Array])[]
}

/** Has the body of a message whose value is null. The only header that is not text. */
export const bodyHeader = 'waybill_body'
const nothing = new Uint8Array(0)
/** Begins the key of a void. No ordering key has a NUL. */
const voidMark = Buffer.from(`${voidEventType}\u0000`)

/** What compaction must be told of a message: that its aggregate is gone, or that it says nothing about it. */
export type Compaction = 'tombstone' | 'void' | undefined

export interface RecordOptions {
  readonly compaction: Compaction
  readonly nowMs: number
}

export function toRecord(message: OutgoingMessage, { compaction, nowMs }: RecordOptions): KafkaRecord {
  const { orderingKey, attributes, body } = message
  const isTombstone = compaction === 'tombstone'
  const headers: (readonly [string, string | Uint8Array])[] = Object.entries(attributes)
  if (isTombstone && body.byteLength > 0) headers.push([bodyHeader, body])
  return {
    key: orderingKey === undefined ? null : keyBytes(orderingKey, compaction),
    value: isTombstone ? null : body,
    headers,
    timestampMs: nowMs,
  }
}

export function fromRecord(record: FetchedRecord, { topic, partition }: { topic: string; partition: number }): IncomingMessage {
  const attributes: Record<string, string> = {}
  let body = record.value ?? nothing
  for (const [name, value] of record.headers) {
    if (name !== bodyHeader) {
      if (typeof value === 'string' || isUtf8(value)) attributes[name] = textOf(value)
    } else if (record.value === null) body = typeof value === 'string' ? Buffer.from(value) : value
  }
  return new RecordMessage(record, { topic, partition, attributes: spreadHeaders(attributes), body })
}

/** The same message with bytes of its own: one from a record shares the answer that it came in, and keeps all of it. */
export function detached(message: IncomingMessage): IncomingMessage {
  if (!(message instanceof RecordMessage)) return message
  const { messageId, topic, orderingKey, attributes, publishedAtMs, deliveryAttempt, position } = message
  const body = Buffer.from(new Uint8Array(message.body).buffer)
  return { messageId, topic, orderingKey, attributes, body, publishedAtMs, deliveryAttempt, position }
}

/** A connector cannot spread a JSON column over several headers: the event's own come as one, and go beneath those that we promise. */
function spreadHeaders(attributes: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  if (attributes['headers'] === undefined) return attributes
  const { headers, ...promised } = attributes
  const own = headerTexts(headers)
  return own === undefined ? attributes : { ...own, ...promised }
}

/** What most messages are never asked for is made when it is. */
class RecordMessage implements IncomingMessage {
  readonly topic: string
  readonly attributes: Readonly<Record<string, string>>
  readonly body: Uint8Array
  readonly publishedAtMs: number
  readonly deliveryAttempt: undefined
  readonly #key: Uint8Array | null
  readonly #partition: number
  readonly #offset: bigint

  constructor(
    { key, offset, timestampMs }: FetchedRecord,
    {
      topic,
      partition,
      attributes,
      body,
    }: Pick<IncomingMessage, 'topic' | 'attributes' | 'body'> & { readonly partition: number },
  ) {
    this.topic = topic
    this.attributes = attributes
    this.body = body
    this.publishedAtMs = timestampMs
    this.#key = key
    this.#partition = partition
    this.#offset = offset
  }

  get orderingKey(): string | undefined {
    return this.#key === null ? undefined : textOf(orderingBytes(this.#key))
  }

  get messageId(): string {
    return messageIdOf(this.#partition, this.#offset)
  }

  get position(): { readonly partition: string; readonly offset: bigint } {
    return { partition: String(this.#partition), offset: this.#offset }
  }
}

/** The bytes of the ordering key, by which a record's partition is chosen: all of its key, unless it is a void's. */
export function orderingBytes(key: Uint8Array): Uint8Array {
  const isVoid = key[voidMark.length - 1] === 0 && voidMark.equals(key.subarray(0, voidMark.length))
  return isVoid ? key.subarray(voidMark.length) : key
}

function keyBytes(orderingKey: string, compaction: Compaction): Uint8Array {
  const bytes = Buffer.from(orderingKey)
  return compaction === 'void' ? Buffer.concat([voidMark, bytes]) : bytes
}

/** Where a record stands in its topic. */
export function messageIdOf(partition: number, offset: bigint): string {
  return `${partition}:${offset}`
}

function textOf(bytes: string | Uint8Array): string {
  if (typeof bytes === 'string') return bytes
  return (Buffer.isBuffer(bytes) ? bytes : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)).toString()
}
