/**
 * From the batches of a fetch to the records a reader may see, and to the offset to go on from.
 *
 * Records below the asked offset come with the batch that they are in, control records are the broker's own, and what an
 * aborted transaction wrote was never said: all are passed over, and the offset goes on behind them.
 */
import type { FetchedPartition, FetchedRecord } from './kafka-client.ts'

export interface RawBatch {
  readonly firstOffset: bigint
  readonly lastOffsetDelta: number
  readonly firstTimestamp: bigint
  readonly maxTimestamp: bigint
  readonly attributes: number
  readonly producerId: bigint
  readonly records: readonly {
    readonly offsetDelta: number
    readonly timestampDelta: bigint
    readonly key: Buffer | null
    readonly value: Buffer | null
    readonly headers: readonly (readonly [Buffer | null, Buffer | null])[]
  }[]
}

export interface RawPartition {
  readonly partitionIndex: number
  readonly errorCode: number
  readonly abortedTransactions: readonly { readonly producerId: bigint; readonly firstOffset: bigint }[] | null
  readonly records: readonly RawBatch[] | null
}

const isAppendTime = 1 << 3
const isTransactional = 1 << 4
const isControl = 1 << 5
const abortMarker = 0

export function readPartition(raw: RawPartition, from: bigint): Pick<FetchedPartition, 'nextOffset' | 'records'> {
  const begun = (raw.abortedTransactions ?? []).toSorted((a, b) => (a.firstOffset < b.firstOffset ? -1 : 1))
  const aborted = new Set<bigint>()
  const records: FetchedRecord[] = []
  let nextOffset = from
  for (const batch of raw.records ?? []) {
    const lastOffset = batch.firstOffset + BigInt(batch.lastOffsetDelta)
    while (begun[0] !== undefined && begun[0].firstOffset <= lastOffset)
      aborted.add((begun.shift() as { producerId: bigint }).producerId)
    if ((batch.attributes & isControl) !== 0) {
      if (isAbort(batch)) aborted.delete(batch.producerId)
    } else if ((batch.attributes & isTransactional) === 0 || !aborted.has(batch.producerId)) readRecords(batch, from, records)
    if (lastOffset >= nextOffset) nextOffset = lastOffset + 1n
  }
  return { nextOffset, records }
}

/** The key of a control record is its version and its type. */
function isAbort({ records }: RawBatch): boolean {
  const key = records[0]?.key
  return key != null && key.length >= 4 && key.readInt16BE(2) === abortMarker
}

function readRecords(batch: RawBatch, from: bigint, into: FetchedRecord[]): void {
  for (const { offsetDelta, timestampDelta, key, value, headers } of batch.records) {
    const offset = batch.firstOffset + BigInt(offsetDelta)
    if (offset < from) continue
    const timestamp = (batch.attributes & isAppendTime) === 0 ? batch.firstTimestamp + timestampDelta : batch.maxTimestamp
    into.push({
      offset,
      timestampMs: Number(timestamp),
      key,
      value,
      headers: headers.map(([name, text]) => [name?.toString() ?? '', text ?? Buffer.alloc(0)] as const),
    })
  }
}
