/**
 * Retention of the Postgres transport, in a database of its own: on tables without statistics the planner once chose a plan that
 * took one message of a key for all of them.
 */
import { afterEach, expect, test } from 'vitest'
import { testDatabase } from '../../../test/setup/test-database.ts'
import type { Queryable } from '../../postgres/query/database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { migrate } from '../../postgres/schema/migrate.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { interleaved, message, probe, publishAll } from '../../testing/contract/probe.ts'
import { postgresTransport, type PostgresTransport } from './postgres-transport.ts'
import { publishMessages, transportTables } from './transport.sql.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
await migrate(db, { schema: 'waybill', service: 'transport' })

const opened: PostgresTransport[] = []
afterEach(async () => {
  for (const transport of opened.splice(0)) await transport.close()
})

function open(options: Partial<Parameters<typeof postgresTransport>[0]>): PostgresTransport {
  const transport = postgresTransport({ db, leaseMs: 600, ...options })
  opened.push(transport)
  return transport
}

async function count(query: string, values: readonly (string | number)[] = []): Promise<number> {
  const { rows } = await db.query(`select count(*)::int as n from ${query}`, values)
  return (rows[0] as { n: number }).n
}

const stored = (topic: string): Promise<number> =>
  count('waybill.transport_message m join waybill.transport_topic t on t.id = m.topic_id where t.name = $1', [topic])

const someoneIsBlocked = (): Promise<boolean> =>
  count(`pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`).then((n) => n > 0)

test.each(['seek', 'rewind'] as const)('a %s that ends in a deadlock with a receiver is done all the same', async (how) => {
  const transport = open({})
  const topic = `${how}.events`
  await transport.subscribe(topic, 'one')
  await publishAll(transport, interleaved(topic, ['a'], 2))
  const mine = `waybill.transport_delivery d where d.seq = (select %(m.seq) from waybill.transport_message m join waybill.transport_topic t on t.id = m.topic_id where t.name = $1)`
  let moving: Promise<unknown> | undefined
  const settling = transaction(db, async (tx) => {
    // The other one is found out first.
    await tx.query(`set local deadlock_timeout = '1h'`)
    await tx.query(`delete from ${mine.replace('%', 'max')}`, [topic])
    moving = transport[how]?.({ topic, consumer: 'one', to: 'earliest', sinceMs: 0 })
    await eventually(someoneIsBlocked)
    await tx.query(`delete from ${mine.replace('%', 'min')}`, [topic])
  })
  await settling
  await moving
  expect(
    await count(
      'waybill.transport_delivery d join waybill.transport_subscription s on s.id = d.subscription_id join waybill.transport_topic t on t.id = s.topic_id where t.name = $1',
      [topic],
    ),
  ).toBe(2)
})

test('retention removes what is past it and settled by all, and nothing else', async () => {
  const transport = open({ retentionMs: 0 })
  const topic = 'kept.events'
  await transport.subscribe(topic, 'slow')
  await transport.subscribe(topic, 'fast')
  await publishAll(transport, interleaved(topic, ['a', 'b'], 5))
  const acks: Promise<unknown>[] = []
  const fast = await probe(transport, { topic, consumer: 'fast', on: (delivery) => void acks.push(delivery.ack()) })
  await fast.until(10)
  await Promise.all(acks)
  await transport.sweep()
  expect(await stored(topic)).toBe(10)
  expect(await open({ retentionMs: 3_600_000 }).sweep()).toBe(0)
  const slow = await probe(transport, {
    topic,
    consumer: 'slow',
    on: (delivery) => void (delivery.message.attributes['name'] === 'a5' ? undefined : delivery.ack()),
  })
  await slow.until(10)
  await eventually(async () => {
    await transport.sweep()
    return (await stored(topic)) === 1
  })
  await transport.unsubscribe(topic, 'slow')
  await transport.sweep()
  expect(await stored(topic)).toBe(0)
})

/** Stores messages of a topic that were published so many days ago, four in a block. */
async function store(topic: string, days: number, messages: number): Promise<void> {
  await db.query(
    `insert into waybill.transport_message (topic_id, seq, attributes, body, published_at)
     select t.id, nextval('waybill.transport_message_seq'), '{}', convert_to(repeat('x', 1800), 'utf8'), clock_timestamp() - $2::int * interval '1 day'
       from waybill.transport_topic t, generate_series(1, $3::int) where t.name = $1`,
    [topic, days, messages],
  )
}

/** Blocks of the message table and its indexes that the statements of this transaction have asked for. */
async function blocksOf(tx: Queryable): Promise<number> {
  const { rows } = await tx.query(
    `select (pg_stat_get_xact_blocks_fetched(c.oid)
             + (select sum(pg_stat_get_xact_blocks_fetched(i.indexrelid)) from pg_index i where i.indrelid = c.oid))::int as blocks
       from pg_class c where c.oid = 'waybill.transport_message'::regclass`,
  )
  return (rows[0] as { blocks: number }).blocks
}

test('a sweep looks at what is old, not at all there is, also where space was used again', async () => {
  const transport = open({})
  const topic = 'reused.events'
  await db.query('alter table waybill.transport_message set (autovacuum_enabled = off)')
  await publishAll(transport, [message(topic, 'first')])
  await store(topic, 40, 4_000)
  await db.query('vacuum waybill.transport_message')
  await db.query(`delete from waybill.transport_message where ctid <> (select max(ctid) from waybill.transport_message)`)
  await db.query('vacuum waybill.transport_message')
  await store(topic, 0, 4_000)
  await db.query('vacuum analyze waybill.transport_message')
  const blocks = await transaction(db, async (tx) => {
    const before = await blocksOf(tx)
    expect(await postgresTransport({ db: tx }).sweep()).toBe(1)
    return (await blocksOf(tx)) - before
  })
  expect(await stored(topic)).toBe(4_000)
  expect(blocks).toBeLessThan(50)
})

