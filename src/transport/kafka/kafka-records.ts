/**
 * A message as a record of Kafka, and back: the ordering key is the record's key, attributes are its headers.
 *
 * A tombstone has a null value, so that compaction removes the key; what it says beyond that travels in a header. An empty
 * body that is no tombstone stays an empty value: to compaction it is a state like any other.
 */
import type { IncomingMessage, OutgoingMessage } from '../transport.ts'
import type { FetchedRecord, KafkaRecord } from './kafka-client.ts'

/** Has the body of a message whose value is null. The only header that is not text. */
export const bodyHeader = 'waybill_body'
const nothing = new Uint8Array(0)

export interface RecordOptions {
  readonly isTombstone: boolean
  readonly nowMs: number
}

export function toRecord(message: OutgoingMessage, { isTombstone, nowMs }: RecordOptions): KafkaRecord {
  const { orderingKey, attributes, body } = message
  const headers: (readonly [string, string | Uint8Array])[] = Object.entries(attributes)
  if (isTombstone && body.byteLength > 0) headers.push([bodyHeader, body])
  return {
    key: orderingKey === undefined ? null : Buffer.from(orderingKey),
    value: isTombstone ? null : body,
    headers,
    timestampMs: nowMs,
  }
}

export function fromRecord(record: FetchedRecord, { topic, partition }: { topic: string; partition: number }): IncomingMessage {
  const attributes: Record<string, string> = {}
  let body = record.value ?? nothing
  for (const [name, value] of record.headers) {
    if (name !== bodyHeader) attributes[name] = textOf(value)
    else if (record.value === null) body = typeof value === 'string' ? Buffer.from(value) : value
  }
  return new RecordMessage(record, { topic, partition, attributes, body })
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
    return this.#key === null ? undefined : textOf(this.#key)
  }

  get messageId(): string {
    return messageIdOf(this.#partition, this.#offset)
  }

  get position(): { readonly partition: string; readonly offset: bigint } {
    return { partition: String(this.#partition), offset: this.#offset }
  }
}

/** Where a record stands in its topic. */
export function messageIdOf(partition: number, offset: bigint): string {
  return `${partition}:${offset}`
}

function textOf(bytes: string | Uint8Array): string {
  if (typeof bytes === 'string') return bytes
  return (Buffer.isBuffer(bytes) ? bytes : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)).toString()
}
