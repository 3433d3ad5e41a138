/**
 * A batch of records as Kafka stores it (format 2), in one buffer of the right size.
 *
 * Written here because a batch is the bulk of what a producer does: the client's own encoder makes several buffers for each
 * record. The layout is Kafka's; a broker checks the checksum, and so every test that publishes checks this file.
 */
import type { KafkaRecord } from './event-records.ts'

export interface KafkaProducerId {
  readonly id: bigint
  readonly epoch: number
}

export interface BatchOptions {
  readonly producer: KafkaProducerId
  /** The sequence number of the first record. */
  readonly sequence: number
  readonly crc32c: (bytes: Buffer) => number
  /** Compresses the records; its code is in the batch's attributes. */
  readonly compression: { readonly code: number; readonly compress: (bytes: Buffer) => Buffer } | undefined
}

/** Where the fields of the header stand. */
const at = {
  length: 8,
  leaderEpoch: 12,
  magic: 16,
  crc: 17,
  attributes: 21,
  lastOffsetDelta: 23,
  firstTimestamp: 27,
  maxTimestamp: 35,
  producerId: 43,
  producerEpoch: 51,
  sequence: 53,
  count: 57,
  records: 61,
} as const

export function encodeBatch(records: readonly KafkaRecord[], options: BatchOptions): Buffer {
  const firstTimestampMs = records[0]?.timestampMs ?? 0
  const sizes = records.map((record, i) => recordSize(record, i, record.timestampMs - firstTimestampMs))
  const total = sizes.reduce((sum, size) => sum + varintSize(size) + size, 0)
  const { compression, crc32c } = options
  let batch = Buffer.allocUnsafe(at.records + total)
  let position = at.records as number
  records.forEach((record, i) => {
    position = writeVarint(batch, sizes[i] as number, position)
    position = writeRecord(batch, record, { position, offsetDelta: i, timestampDelta: record.timestampMs - firstTimestampMs })
  })
  if (compression !== undefined)
    batch = Buffer.concat([batch.subarray(0, at.records), compression.compress(batch.subarray(at.records))])
  writeHeader(batch, records, options)
  batch.writeUInt32BE(crc32c(batch.subarray(at.attributes)), at.crc)
  return batch
}

function writeHeader(batch: Buffer, records: readonly KafkaRecord[], { producer, sequence, compression }: BatchOptions): void {
  const times = records.map(({ timestampMs }) => timestampMs)
  batch.fill(0, 0, at.length)
  batch.writeInt32BE(batch.length - at.leaderEpoch, at.length)
  batch.writeInt32BE(-1, at.leaderEpoch)
  batch.writeInt8(2, at.magic)
  batch.writeInt16BE(compression?.code ?? 0, at.attributes)
  batch.writeInt32BE(records.length - 1, at.lastOffsetDelta)
  batch.writeBigInt64BE(BigInt(times[0] ?? 0), at.firstTimestamp)
  batch.writeBigInt64BE(BigInt(times.reduce((max, each) => Math.max(max, each), 0)), at.maxTimestamp)
  batch.writeBigInt64BE(producer.id, at.producerId)
  batch.writeInt16BE(producer.epoch, at.producerEpoch)
  batch.writeInt32BE(sequence, at.sequence)
  batch.writeInt32BE(records.length, at.count)
}

function recordSize({ key, value, headers }: KafkaRecord, offsetDelta: number, timestampDelta: number): number {
  let size =
    1 + varintSize(timestampDelta) + varintSize(offsetDelta) + fieldSize(key) + fieldSize(value) + varintSize(headers.length)
  for (const [name, text] of headers) size += fieldSize(name) + fieldSize(text)
  return size
}

function fieldSize(field: Uint8Array | string | null): number {
  if (field === null) return 1
  const length = byteLength(field)
  return varintSize(length) + length
}

function byteLength(field: Uint8Array | string): number {
  return typeof field === 'string' ? Buffer.byteLength(field) : field.byteLength
}

interface RecordPlace {
  position: number
  readonly offsetDelta: number
  readonly timestampDelta: number
}

function writeRecord(into: Buffer, { key, value, headers }: KafkaRecord, place: RecordPlace): number {
  let { position } = place
  into[position] = 0
  position = writeVarint(into, place.timestampDelta, position + 1)
  position = writeVarint(into, place.offsetDelta, position)
  position = writeField(into, key, position)
  position = writeField(into, value, position)
  position = writeVarint(into, headers.length, position)
  for (const [name, text] of headers) {
    position = writeField(into, name, position)
    position = writeField(into, text, position)
  }
  return position
}

function writeField(into: Buffer, field: Uint8Array | string | null, position: number): number {
  if (field === null) return writeVarint(into, -1, position)
  const start = writeVarint(into, byteLength(field), position)
  if (typeof field === 'string') return start + into.write(field, start)
  into.set(field, start)
  return start + field.byteLength
}

/** Signed numbers, small ones short: 0, -1, 1, -2 … become 0, 1, 2, 3 …, seven bits a byte. */
function zigzag(value: number): number {
  return value < 0 ? -2 * value - 1 : 2 * value
}

function varintSize(value: number): number {
  let size = 1
  for (let left = zigzag(value); left >= 128; left = Math.floor(left / 128)) size += 1
  return size
}

function writeVarint(into: Buffer, value: number, position: number): number {
  let place = position
  let left = zigzag(value)
  for (; left >= 128; left = Math.floor(left / 128)) {
    into[place] = (left % 128) + 128
    place += 1
  }
  into[place] = left
  return place + 1
}
