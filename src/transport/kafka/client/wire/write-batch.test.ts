import { runInNewContext } from 'node:vm'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { readBatches, readPartition } from './read-batches.ts'
import type { KafkaRecord } from '../kafka-client.ts'
import { encodeBatch } from './write-batch.ts'

const producer = { id: 7n, epoch: 1 }
const plain = { producer, sequence: 0, crc32c: () => 0, compression: undefined }
const noCompression = (): never => {
  throw new Error('Nothing is compressed here.')
}

const reader = {
  aborted: [],
  from: 0n,
  decompress: noCompression,
  crc32c: plain.crc32c,
  budget: { beginBatch: () => {}, take: () => {} },
}

/** A batch as the broker keeps it: at its place in the log. */
function stored(records: readonly KafkaRecord[], { firstOffset = 0n, attributes = 0, producerId = producer.id } = {}): Buffer {
  const batch = encodeBatch(records, { ...plain, producer: { id: producerId, epoch: 0 } })
  batch.writeBigInt64BE(firstOffset, 0)
  batch.writeInt16BE(attributes, 21)
  return batch
}

const record = (text: string, timestampMs = 5): KafkaRecord => ({
  key: Buffer.from('k'),
  value: Buffer.from(text),
  headers: [],
  timestampMs,
})
const texts = (batches: Buffer, options: Partial<Parameters<typeof readBatches>[0]> = {}): readonly string[] =>
  readBatches({ batches, ...reader, ...options }).records.map(({ value }) => Buffer.from(value ?? []).toString())

const anyBytes = fc.uint8Array({ maxLength: 300 })
/** Often the same as elsewhere, because a reader takes a header over from the record before. */
const anyText = fc.oneof(fc.constantFrom('', 'event_id', 'event_if', '\u00e9'), fc.string({ unit: 'grapheme', maxLength: 200 }))
const anyRecord = fc.record({
  key: fc.option(anyBytes),
  value: fc.option(anyBytes),
  headers: fc.array(fc.tuple(anyText, anyText), { maxLength: 10 }),
  timestampMs: fc.integer({ min: 0, max: 4_000_000_000_000 }),
})

test('what is written into a batch is read from it, whatever it is', () => {
  fc.assert(
    fc.property(fc.array(anyRecord, { minLength: 1, maxLength: 200 }), (records) => {
      const read = readBatches({ ...reader, batches: stored(records, { firstOffset: 1_000n }) })
      expect(read.nextOffset).toBe(1_000n + BigInt(records.length))
      const asGiven = read.records.map(({ key, value, headers, timestampMs }) => ({
        key: key && Uint8Array.from(key),
        value: value && Uint8Array.from(value),
        headers: headers.map(([name, text]) => [name, Buffer.from(text).toString()]),
        timestampMs,
      }))
      expect(asGiven).toEqual(records)
    }),
  )
})

test('compressed records are read, and their batch says how they are compressed', () => {
  const flip = (bytes: Buffer): Buffer => Buffer.from(bytes.map((byte) => byte ^ 255))
  const batches = encodeBatch([record('one'), record('two')], { ...plain, compression: { code: 3, compress: flip } })
  expect(texts(batches, { decompress: (code, bytes) => (code === 3 ? flip(bytes) : bytes) })).toEqual(['one', 'two'])
})

test('records before the asked offset are passed over, and a batch that is cut off is left for the next fetch', () => {
  const first = stored([record('0'), record('1'), record('2')])
  const second = stored([record('3')], { firstOffset: 3n })
  const cut = Buffer.concat([first, second.subarray(0, second.length - 1)])
  expect(texts(cut, { from: 1n })).toEqual(['1', '2'])
  expect(readBatches({ ...reader, batches: cut, from: 1n }).nextOffset).toBe(3n)
  expect(texts(Buffer.concat([first, second]), { from: 2n })).toEqual(['2', '3'])
})

const transactional = 1 << 4
const control = (1 << 4) | (1 << 5)
const marker = (type: number): KafkaRecord => ({ key: Buffer.from([0, 0, 0, type]), value: null, headers: [], timestampMs: 0 })

test('what an aborted transaction wrote is not read, what the same producer wrote before and after is, and the offset goes on', () => {
  const [abort, commit] = [0, 1]
  const batches = Buffer.concat([
    stored([record('kept')], { firstOffset: 0n, attributes: transactional, producerId: 9n }),
    stored([marker(commit)], { firstOffset: 1n, attributes: control, producerId: 9n }),
    stored([record('aborted')], { firstOffset: 2n, attributes: transactional, producerId: 9n }),
    stored([record('other')], { firstOffset: 3n, attributes: transactional, producerId: 8n }),
    stored([marker(abort)], { firstOffset: 4n, attributes: control, producerId: 9n }),
    stored([record('again')], { firstOffset: 5n, attributes: transactional, producerId: 9n }),
    stored([record('aborted twice')], { firstOffset: 6n, attributes: transactional, producerId: 7n }),
    stored([marker(abort)], { firstOffset: 7n, attributes: control, producerId: 7n }),
  ])
  const aborted = [
    { producerId: 7n, firstOffset: 6n },
    { producerId: 9n, firstOffset: 2n },
  ]
  expect(texts(batches, { aborted })).toEqual(['kept', 'other', 'again'])
  expect(readBatches({ ...reader, batches, aborted }).nextOffset).toBe(8n)
})

