import { crc32c } from '@platformatic/kafka'
import { expect, test } from 'vitest'
import { answeredParts } from '../../../test/kafka/answered-parts.ts'
import type { FetchResponsePartition } from './fetch-response.ts'
import type { FetchedPartition } from './kafka-client.ts'
import { reading } from './platformatic-client.ts'
import { encodeBatch } from './record-batch.ts'

/** One record, in a batch of this format. */
function batchOf(format: number): Buffer {
  const record = { key: Buffer.from('k'), value: Buffer.from('v'), headers: [], timestampMs: 5 }
  const batch = encodeBatch([record], { producer: { id: 7n, epoch: 0 }, sequence: 0, crc32c, compression: undefined })
  batch[16] = format
  return batch
}

/** What is fetched when the partitions from 0 on are answered with these batches. */
function fetchedOf(answered: readonly Buffer[]): Promise<readonly FetchedPartition[]> {
  const partitions = answered.map((batches, partition): FetchResponsePartition => ({
    partition,
    errorCode: 0,
    aborted: [],
    batches,
  }))
  const parts = answeredParts(() => ({ errorCode: 0, partitions }))
  return reading(parts, () => Promise.reject(new Error('nobody asks'))).fetch({
    leader: 1,
    topic: 'orders',
    topicId: undefined,
    from: new Map(partitions.map(({ partition }) => [partition, 0n])),
    maxWaitMs: 0,
    maxBytes: 1_000_000,
    maxPartitionBytes: 1_000_000,
  })
}

test('a batch that cannot be read is told of its partition, and the others of the answer are read', async () => {
  const fetched = await fetchedOf([2, 1, 2].map(batchOf))
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

test('a record that is not what was written is not handed out, though it can be read', async () => {
  const batch = batchOf(2)
  batch[batch.lastIndexOf('v')] = 'w'.charCodeAt(0)
  const [fetched] = await fetchedOf([batch])
  expect([fetched?.nextOffset, fetched?.records]).toEqual([0n, []])
  expect(fetched?.unreadable?.message).toContain(
    'from offset 0 on: what Kafka sent is damaged: a batch does not fit its checksum',
  )
})
