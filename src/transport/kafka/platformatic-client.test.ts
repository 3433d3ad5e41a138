import { expect, test } from 'vitest'
import { answeredParts } from '../../../test/kafka/answered-parts.ts'
import type { FetchResponsePartition } from './fetch-response.ts'
import { reading } from './platformatic-client.ts'
import { encodeBatch } from './record-batch.ts'

/** One record, in a batch of this format. */
function batchOf(format: number): Buffer {
  const record = { key: Buffer.from('k'), value: Buffer.from('v'), headers: [], timestampMs: 5 }
  const batch = encodeBatch([record], { producer: { id: 7n, epoch: 0 }, sequence: 0, crc32c: () => 0, compression: undefined })
  batch[16] = format
  return batch
}

test('a batch that cannot be read is told of its partition, and the others of the answer are read', async () => {
  const partitions = [2, 1, 2].map((format, partition): FetchResponsePartition => ({
    partition,
    errorCode: 0,
    aborted: [],
    batches: batchOf(format),
  }))
  const parts = answeredParts(() => ({ errorCode: 0, partitions }))
  const fetched = await reading(parts, () => Promise.reject(new Error('nobody asks'))).fetch({
    leader: 1,
    topic: 'orders',
    topicId: undefined,
    from: new Map(partitions.map(({ partition }) => [partition, 0n])),
    maxWaitMs: 0,
    maxBytes: 1_000_000,
    maxPartitionBytes: 1_000_000,
  })
  expect(fetched.map(({ nextOffset, records }) => [nextOffset, records.length])).toEqual([
    [1n, 1],
    [0n, 0],
    [1n, 1],
  ])
  expect(fetched.map(({ unreadable }) => unreadable?.message)).toEqual([
    undefined,
    expect.stringMatching(/^Kafka, orders\/1 cannot be read from offset 0 on: record 0: format 1 is not read/),
    undefined,
  ])
})