/** Runs it, and ends it where it would go on for ever: no time-out of a test gets a turn before it. */
function ended<Result>(run: () => Result): Result {
  return runInNewContext('run()', { run }, { timeout: 60_000 }) as Result
}

/** What comes of reading it: the number of its records, or what is wrong with it. */
function outcome(batches: Buffer, options: Partial<Parameters<typeof readBatches>[0]> = {}): number | string {
  try {
    return texts(batches, options).length
  } catch (error) {
    return (error as Error).message
  }
}

const damaged = expect.stringContaining('what Kafka sent is damaged')
const anyByte = Array.from({ length: 256 }, (_, byte) => byte)
const withHeaders: KafkaRecord = { ...record('one'), headers: [['event_id', '1']] }

test('a batch that ends too early, wherever it does, is damaged', () => {
  const whole = stored([withHeaders, record('two')])
  const places = Array.from(whole.keys())
  const told = places.map((length) => {
    const cut = Buffer.from(whole.subarray(0, length))
    if (length >= 12) cut.writeInt32BE(length - 12, 8)
    return ended(() => outcome(cut))
  })
  expect(told).toEqual(places.map((length) => (length === 0 ? 0 : damaged)))
  const code = 3
  const packed = stored([withHeaders, record('two')], { attributes: code })
  const cutOff = places
    .slice(61)
    .map((length) => ended(() => outcome(packed, { decompress: (_, bytes) => bytes.subarray(0, length - 61) })))
  expect(cutOff).toEqual(places.slice(61).map(() => damaged))
})

test('a batch whose length is not the one it has is damaged, and is not read over and over', () => {
  const whole = stored([record('one')])
  // Nothing of it is wanted, so that reading it over and over fills no memory.
  const from = 1_000n
  const lengths = Array.from({ length: 2 * whole.length }, (_, i) => i - whole.length).filter(
    (each) => each !== whole.length - 12,
  )
  const told = lengths.map((length) => {
    whole.writeInt32BE(length, 8)
    return ended(() => outcome(whole, { from }))
  })
  expect(told).toEqual(lengths.map(() => damaged))
})

test('whichever byte of a batch is another, reading it comes to an end', () => {
  const whole = stored([withHeaders, record('two')])
  for (const place of whole.keys()) {
    const other = Buffer.from(whole)
    const read = (byte: number): number | string => {
      other[place] = byte
      return outcome(other, { decompress: (_, bytes) => bytes })
    }
    expect(ended(() => anyByte.map(read))[whole[place] as number]).toBe(2)
  }
})

test('an answer whose batches lead nowhere is damaged, and not asked for again and again in silence', () => {
  const whole = stored([record('one')])
  expect(outcome(whole.subarray(0, whole.length - 1))).toEqual(damaged)
  expect(outcome(whole, { from: 1n })).toEqual(damaged)
})

test('a record that is not as long as it says, and a batch with more records than it says, are damaged', () => {
  const longer = stored([record('one')])
  longer[61] = (longer[61] as number) + 2
  const more = stored([record('one'), record('two')])
  more.writeInt32BE(1, 57)
  expect([outcome(Buffer.concat([longer, stored([record('two')])])), outcome(more)]).toEqual([damaged, damaged])
})

/** Two records, of which the second is damaged. */
function halfSound(firstOffset: bigint): Buffer {
  const batch = stored([record('sound'), record('damaged')], { firstOffset })
  const length = batch.lastIndexOf('damaged') - 1
  batch[length] = 126
  return batch
}

const readOrders = (batches: Buffer, options: Partial<Parameters<typeof readBatches>[0]> = {}): unknown => {
  const { nextOffset, records, unreadable } = readPartition({ batches, ...reader, ...options }, 'orders/0')
  return [nextOffset, records.map(({ offset }) => offset), unreadable?.message.split(': ')[0]]
}

test('what is in front of a batch that cannot be read is handed over, nothing of the batch is, and its own offset is told', () => {
  const sound = stored([record('0'), record('1'), record('2')], { firstOffset: 1_000n })
  const batches = Buffer.concat([sound, halfSound(1_003n), stored([record('behind')], { firstOffset: 1_005n })])
  expect(readOrders(batches, { from: 1_001n })).toEqual([1_003n, [1_001n, 1_002n], undefined])
  const next = batches.subarray(sound.length)
  expect(readOrders(next, { from: 1_003n })).toEqual([1_003n, [], 'Kafka, orders/0 cannot be read from offset 1003 on'])
  expect(readOrders(next, { from: 1_004n })).toEqual([1_004n, [], 'Kafka, orders/0 cannot be read from offset 1004 on'])
})

test('reading goes on up to a batch that cannot be read, also behind what is not for readers and what was compacted away', () => {
  const [attributes, producerId] = [transactional, 9n]
  const hidden = Buffer.concat([
    stored([record('aborted')], { firstOffset: 0n, attributes, producerId }),
    stored([marker(0)], { firstOffset: 1n, attributes: control, producerId }),
  ])
  const aborted = [{ producerId, firstOffset: 0n }]
  expect(readOrders(Buffer.concat([hidden, halfSound(7n)]), { aborted })).toEqual([2n, [], undefined])
  expect(readOrders(halfSound(7n), { from: 2n })).toEqual([2n, [], 'Kafka, orders/0 cannot be read from offset 2 on'])
})
