/**
 * From the batches of a fetch to the records a reader may see, and to the offset to go on from.
 *
 * Records below the asked offset come with the batch that they are in, control records are the broker's own, and what an
 * aborted transaction wrote was never said: all are passed over, and the offset goes on behind them. The last batch may be cut
 * off; it comes again with the next fetch. The first never is: a broker leaves it out instead.
 *
 * What is in front of a batch that cannot be read is handed over. The next fetch begins with that batch, and tells. So it is with a
 * batch for which the answer has no room in memory, only that there is nothing to tell.
 */
import { errorMessage, WaybillError } from '../../../../core/errors.ts'
import { AnswerFull, type AnswerBudget } from './answer-budget.ts'
import { ByteCursor, damaged } from './byte-reader.ts'
import { bodyHeader, type FetchedRecord } from './event-records.ts'

export interface FetchedPartition {
  readonly partition: number
  /** The name of Kafka's error. */
  readonly error: string | undefined
  /** The first batch of what came cannot be read: it is to be asked for again, from where it was. */
  readonly unreadable?: WaybillError
  /** Where to go on; more than the last record's offset + 1 where records were compacted away or are not for readers. */
  readonly nextOffset: bigint
  readonly records: readonly FetchedRecord[]
}

export interface AbortedTransaction {
  readonly producerId: bigint
  readonly firstOffset: bigint
}

export interface FetchedBytes {
  /** The batches, as the broker stores them. */
  readonly batches: Buffer
  readonly aborted: readonly AbortedTransaction[]
  /** The offset that was asked for. */
  readonly from: bigint
  /** Undoes the compression with this code. */
  readonly decompress: (code: number, bytes: Buffer) => Buffer
  /** The checksum of a batch: a broker hands out what is on its disk, and does not compare. */
  readonly crc32c: (bytes: Buffer) => number
  /** How much may still be made of the answer. */
  readonly budget: Pick<AnswerBudget, 'beginBatch' | 'take'>
}

const isAppendTime = 1 << 3
const isTransactional = 1 << 4
const isControl = 1 << 5
const compressionCode = 0b111
const abortMarker = 0
const currentFormat = 2
/** Up to where the length of a batch is told, and from where it counts. */
const batchHeadBytes = 12

interface BatchHeader {
  readonly firstOffset: bigint
  readonly lastOffset: bigint
  readonly attributes: number
  readonly firstTimestampMs: number
  readonly maxTimestampMs: number
  readonly producerId: bigint
  readonly count: number
}

/** What is carried from batch to batch. */
interface Reading extends Pick<FetchedBytes, 'from' | 'decompress' | 'crc32c' | 'budget'> {
  readonly records: FetchedRecord[]
  /** Aborted transactions whose first batch is still to come. */
  readonly ahead: AbortedTransaction[]
  /** The producers in whose aborted transactions we are. */
  readonly aborted: Set<bigint>
}

/** Like `readBatches`; what cannot be read is the trouble of this partition alone, and not of those in the same answer. */
export function readPartition(
  bytes: FetchedBytes,
  name: string,
): Pick<FetchedPartition, 'nextOffset' | 'records' | 'unreadable'> {
  try {
    return readBatches(bytes)
  } catch (cause) {
    if (cause instanceof AnswerFull) return { nextOffset: bytes.from, records: [] }
    const text = `Kafka, ${name} cannot be read from offset ${bytes.from} on: ${errorMessage(cause)}`
    return { nextOffset: bytes.from, records: [], unreadable: new WaybillError('CORRUPT', text, { cause }) }
  }
}

/** Throws if nothing can be read from the asked offset on. */
export function readBatches({
  batches,
  aborted: begun,
  from,
  decompress,
  crc32c,
  budget,
}: FetchedBytes): Pick<FetchedPartition, 'nextOffset' | 'records'> {
  const ahead = begun.toSorted((a, b) => (a.firstOffset < b.firstOffset ? -1 : 1))
  const records: FetchedRecord[] = []
  const reading: Reading = { from, decompress, crc32c, budget, records, ahead, aborted: new Set() }
  let nextOffset = from
  for (let start = 0; start + batchHeadBytes <= batches.length;) {
    const end = start + batchHeadBytes + batches.readInt32BE(start + 8)
    if (end > batches.length) break
    const sound = records.length
    try {
      // An end too near for a header, or in front of the start, is found by the cursor.
      const lastOffset = readBatch(new ByteCursor(batches, start, end), reading)
      if (lastOffset >= nextOffset) nextOffset = lastOffset + 1n
    } catch (error) {
      if (nextOffset === from) throw error
      records.length = sound
      break
    }
    start = end
  }
  // Asked again, it would answer the same.
  if (nextOffset === from && batches.length > 0) throw damaged('no whole batch is from there on')
  return { nextOffset, records }
}

