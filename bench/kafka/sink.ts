/**
 * The consumer's `insert` sink over Kafka: from a topic that is full, and at the end of the whole way from the outbox.
 *
 * A user whose facts have a business key and whom nobody waits for remembers nothing but the rows: no inbox, no positions.
 * Offsets stay with the broker, because the key alone makes a repeated fact harmless. Small rows go in batches of a thousand, and
 * in hand are as many messages as the batches under way can have.
 */
import { createConsumer } from '../../src/consumer/consumer.ts'
import type { ConsumerOptions } from '../../src/consumer/model/consumer-options.ts'
import { createSignals } from '../../src/core/signals.ts'
import type { Transport } from '../../src/transport/port/transport.ts'
import { emptyTable, fillOutbox, flowTopic, logTopic, rate, readingsOn, relayAll, type KafkaBench } from './kafka-bench.ts'

export const rowsOnly = {
  inbox: false,
  positions: 'needed',
  batchSize: 1_000,
  maxInFlight: 4_000,
} as const satisfies Partial<ConsumerOptions>

let groups = 0
let sent = 0

/** Rows per second from the first delivery to the last commit that the broker knows of, by a group that is new to the topic. */
export async function sinkAlone(bench: KafkaBench, options: Partial<ConsumerOptions> = rowsOnly): Promise<number> {
  await emptyTable(bench)
  const sink = startSink(bench, { topic: logTopic, name: `sink-${(groups += 1)}`, count: bench.count, options })
  const startedAt = await sink.delivered
  const endedAt = await sink.applied
  await sink.stop()
  return await rate(bench, bench.count, endedAt - startedAt)
}

/** Rows per second from a full outbox, through the relay and the broker, to the last commit that the broker knows of. */
export async function endToEnd(bench: KafkaBench): Promise<number> {
  const count = bench.quick ? 10_000 : 50_000
  await emptyTable(bench)
  await fillOutbox(bench, { topic: flowTopic, from: sent, count })
  sent += count
  const sink = startSink(bench, { topic: flowTopic, name: 'flow', count, options: rowsOnly })
  await sink.joined
  const startedAt = performance.now()
  await relayAll(bench)
  const endedAt = await sink.applied
  await sink.stop()
  return await rate(bench, count, endedAt - startedAt)
}

interface Sink {
  /** The group has taken it in. */
  readonly joined: Promise<void>
  /** When the first message came. */
  readonly delivered: Promise<number>
  /** When the last row was committed and its offset too. */
  readonly applied: Promise<number>
  stop(): Promise<void>
}

interface SinkOptions {
  readonly topic: string
  readonly name: string
  readonly count: number
  readonly options: Partial<ConsumerOptions>
}

function startSink({ db, transport }: KafkaBench, { topic, name, count, options }: SinkOptions): Sink {
  const joined = Promise.withResolvers<void>()
  const delivered = Promise.withResolvers<number>()
  const applied = Promise.withResolvers<number>()
  let isUnderWay = false
  const watched: Pick<Transport, 'receive'> = {
    receive: async (receiving) => {
      const receiver = await transport.receive({
        ...receiving,
        onDelivery: (delivery) => {
          if (!isUnderWay) delivered.resolve(performance.now())
          isUnderWay = true
          receiving.onDelivery(delivery)
        },
      })
      joined.resolve()
      return receiver
    },
  }
  const signals = createSignals()
  let rows = 0
  signals.on('consumer.applied', (batch) => {
    rows += batch.count
    if (rows === count) applied.resolve(performance.now())
  })
  const readings = readingsOn(topic)
  const consumer = createConsumer({ db, transport: watched, name, streams: [readings], signals, ...options }).insert(readings, {
    table: 'reading',
    key: ['meter', 'at'],
    keyOf: ({ data }) => [data.meter, data.at],
    set: ({ data }) => ({ value: data.value, note: data.note }),
  })
  const stopping = new AbortController()
  const running = consumer.run({ stopping: stopping.signal, aborting: new AbortController().signal })
  for (const moment of [joined, delivered, applied]) running.catch(moment.reject)
  return {
    joined: joined.promise,
    delivered: delivered.promise,
    applied: applied.promise,
    stop: async () => {
      stopping.abort()
      await running
    },
  }
}
