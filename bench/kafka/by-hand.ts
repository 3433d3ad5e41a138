/**
 * The same rows without us: the limit, a bare loop of set-based inserts that no broker takes part in; and the usual consumer,
 * which does one event at a time and commits its offset behind it.
 */
import type { Delivery } from '../../src/transport/port/transport.ts'
import { sqlArray } from '../../src/postgres/query/sql.ts'
import { transaction } from '../../src/postgres/transaction/transaction.ts'
import { emptyTable, logTopic, partitions, reading, type KafkaBench, type Reading, rate } from './kafka-bench.ts'

const batchSize = 500

/** Rows per second of `parallel` loops over batches of 500 that are in memory. */
export async function rawInserts(bench: KafkaBench, parallel: number): Promise<number> {
  await emptyTable(bench)
  const all = Array.from({ length: bench.count }, (_, n) => reading(n))
  let next = 0
  const loop = async (): Promise<void> => {
    while (next < all.length) {
      const batch = all.slice(next, (next += batchSize))
      await insertAll(bench, batch)
    }
  }
  const startedAt = performance.now()
  await Promise.all(Array.from({ length: parallel }, loop))
  return await rate(bench, bench.count, performance.now() - startedAt)
}

async function insertAll({ db }: KafkaBench, batch: readonly Reading[]): Promise<void> {
  await db.query(
    `insert into reading (meter, at, value, note)
     select * from unnest($1::text::text[], $2::text::timestamptz[], $3::text::numeric[], $4::text::text[])`,
    [
      sqlArray(batch.map(({ meter }) => meter)),
      sqlArray(batch.map(({ at }) => at)),
      sqlArray(batch.map(({ value }) => value)),
      sqlArray(batch.map(({ note }) => note)),
    ],
  )
}

let groups = 0

/**
 * Events per second of one consumer that works its partitions in parallel and each of them event by event: a transaction, then
 * the offset's commit. It stops after so many, because all of them would take minutes.
 */
export async function perEvent(bench: KafkaBench, count: number): Promise<number> {
  const { transport } = bench
  await emptyTable(bench)
  const done = Promise.withResolvers<number>()
  const lines = new Map<string | undefined, Promise<void>>()
  let [startedAt, taken, settled] = [0, 0, 0]
  const receiver = await transport.receive({
    topic: logTopic,
    consumer: `per-event-${(groups += 1)}`,
    // Partitions are handed over in turns of some dozens, and each shall always have work in hand.
    maxMessages: 64 * partitions,
    maxBytes: 1_000_000,
    // The transport goes on by itself, as it does for the sink.
    onError: () => {},
    onDelivery: (delivery) => {
      if (taken === 0) startedAt = performance.now()
      // What is more than enough stays in hand, so that no more comes.
      if (taken === count) return
      taken += 1
      const partition = delivery.message.position?.partition
      const line = (lines.get(partition) ?? Promise.resolve()).then(async () => {
        await processOne(bench, delivery)
        settled += 1
        if (settled === count) done.resolve(performance.now())
      })
      line.catch(done.reject)
      lines.set(partition, line)
    },
  })
  const endedAt = await done.promise
  await receiver.close(AbortSignal.abort())
  return await rate(bench, count, endedAt - startedAt)
}

async function processOne({ db }: KafkaBench, delivery: Delivery): Promise<void> {
  const { meter, at, value, note } = JSON.parse(Buffer.from(delivery.message.body).toString()) as Reading
  await transaction(db, async (tx) => {
    await tx.query('insert into reading (meter, at, value, note) values ($1, $2, $3, $4) on conflict do nothing', [
      meter,
      at,
      value,
      note,
    ])
  })
  await delivery.ack()
}
