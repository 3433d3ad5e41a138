/**
 * Messages of a broker: what a consumer on Postgres does with them, and what the codecs and Kafka's format make of bytes. A consumer goes
 * on whatever comes: after every batch of bad messages a good one has its effect.
 */
import { ListValueSchema, ValueSchema } from '@bufbuild/protobuf/wkt'
import { compressionsAlgorithms, crc32c } from '@platformatic/kafka'
import fc from 'fast-check'
import { z } from 'zod'
import { avro, type AvroSchema } from '../../src/codec/avro.ts'
import { claimCheck } from '../../src/codec/claim-check.ts'
import { protobuf } from '../../src/codec/protobuf.ts'
import { createConsumer } from '../../src/consumer/consumer.ts'
import { jsonCodec, type Codec } from '../../src/core/encoding/codec.ts'
import { isWaybillError } from '../../src/core/errors.ts'
import { delta, state, tombstone } from '../../src/core/event/event.ts'
import { newId } from '../../src/core/event/id.ts'
import { stream } from '../../src/core/event/stream.ts'
import { AnswerBudget } from '../../src/transport/kafka/client/wire/answer-budget.ts'
import { readPartition } from '../../src/transport/kafka/client/wire/read-batches.ts'
import { fromRecord } from '../../src/transport/kafka/client/wire/event-records.ts'
import { encodeBatch } from '../../src/transport/kafka/client/wire/write-batch.ts'
import { memory } from '../../src/transport/memory/memory.ts'
import type { OutgoingMessage } from '../../src/transport/port/transport.ts'
import type { Corpus, OpenCorpus } from './fuzz.ts'
import type { FuzzWorld } from './http-corpora.ts'
import { bytes, mutated, mutatedText, text } from './inputs.ts'

const order: AvroSchema = {
  type: 'record',
  name: 'Order',
  fields: [
    { name: 'total', type: 'long' },
    { name: 'tags', type: { type: 'array', items: 'string' } },
    { name: 'labels', type: { type: 'map', values: ['null', 'string'] } },
    { name: 'next', type: ['null', 'Order'] },
  ],
}

const bucket = new Map<string, Uint8Array>()
const store = {
  put: async (key: string, content: Uint8Array): Promise<void> => void bucket.set(key, content),
  get: async (key: string): Promise<Uint8Array | undefined> => await Promise.resolve(bucket.get(key)),
}
const anything = jsonCodec(z.unknown())

/** Each codec, with what it wrote. */
const written: Readonly<Record<string, { readonly codec: Codec<never, unknown>; readonly valid: fc.Arbitrary<Uint8Array> }>> = {
  json: { codec: anything, valid: fc.jsonValue().map((each) => Buffer.from(JSON.stringify(each))) },
  protobuf: {
    codec: protobuf(ListValueSchema),
    valid: fc
      .array(fc.constantFrom([0x0a, 0], [0x0a, 2, 0x20, 1], [0x0a, 3, 0x1a, 1, 65]), { maxLength: 20 })
      .map((parts) => Uint8Array.from(parts.flat())),
  },
  value: { codec: protobuf(ValueSchema), valid: fc.constant(Uint8Array.from([0x1a, 2, 72, 105])) },
  avro: {
    codec: avro(order),
    valid: fc
      .record({
        total: fc.integer(),
        tags: fc.array(fc.string({ maxLength: 5 })),
        labels: fc.dictionary(
          fc.string({ minLength: 1, maxLength: 5 }).filter((key) => key !== '__proto__'),
          fc.option(fc.string()),
        ),
        next: fc.constant(null),
      })
      .map((data) => avro<unknown>(order).encode(data) as Uint8Array),
  },
  claim: {
    codec: claimCheck(anything, { store, thresholdBytes: 1 }),
    valid: fc.constant(
      Buffer.from('{"waybill-claim":1,"key":"claims/ab/ab","sha256":"ab","bytes":5,"contentType":"application/json"}'),
    ),
  },
}

const codecCorpus: Corpus<FuzzWorld> = {
  name: 'codecs',
  open: (): OpenCorpus => {
    const input = fc.constantFrom(...Object.keys(written)).chain((name) => {
      const { valid = bytes } = written[name] ?? {}
      return fc.tuple(fc.constant(name), fc.oneof(bytes, mutated(valid), valid))
    })
    const property = fc.asyncProperty(input, async ([name, content]) => {
      const { codec } = written[name] as (typeof written)[string]
      try {
        await codec.validate(await codec.decode(content, 1))
      } catch (error) {
        if (!isWaybillError(error) || error.code === 'INTERNAL') throw error
      }
    })
    return { runs: 400, property }
  },
}

const things = stream('thing', {
  topic: 'thing.events',
  events: {
    Said: state(anything),
    Listed: state(protobuf(ListValueSchema)),
    Ordered: delta(avro<{ total: number }>(order)),
    Gone: tombstone(),
    Sentinel: state(z.object({ id: z.string() })),
  },
})

