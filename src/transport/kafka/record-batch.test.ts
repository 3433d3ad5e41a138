import fc from 'fast-check'
import { expect, test } from 'vitest'
import { readBatches } from './fetched-batches.ts'
import type { KafkaRecord } from './kafka-client.ts'
import { encodeBatch } from './record-batch.ts'

const producer = { id: 7n, epoch: 1 }
const plain = { producer, sequence: 0, crc32c: () => 0, compression: undefined }
const noCompression = (): never => {
  throw new Error('Nothing is compressed here.')
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
  readBatches({ batches, aborted: [], from: 0n, decompress: noCompression, ...options }).records.map(({ value }) =>
    Buffer.from(value ?? []).toString(),
  )

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
      const read = readBatches({
        batches: stored(records, { firstOffset: 1_000n }),
        aborted: [],
        from: 0n,
        decompress: noCompression,
      })
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
  expect(readBatches({ batches: cut, aborted: [], from: 1n, decompress: noCompression }).nextOffset).toBe(3n)
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
  expect(readBatches({ batches, aborted, from: 0n, decompress: noCompression }).nextOffset).toBe(8n)
})
