import { randomBytes } from 'node:crypto'
import { expect, test } from 'vitest'
import { z } from 'zod'
import { FakeKafka } from '../../../../../test/kafka/fake-kafka.ts'
import { state, voidEventType } from '../../../../core/event/event.ts'
import { createSigner, createVerifier } from '../../../../core/event/signing.ts'
import { stream } from '../../../../core/event/stream.ts'
import { readBatches } from './read-batches.ts'
import type { KafkaRecord, ProduceBatch } from '../kafka-client.ts'
import { fromRecord, toRecord } from './event-records.ts'
import { kafka } from '../../kafka.ts'
import { AnswerBudget } from './answer-budget.ts'
import { encodeBatch } from './write-batch.ts'

const place = { topic: 'video.events', partition: 0 }

test('a void of a compacted stream evicts no state, goes to the partition of its aggregate, and has its ordering key', async () => {
  const produced: ProduceBatch[] = []
  const partitions = Array.from({ length: 8 }, () => ({ leader: 1, replicas: 3 }))
  const transport = kafka({
    brokers: ['nowhere:1'],
    minInsyncReplicas: 0,
    compacted: [stream('video', { topic: 'video.events', events: { Stored: state(z.object({})) } })],
    client: () => ({
      ...new FakeKafka(8).client(),
      describeTopic: (name) => Promise.resolve({ name, partitions }),
      topicSettings: () => Promise.resolve(new Map()),
      initProducer: () => Promise.resolve({ id: 1n, epoch: 0 }),
      produce: ({ batches }) => {
        produced.push(...batches)
        return Promise.resolve(batches.map(() => ({ baseOffset: 0n })))
      },
    }),
  })
  const keys = ['a', 'b', 'c', 'd', 'e', 'f']
  const of = (orderingKey: string, event_type: string) => ({
    topic: 'video.events',
    orderingKey,
    attributes: { aggregate_type: 'video', event_type },
    body: Buffer.from(event_type === 'Stored' ? '{}' : ''),
  })
  const messages = keys.flatMap((key) => [of(key, 'Stored'), of(key, voidEventType)])
  await transport.publish(messages, { signal: new AbortController().signal, maySend: () => true })
  const read = produced.flatMap(({ partition, records }) =>
    records.map((record, i) => ({ partition, key: record.key, ...ordered(record, i) })),
  )
  expect(read).toHaveLength(messages.length)
  for (const key of keys) {
    const [stored, marker] = read.filter(({ orderingKey }) => orderingKey === key)
    expect(Buffer.from(stored?.key ?? []).toString()).toBe(key)
    expect(Buffer.from(marker?.key ?? []).toString()).toBe(`${voidEventType}\u0000${key}`)
    expect(marker?.partition).toBe(stored?.partition)
  }
})

test('a header that is no UTF-8 is left out, by its value or its name: different ones would become the same text', () => {
  const latin1 = (text: string): Uint8Array => Buffer.from(text, 'latin1')
  const record = (id: string | Uint8Array): KafkaRecord => ({
    ...toRecord(
      { topic: 'video.events', orderingKey: 'k', attributes: {}, body: Buffer.from('{}') },
      { compaction: undefined, nowMs: 0 },
    ),
    headers: [
      ['event_type', 'Stored'],
      ['aggregate_id', id],
      ['version', '1'],
    ],
  })
  const batch = encodeBatch(
    [record('Müller'), record(latin1('Müller')), record('a\ufffdb'), record(latin1('Möller')), record('plain')],
    { producer: { id: 1n, epoch: 0 }, sequence: 0, crc32c: () => 0, compression: undefined },
  )
  const name = batch.lastIndexOf('version')
  batch[name] = 0xfc
  const options = {
    aborted: [],
    from: 0n,
    decompress: (_code: number, bytes: Buffer) => bytes,
    crc32c: () => 0,
    budget: new AnswerBudget(1_000_000),
  }
  const { records } = readBatches({ batches: batch, ...options })
  expect(records.map((each) => fromRecord(each, place).attributes)).toEqual([
    { event_type: 'Stored', aggregate_id: 'Müller', version: '1' },
    { event_type: 'Stored', version: '1' },
    { event_type: 'Stored', aggregate_id: 'a\ufffdb', version: '1' },
    { event_type: 'Stored', version: '1' },
    { event_type: 'Stored', aggregate_id: 'plain' },
  ])
})

function ordered(record: KafkaRecord, offset: number): { readonly orderingKey: string | undefined } {
  const { orderingKey } = fromRecord({ ...record, offset: BigInt(offset) }, place)
  return { orderingKey }
}

test('a signature is right on a record that was read, of a state, a tombstone with a body, and a void', () => {
  const secret = randomBytes(32)
  const signer = createSigner({ keyId: 'owner', secret })
  const verifier = createVerifier({ keys: [{ keyId: 'owner', secret }] })
  const message = {
    topic: 'video.events',
    orderingKey: 'größe',
    attributes: { traceparent: '00-1-2-01', event_id: 'e', aggregate_type: 'video', aggregate_id: 'größe', version: '7' },
    body: Buffer.from('{"title":"größe"}'),
  }
  for (const compaction of [undefined, 'tombstone', 'void'] as const) {
    const signed = signer.sign(message)
    const record = toRecord(signed, { compaction, nowMs: 0 })
    const read = fromRecord({ ...record, offset: 0n }, place)
    expect(verifier.verify(read)).toEqual({ attributes: signed.attributes })
    expect(verifier.verify({ ...signed, body: Buffer.from('{}') })).toEqual({ distrust: 'forged' })
  }
})
