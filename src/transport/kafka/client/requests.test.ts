import { compressionsAlgorithms, crc32c } from '@platformatic/kafka'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { answeredParts } from '../../../../test/kafka/answered-parts.ts'
import type { FetchResponsePartition } from './wire/fetch-response.ts'
import type { FetchedPartition } from './kafka-client.ts'
import { AnswerBudget } from './wire/answer-budget.ts'
import { reading } from './requests.ts'
import { encodeBatch } from './wire/write-batch.ts'

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

const codecs = ['gzip', 'snappy', 'lz4', 'zstd'] as const
type Codec = (typeof codecs)[number]

/** Batches of one record each, compressed; the parts of a test allow a million bytes. */
function packed(codec: Codec, values: readonly Buffer[]): Buffer {
  const { bitmask, compressSync } = compressionsAlgorithms[codec]
  const compression = { code: bitmask, compress: (bytes: Buffer) => Buffer.from(compressSync(bytes)) }
  const batches = values.map((value, offset) => {
    const record = { key: null, value, headers: [], timestampMs: 5 }
    const batch = encodeBatch([record], { producer: { id: 7n, epoch: 0 }, sequence: 0, crc32c, compression })
    batch.writeBigInt64BE(BigInt(offset), 0)
    return batch
  })
  return Buffer.concat(batches)
}

test.each(codecs)(
  'a batch of %s that inflates to more than is allowed cannot be read, and the partition beside it is',
  async (codec) => {
    const bomb = packed(codec, [Buffer.alloc(3_000_000)])
    const [fetched, other] = await fetchedOf([bomb, packed(codec, [Buffer.from('hi')])])
    expect([fetched?.nextOffset, fetched?.records]).toEqual([0n, []])
    expect(fetched?.unreadable?.message).toMatch(
      /offset 0 on: a batch inflates to more than 1000000 bytes\. Raise kafka\.maxInflated/,
    )
    expect([other?.nextOffset, other?.unreadable]).toEqual([1n, undefined])
  },
)

test.each(codecs)(
  'batches of %s that are too many for one answer come with the next, and none is told as unreadable',
  async (codec) => {
    // LZ4 does not say how large it is: its blocks are taken for as large as they may be.
    const size = codec === 'lz4' ? 200_000 : 400_000
    const value = Buffer.from(Array.from({ length: size }, (_, i) => (i * 7919) % 251))
    const all = packed(codec, Array(8).fill(value))
    const [first, second] = await fetchedOf([all, all])
    const read = first?.records.length ?? 0
    expect([read > 0 && read < 8, first?.nextOffset, first?.unreadable]).toEqual([true, BigInt(read), undefined])
    expect([second?.nextOffset, second?.records.length, second?.unreadable]).toEqual([0n, 0, undefined])
  },
)

test.each(codecs)('what %s compressed is read as it was', async (codec) => {
  const values = Array.from({ length: 5 }, (_, i) => Buffer.from(`value ${i} ${'x'.repeat(i * 1_000)}`))
  const [fetched] = await fetchedOf([packed(codec, values)])
  expect(fetched?.records.map(({ value }) => Buffer.from(value ?? []).toString())).toEqual(values.map(String))
})

test('snappy as the Java library writes it is read, and refused by the sizes of its blocks', () => {
  const mark = Buffer.from([0x82, 0x53, 0x4e, 0x41, 0x50, 0x50, 0x59, 0, 0, 0, 0, 1, 0, 0, 0, 1])
  const block = (bytes: Buffer): Buffer => {
    const packedBytes = Buffer.from(compressionsAlgorithms.snappy.compressSync(bytes))
    const length = Buffer.alloc(4)
    length.writeUInt32BE(packedBytes.length)
    return Buffer.concat([length, packedBytes])
  }
  const two = Buffer.concat([mark, block(Buffer.from('one')), block(Buffer.alloc(1_000))])
  expect(new AnswerBudget(2_000).inflate(2, two, compressionsAlgorithms).subarray(0, 3).toString()).toBe('one')
  expect(() => new AnswerBudget(1_000).inflate(2, two, compressionsAlgorithms)).toThrow(/more than 1000 bytes/)
})

test('many records without content are no way around the bound', async () => {
  const nothing = { key: null, value: null, headers: [], timestampMs: 5 }
  const compression = { code: 1, compress: (bytes: Buffer) => Buffer.from(compressionsAlgorithms.gzip.compressSync(bytes)) }
  const options = { producer: { id: 7n, epoch: 0 }, sequence: 0, crc32c, compression }
  const [fetched] = await fetchedOf([encodeBatch(Array(20_000).fill(nothing), options)])
  expect(fetched?.unreadable?.message).toContain('a batch has more than 15625 records and headers')
})

test('compressed bytes that are anything else are refused, with whatever code', () => {
  fc.assert(
    fc.property(fc.constantFrom(1, 2, 3, 4, 5), fc.uint8Array({ maxLength: 100 }), fc.boolean(), (code, bytes, isLz4) => {
      const given = isLz4 ? Buffer.concat([Buffer.from([4, 0x22, 0x4d, 0x18]), bytes]) : Buffer.from(bytes)
      expect(inflatedBytes(code, given)).toBeLessThanOrEqual(10_000)
    }),
  )
})

/** How many bytes come of it; none if it is refused. */
function inflatedBytes(code: number, packedBytes: Buffer): number {
  try {
    return new AnswerBudget(10_000).inflate(code, packedBytes, compressionsAlgorithms).length
  } catch (error) {
    if (error instanceof Error) return 0
    throw error
  }
}
