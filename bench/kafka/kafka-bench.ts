/**
 * What the contenders over Kafka share: a durable Postgres, a real broker of one node, and facts of 250 bytes that become rows.
 *
 * A fact is a reading of a meter, known by meter and moment. `log.events` was filled by the relay before the clock starts, over
 * eight partitions, with the first `count` facts, and whoever reads it does so from its beginning into an empty table. The flow's
 * topic gets new facts with every sample.
 */
import { z } from 'zod'
import { state } from '../../src/core/event/event.ts'
import { businessKeyId } from '../../src/core/event/id.ts'
import { stream, type Stream } from '../../src/core/event/stream.ts'
import { createOutbox } from '../../src/outbox/outbox.ts'
import { createRelay } from '../../src/outbox/relay/relay.ts'
import { connect, type Connection } from '../../src/postgres/connect.ts'
import { migrate } from '../../src/postgres/schema/migrate.ts'
import { startPostgres } from '../../src/testing/servers/postgres.ts'
import { startKafka } from '../../src/testing/servers/kafka-cluster.ts'
import { createKafkaAdmin } from '../../src/transport/kafka/admin.ts'
import { kafka } from '../../src/transport/kafka/kafka.ts'
import type { Transport } from '../../src/transport/port/transport.ts'

export interface Reading {
  readonly meter: string
  readonly at: string
  readonly value: number
  readonly note: string
}

export interface KafkaBench {
  readonly db: Connection
  readonly brokers: readonly string[]
  readonly transport: Transport
  readonly quick: boolean
  /** How many facts `log.events` has; `reading(0)` to `reading(count - 1)`. */
  readonly count: number
  close(): Promise<void>
}

export const logTopic = 'log.events'
export const flowTopic = 'flow.events'
export const toolTopic = 'tool.events'
export const partitions = 8

/** The stream of facts, on one of the topics. */
export function readingsOn(topic: string): Stream<{ ReadingTaken: typeof readingTaken }> {
  return stream('reading', { topic, events: { ReadingTaken: readingTaken } })
}

const readingTaken = state(z.object({ meter: z.string(), at: z.string(), value: z.number(), note: z.string() }))

export async function openKafkaBench(quick: boolean): Promise<KafkaBench> {
  const server = await startPostgres({
    durable: true,
    settings: { max_wal_size: '4GB', shared_buffers: '256MB', checkpoint_timeout: '30min' },
  })
  const cluster = await startKafka()
  const { brokers } = cluster
  const db = connect({ url: server.url, max: 16 })
  const transport = kafka({ brokers, minInsyncReplicas: 1 })
  const bench: KafkaBench = {
    db,
    brokers,
    transport,
    quick,
    count: quick ? 20_000 : 200_000,
    close: async () => {
      await transport.close()
      await db.close()
      await cluster.stop()
      await server.stop()
    },
  }
  await migrate(db, { schema: 'waybill', service: 'bench' })
  await db.query('create table reading (meter text, at timestamptz, value numeric, note text, primary key (meter, at))')
  const admin = createKafkaAdmin({ brokers })
  for (const name of [logTopic, flowTopic, toolTopic]) await admin.createTopic({ name, partitions, replicationFactor: 1 })
  await admin.close()
  await fillOutbox(bench, { topic: logTopic, from: 0, count: bench.count })
  await relayAll(bench)
  return bench
}

const meters = 5_000
const firstMs = Date.UTC(2026, 0, 1)

/** The nth fact. A stride that is prime to the number of meters visits all of them, in no order. */
export function reading(n: number): Reading {
  return {
    meter: `meter-${(n * 1_787) % meters}`,
    at: new Date(firstMs + Math.floor(n / meters) * 60_000).toISOString(),
    value: n,
    note: 'x'.repeat(170),
  }
}

interface Stretch {
  readonly topic: string
  readonly from: number
  readonly count: number
}

/** Facts in an empty outbox, all due, as `add` would have written them. */
export async function fillOutbox({ db }: KafkaBench, { topic, from, count }: Stretch): Promise<void> {
  await db.query('truncate waybill.outbox, waybill.outbox_dispatch, waybill.outbox_receipt')
  for (let done = 0; done < count; done += fillSize) {
    const facts = Array.from({ length: Math.min(fillSize, count - done) }, (_, i) => {
      const data = reading(from + done + i)
      const key = [data.meter, data.at]
      return { id: businessKeyId('reading', key), aggregate: key.join('/'), payload: JSON.stringify(data) }
    })
    await db.query(
      `with event as materialized (select * from json_to_recordset($1::text::json) as e (id uuid, aggregate text, payload text)), added as (
         insert into waybill.outbox (id, topic, aggregate_type, aggregate_id, version, event_type, schema_version, content_type, payload)
         select id, $2::text, 'reading', aggregate, 1, 'ReadingTaken', 1, 'application/json', convert_to(payload, 'UTF8') from event
       )
       insert into waybill.outbox_dispatch (lane, key, event_id)
       select key & 63, key, id from (
         select id, ('x' || encode(substring(sha256(convert_to('reading' || chr(31) || aggregate, 'UTF8')) from 1 for 8), 'hex'))::bit(64)::bigint as key from event) k`,
      [JSON.stringify(facts), topic],
    )
  }
}

const fillSize = 5_000

/** Publishes whatever is due. */
export async function relayAll({ db, transport }: KafkaBench): Promise<void> {
  await createRelay({ db, outbox: createOutbox(), transport }).once()
}

/** An empty table of readings. */
export async function emptyTable({ db }: KafkaBench): Promise<void> {
  await db.query('truncate reading')
}

/** Rows per second, if the table has as many as it should. */
export async function rate({ db }: KafkaBench, count: number, elapsedMs: number): Promise<number> {
  const { rows } = await db.query('select count(*)::int as count from reading')
  const found = (rows[0] as { count: number }).count
  if (found !== count) throw new Error(`The table has ${found} rows instead of ${count}.`)
  return (count / elapsedMs) * 1_000
}