const attribute = fc.oneof(text, mutatedText(fc.constantFrom('1', '42', 'thing', 'Said', 'application/json', newId())))
const badMessage = fc.record({
  body: fc.oneof(bytes, ...Object.values(written).map(({ valid }) => mutated(valid))),
  orderingKey: fc.option(text, { nil: undefined }),
  eventType: fc.constantFrom('Said', 'Listed', 'Ordered', 'Gone', 'Unknown'),
  id: fc.uuid(),
  version: fc.oneof(fc.integer({ min: 1, max: 5 }), fc.bigInt({ min: 0n, max: 1n << 64n })),
  changes: fc.array(
    fc.tuple(
      fc.constantFrom(
        'event_id',
        'event_type',
        'aggregate_type',
        'aggregate_id',
        'version',
        'schema_version',
        'occurred_at',
        'content_type',
        'headers',
        'x',
      ),
      fc.option(attribute),
    ),
    { maxLength: 3 },
  ),
})
type BadMessage = typeof badMessage extends fc.Arbitrary<infer Message> ? Message : never

function toMessage({ body, orderingKey, eventType, id, version, changes }: BadMessage): OutgoingMessage {
  const attributes: Record<string, string> = goodAttributes(eventType, id, String(version))
  for (const [name, value] of changes) {
    if (value === null) delete attributes[name]
    else attributes[name] = value
  }
  return { topic: 'thing.events', orderingKey: orderingKey ?? id, attributes, body }
}

function goodAttributes(eventType: string, id: string, version: string): Record<string, string> {
  return {
    event_id: newId(),
    event_type: eventType,
    aggregate_type: 'thing',
    aggregate_id: id,
    version,
    schema_version: '1',
    occurred_at: '2025-01-01T00:00:00.000Z',
    content_type: 'application/json',
  }
}

const consumerCorpus: Corpus<FuzzWorld> = {
  name: 'consumer',
  open: ({ db }): OpenCorpus => {
    const broker = memory()
    const waiting = new Map<string, () => void>()
    const consumer = createConsumer({
      db,
      transport: broker,
      name: 'fuzz',
      streams: [things],
      lingerMs: 1,
      pollMs: 50,
      backoff: { firstMs: 1, maxMs: 2 },
      maxAttempts: 2,
    })
    consumer
      .on(things.Said, () => {})
      .on(things.Listed, () => {})
      .on(things.Ordered, () => {})
      .on(things.Gone, () => {})
    consumer.on(things.Sentinel, ({ data }) => waiting.get(data.id)?.())
    const [stop, abort] = [new AbortController(), new AbortController()]
    const running = consumer.run({ stopping: stop.signal, aborting: abort.signal })
    running.catch(() => undefined)
    const publish = async (messages: readonly OutgoingMessage[]): Promise<void> =>
      void (await broker.publish(messages, { signal: new AbortController().signal, maySend: () => true }))
    const property = fc.asyncProperty(fc.array(badMessage, { minLength: 1, maxLength: 15 }), async (messages) => {
      const id = newId()
      const { promise, resolve } = Promise.withResolvers<void>()
      waiting.set(id, resolve)
      await publish(messages.map(toMessage))
      await publish([
        {
          topic: 'thing.events',
          orderingKey: id,
          attributes: goodAttributes('Sentinel', id, '1'),
          body: Buffer.from(JSON.stringify({ id })),
        },
      ])
      await Promise.race([promise, running.then(() => Promise.reject(new Error('The consumer has stopped.')))])
      waiting.delete(id)
    })
    return {
      runs: 10,
      property,
      close: async () => {
        stop.abort()
        await running
      },
    }
  },
}

const validBatch = fc
  .tuple(
    fc.constantFrom('none', 'gzip', 'snappy', 'lz4', 'zstd' as const),
    fc.array(fc.tuple(fc.uint8Array({ maxLength: 50 }), text), { minLength: 1, maxLength: 5 }),
  )
  .map(([codec, values]) => {
    const { bitmask, compressSync } = compressionsAlgorithms[codec]
    const compression =
      codec === 'none' ? undefined : { code: bitmask, compress: (content: Buffer) => Buffer.from(compressSync(content)) }
    const records = values.map(([value, name]) => ({ key: null, value, headers: [[name, name]] as const, timestampMs: 5 }))
    return encodeBatch(records, { producer: { id: 7n, epoch: 0 }, sequence: 0, crc32c, compression })
  })

const kafkaCorpus: Corpus<FuzzWorld> = {
  name: 'kafka-batches',
  open: (): OpenCorpus => {
    // The checksum is taken for right, or hardly anything would be read.
    const property = fc.asyncProperty(fc.oneof(mutated(validBatch), validBatch, fc.uint8Array()), async (content) => {
      const budget = new AnswerBudget(1_000_000)
      const decompress = (code: number, packed: Buffer): Buffer => budget.inflate(code, packed, compressionsAlgorithms)
      const batches = Buffer.from(content)
      const checksum = batches.length > 21 ? batches.readUInt32BE(17) : 0
      const read = readPartition({ batches, aborted: [], from: 0n, decompress, crc32c: () => checksum, budget }, 'topic/0')
      for (const record of read.records) fromRecord(record, { topic: 'topic', partition: 0 })
      await Promise.resolve()
    })
    return { runs: 300, property }
  },
}

export const messageCorpora: readonly Corpus<FuzzWorld>[] = [codecCorpus, consumerCorpus, kafkaCorpus]