test('what is old and not settled keeps nothing behind it, however much it is, nor does what comes from the future', async () => {
  const transport = open({})
  const topic = 'stuck.events'
  await transport.subscribe(topic, 'stuck')
  await store(topic, -1, 1)
  await store(topic, 40, 10_005)
  await db.query(
    `insert into waybill.transport_delivery (subscription_id, lane, seq, bytes)
     select s.id, waybill.transport_lane_of(null, m.seq, s.lanes), m.seq, 0
       from waybill.transport_subscription s join waybill.transport_message m on m.topic_id = s.topic_id
      where s.consumer = 'stuck' order by m.seq offset 1 limit 10000`,
  )
  expect([await transport.sweep(), await transport.sweep(), await transport.sweep()]).toEqual([0, 5, 0])
  expect(await stored(topic)).toBe(10_001)
  await transport.unsubscribe(topic, 'stuck')
  // The third look was at the front again; this one begins behind it.
  expect((await transport.sweep()) + (await transport.sweep())).toBe(10_000)
})

test('what a new subscription or a seek copies is not removed before it is committed', async () => {
  const transport = open({ retentionMs: 0 })
  const topic = 'copied.events'
  await publishAll(transport, interleaved(topic, ['a'], 3))
  await transaction(db, async (tx) => {
    await tx.query(`select waybill.transport_subscribe($1, 'new', 4::smallint)`, [topic])
    await transport.sweep()
  })
  // A transport that receives also sweeps by itself; with this retention it leaves the messages to the test.
  const receiving = open({ retentionMs: 3_600_000 })
  const received = await probe(receiving, { topic, consumer: 'new', on: () => undefined })
  await received.until(3)
  await received.receiver.close(AbortSignal.abort())
  await db.query(`delete from waybill.transport_delivery`)
  await transaction(db, async (tx) => {
    await tx.query(
      `select waybill.transport_seek($1, s.id, null) from waybill.transport_subscription s join waybill.transport_topic t on t.id = s.topic_id where t.name = $1`,
      [topic],
    )
    await transport.sweep()
  })
  expect(await stored(topic)).toBe(3)
  await transport.unsubscribe(topic, 'new')
})

test('a subscription that is made while messages are removed begins with what is left', async () => {
  const transport = open({ retentionMs: 0 })
  const topic = 'removed.events'
  await publishAll(transport, interleaved(topic, ['a'], 3))
  let subscribing: Promise<void> | undefined
  await transaction(db, async (tx) => {
    await postgresTransport({ db: tx, retentionMs: 0 }).sweep()
    subscribing = transport.subscribe(topic, 'new')
    await eventually(someoneIsBlocked)
  })
  await subscribing
  expect(await count('waybill.transport_delivery')).toBe(0)
})

test('a delivery whose message is gone does not hold up the others: it is reported and removed', async () => {
  const transport = open({ lanes: 1 })
  const topic = 'orphaned.events'
  await transport.subscribe(topic, 'one')
  await publishAll(transport, interleaved(topic, ['gone'], 30))
  await db.query(
    `delete from waybill.transport_message m using waybill.transport_topic t where t.id = m.topic_id and t.name = $1`,
    [topic],
  )
  await publishAll(transport, [message(topic, 'there')])
  const [names, errors]: [string[], Error[]] = [[], []]
  const receiver = await transport.receive({
    topic,
    consumer: 'one',
    maxMessages: 10,
    maxBytes: 1_000_000,
    onDelivery: (delivery) => {
      names.push(delivery.message.attributes['name'] ?? '')
      void delivery.ack()
    },
    onError: (error) => void errors.push(error),
  })
  await eventually(() => expect(names).toEqual(['there']))
  await receiver.close()
  expect(await count('waybill.transport_delivery')).toBe(0)
  expect(errors.map((error) => error.message)).toContainEqual(expect.stringContaining('10 messages of orphaned.events are gone'))
})

test('a publisher that has not committed when its consumer is unsubscribed leaves nothing behind', async () => {
  const transport = open({})
  const topic = 'unsubscribed.events'
  await transport.subscribe(topic, 'one')
  const { text, values } = publishMessages(transportTables('waybill'), topic, [message(topic, 'late')])
  let unsubscribing: Promise<void> | undefined
  await transaction(db, async (tx) => {
    await tx.query(text, values)
    unsubscribing = transport.unsubscribe(topic, 'one')
    await eventually(someoneIsBlocked)
  })
  await unsubscribing
  expect(await count('waybill.transport_delivery')).toBe(0)
})

test('what is left of a subscription that is gone is removed with the messages past their retention', async () => {
  const transport = open({})
  const topic = 'abandoned.events'
  await transport.subscribe(topic, 'gone')
  await transport.subscribe(topic, 'kept')
  await publishAll(transport, interleaved(topic, ['a'], 3))
  await db.query(`delete from waybill.transport_subscription where consumer = 'gone'`)
  await transport.sweep()
  expect(await count('waybill.transport_delivery')).toBe(3)
  await transport.unsubscribe(topic, 'kept')
})
