/**
 * The answer to a fetch (version 12, or 13 if it was by the topic's id), read from its bytes: records are the bulk of what a consumer gets, so they are read once and
 * share the buffer that they came in.
 */
import { ByteCursor } from './byte-reader.ts'
import type { AbortedTransaction } from './read-batches.ts'

export interface FetchResponse {
  readonly errorCode: number
  readonly partitions: readonly FetchResponsePartition[]
}

export interface FetchResponsePartition {
  readonly partition: number
  readonly errorCode: number
  readonly aborted: readonly AbortedTransaction[]
  readonly batches: Buffer
}

export function parseFetchResponse(bytes: Buffer, isById = false): FetchResponse {
  const cursor = new ByteCursor(bytes)
  cursor.skip(4)
  const errorCode = cursor.int16()
  cursor.skip(4)
  const partitions: FetchResponsePartition[] = []
  for (let topics = cursor.count(); topics > 0; topics -= 1) {
    cursor.skip(isById ? idBytes : cursor.count())
    for (let left = cursor.count(); left > 0; left -= 1) partitions.push(readPartition(cursor))
    cursor.skipTags()
  }
  return { errorCode, partitions }
}

const idBytes = 16

function readPartition(cursor: ByteCursor): FetchResponsePartition {
  const partition = cursor.int32()
  const errorCode = cursor.int16()
  // High watermark, last stable offset and start of the log.
  cursor.skip(24)
  const aborted: AbortedTransaction[] = []
  for (let left = cursor.count(); left > 0; left -= 1) {
    aborted.push({ producerId: cursor.int64(), firstOffset: cursor.int64() })
    cursor.skipTags()
  }
  cursor.skip(4)
  const length = cursor.count()
  cursor.skip(length)
  const batches = cursor.bytes.subarray(cursor.position - length, cursor.position)
  cursor.skipTags()
  return { partition, errorCode, aborted, batches }
}