/** Returns the last offset that the batch stands for, whether or not there is a record of it. */
function readBatch(cursor: ByteCursor, { from, decompress, crc32c, budget, records, ahead, aborted }: Reading): bigint {
  budget.beginBatch()
  const header = readHeader(cursor, crc32c)
  const { attributes, lastOffset, producerId } = header
  while (ahead[0] !== undefined && ahead[0].firstOffset <= lastOffset)
    aborted.add((ahead.shift() as AbortedTransaction).producerId)
  const code = attributes & compressionCode
  const content = code === 0 ? cursor : new ByteCursor(decompress(code, cursor.bytes.subarray(cursor.position, cursor.end)))
  if ((attributes & isControl) !== 0) {
    if (isAbort(content, header)) aborted.delete(producerId)
  } else if ((attributes & isTransactional) === 0 || !aborted.has(producerId))
    readRecords(content, header, { from, records, budget })
  return lastOffset
}

function readHeader(cursor: ByteCursor, crc32c: FetchedBytes['crc32c']): BatchHeader {
  const firstOffset = cursor.int64()
  cursor.skip(8)
  const format = cursor.int8()
  if (format !== currentFormat)
    throw new WaybillError(
      'CORRUPT',
      `record ${firstOffset}: format ${format} is not read; brokers since 3.0 convert to ${currentFormat}.`,
    )
  const checksum = cursor.int32() >>> 0
  if (crc32c(cursor.bytes.subarray(cursor.position, cursor.end)) !== checksum) throw damaged('a batch does not fit its checksum')
  const attributes = cursor.int16()
  const lastOffset = firstOffset + BigInt(cursor.int32())
  const [firstTimestampMs, maxTimestampMs] = [Number(cursor.int64()), Number(cursor.int64())]
  const producerId = cursor.int64()
  cursor.skip(6)
  return { firstOffset, lastOffset, attributes, firstTimestampMs, maxTimestampMs, producerId, count: cursor.int32() }
}

/** The key of a control record is its version and its type. */
function isAbort(content: ByteCursor, { count }: BatchHeader): boolean {
  if (count === 0) return false
  skipToKey(content)
  const key = content.field()
  return key !== null && key.length >= 4 && key.readInt16BE(2) === abortMarker
}

function readRecords(
  content: ByteCursor,
  header: BatchHeader,
  { from, records, budget }: Pick<Reading, 'from' | 'records' | 'budget'>,
): void {
  const appendedAtMs = (header.attributes & isAppendTime) === 0 ? undefined : header.maxTimestampMs
  let last: FetchedRecord | undefined
  for (let i = 0; i < header.count; i += 1) {
    const record = readRecord(content, header, { last, budget })
    last = record
    if (record.offset < from) continue
    records.push(appendedAtMs === undefined ? record : { ...record, timestampMs: appendedAtMs })
  }
  if (content.left > 0) throw damaged('a batch is longer than its records')
}

/** Most headers say the same as those of the `last` record, and are then the same. */
function readRecord(
  cursor: ByteCursor,
  batch: BatchHeader,
  { last, budget }: Pick<Reading, 'budget'> & { readonly last: FetchedRecord | undefined },
): FetchedRecord {
  const length = cursor.signed()
  const end = cursor.position + length
  cursor.skip(1)
  const timestampMs = batch.firstTimestampMs + cursor.signed()
  const offset = batch.firstOffset + BigInt(cursor.signed())
  const key = cursor.field()
  const value = cursor.field()
  const count = cursor.signed()
  budget.take(1 + Math.max(0, count))
  const headers: Header[] = []
  for (let i = 0; i < count; i += 1) {
    const header = readHeaderField(cursor, last?.headers[headers.length])
    if (header !== undefined) headers.push(header)
  }
  if (cursor.position !== end) throw damaged('a record is not as long as it says')
  return { offset, timestampMs, key, value, headers }
}

type Header = FetchedRecord['headers'][number]

/** A header whose name is no text is nobody's: it is left out. */
function readHeaderField(cursor: ByteCursor, last: Header = noHeader): Header | undefined {
  const name = cursor.text(last[0])
  if (name === bodyHeader) return [name, cursor.field() ?? noBytes]
  const value = cursor.text(typeof last[1] === 'string' ? last[1] : '')
  if (typeof name !== 'string') return undefined
  return name === last[0] && value === last[1] ? last : [name, value]
}

function skipToKey(cursor: ByteCursor): void {
  cursor.signed()
  cursor.skip(1)
  cursor.signed()
  cursor.signed()
}

const noBytes = Buffer.alloc(0)
const noHeader: Header = ['', '']
