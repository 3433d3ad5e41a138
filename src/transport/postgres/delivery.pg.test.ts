import pg from 'pg'
import { afterEach, expect, test } from 'vitest'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { createSignals, type Signals } from '../../core/signals.ts'
import type { Queryable } from '../../postgres/query/database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { migrate } from '../../postgres/schema/migrate.ts'
import { groupRole } from '../../postgres/schema/roles.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { createFakeClock } from '../../testing/kit/fake-clock.ts'
import { interleaved, message, nameOf, probe, publishAll } from '../../testing/contract/probe.ts'
import type { Delivery } from '../port/transport.ts'
import { postgresTransport, type PostgresTransport } from './postgres-transport.ts'
import { publishMessages, transportTables } from './transport.sql.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
const names = { schema: 'waybill', service: database.name }
await migrate(db, { ...names, roles: true })
const tables = transportTables('waybill')

let opened: PostgresTransport[] = []
let topics = 0

afterEach(async () => {
  for (const transport of opened) await transport.close()
  opened = []
})

function open(options: Partial<Parameters<typeof postgresTransport>[0]> = {}): PostgresTransport {
  const transport = postgresTransport({ db, leaseMs: 60_000, ...options })
  opened.push(transport)
  return transport
}

/** A way to the database that can be stalled: statements wait until it is opened again. */
function stallable(): { readonly db: Queryable; stall(): void; resume(): void } {
  let gate = Promise.resolve()
  let resume = (): void => undefined
  return {
    db: { query: (text, values) => gate.then(() => db.query(text, values)) },
    stall: () => {
      gate = new Promise((done) => (resume = done))
    },
    resume: () => resume(),
  }
}

/** The leases under way are over, and nobody has heard of their holders lately. */
async function endLeases(): Promise<void> {
  await db.query('update waybill.transport_lane set lock_expires_at = clock_timestamp() where locked_by is not null')
  await db.query(`update waybill.transport_receiver set seen_at = seen_at - interval '2 minutes'`)
}

const newTopic = (): string => `delivery-${++topics}`

test('what a consumer has not settled is reported as its lag, by one of its receivers', async () => {
  const topic = newTopic()
  const signals = createSignals()
  const lags: Signals['transport.lag'][] = []
  signals.on('transport.lag', (lag) => void lags.push(lag))
  const transport = open({ signals, lagMs: 10, lanes: 1 })
  await publishAll(transport, interleaved(topic, ['a', 'b'], 3))
  const received = await probe(transport, { topic, on: () => undefined })
  await received.until(6)
  // The only lane stays where its messages are in hand.
  const idle = createSignals()
  const others: unknown[] = []
  idle.on('transport.lag', (lag) => void others.push(lag))
  const other = await probe(open({ signals: idle, lagMs: 10 }), { topic })
  const before = lags.length
  await eventually(() => lags.length > before + 5)
  expect(others).toEqual([])
  await other.receiver.close()
  expect(lags.at(-1)?.messages).toBe(6)
  for (const delivery of received.deliveries) await delivery.ack()
  await eventually(() => lags.at(-1)?.messages === 0)
  expect(lags.at(-1)).toEqual({ transport: 'postgres', topic, consumer: 'one', partition: 'all', messages: 0 })
})

test('a publisher that commits late is not passed over, though later ones were delivered meanwhile', async () => {
  const transport = open({ lanes: 1 })
  const topic = newTopic()
  const received = await probe(transport, { topic })
  const { text, values } = publishMessages(tables, topic, [message(topic, 'late1', 'a'), message(topic, 'late2', 'a')])
  const late = await transaction(db, async (tx) => {
    const result = await tx.query(text, values)
    // Two rounds of others are stored behind it, fetched and settled while its transaction is open.
    await publishAll(transport, [message(topic, 'm1'), message(topic, 'b1', 'b')])
    await received.until(2)
    await publishAll(transport, [message(topic, 'm2'), message(topic, 'b2', 'b')])
    await received.until(4)
    return result.rows as readonly { seq: string }[]
  })
  await received.until(6)
  expect(received.ofKey('a')).toEqual(['late1', 'late2'])
  const lateDelivery = received.deliveries.find((each) => each.message.attributes['name'] === 'late1')
  expect(lateDelivery?.message.messageId).toBe(late[0]?.seq)
  expect(Number(late[0]?.seq)).toBeLessThan(Number(received.deliveries[0]?.message.messageId))
})

test('a subscription that is made while a publisher has not committed gets its message', async () => {
  const transport = open()
  const topic = newTopic()
  await publishAll(transport, [message(topic, 'early')])
  const { text, values } = publishMessages(tables, topic, [message(topic, 'open')])
  let subscribing: Promise<void> | undefined
  await transaction(db, async (tx) => {
    await tx.query(text, values)
    subscribing = transport.subscribe(topic, 'new')
    await eventually(async () => {
      const { rows } = await db.query(
        `select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`,
      )
      return rows.length > 0
    })
  })
  await subscribing
  const received = await probe(transport, { topic, consumer: 'new' })
  await received.until(2)
  expect(received.firstNames().toSorted()).toEqual(['early', 'open'])
})

test('a publisher that waits for a new subscription to be made publishes to it', async () => {
  const transport = open()
  const topic = newTopic()
  await publishAll(transport, [message(topic, 'early')])
  let publishing: Promise<void> | undefined
  await transaction(db, async (tx) => {
    await tx.query(`select waybill.transport_subscribe($1, 'new', 4::smallint)`, [topic])
    publishing = publishAll(transport, [message(topic, 'waited')])
    await eventually(async () => {
      const { rows } = await db.query(
        `select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`,
      )
      return rows.length > 0
    })
  })
  await publishing
  const received = await probe(transport, { topic, consumer: 'new' })
  await received.until(2)
})

test('a receiver that stalls beyond its lease loses what it has in hand, is told so, and changes nothing any more', async () => {
  const way = stallable()
  const clock = createFakeClock()
  const stalled = open({ db: way.db, clock })
  const healthy = open()
  const topic = newTopic()
  await publishAll(healthy, interleaved(topic, ['a'], 3))
  const first = await probe(stalled, { topic, on: () => undefined })
  await first.until(3)
  way.stall()
  await clock.advance(60_000)
  expect(first.deliveries.map((each) => each.lost.aborted)).toEqual([true, true, true])
  await endLeases()
  const second = await probe(healthy, { topic, on: () => undefined })
  await second.until(3)
  way.resume()
  expect(await first.deliveries[0]?.ack()).toBe('lost')
  for (const delivery of second.deliveries) expect(await delivery.ack()).toBe('confirmed')
})

test('an ack that was on its way when the lease ran out is fenced off', async () => {
  const way = stallable()
  const stalled = open({ db: way.db })
  const healthy = open()
  const topic = newTopic()
  await publishAll(healthy, [message(topic, 'a1', 'a')])
  const first = await probe(stalled, { topic, on: () => undefined })
  await first.until(1)
  way.stall()
  const ack = first.deliveries[0]?.ack()
  await endLeases()
  const second = await probe(healthy, { topic, on: () => undefined })
  await second.until(1)
  way.resume()
  expect(await ack).toBe('lost')
  expect(await second.deliveries[0]?.ack()).toBe('confirmed')
})

test('lanes move to receivers that come, and back when they go', async () => {
  // They move when leases are renewed, every third of one.
  const transport = open({ leaseMs: 600 })
  const topic = newTopic()
  const left = await probe(transport, { topic })
  const held = async (): Promise<number[]> => {
    const { rows } = await db.query(
      `select count(*)::int as n from waybill.transport_lane l join waybill.transport_subscription s on s.id = l.subscription_id
         join waybill.transport_topic t on t.id = s.topic_id where t.name = $1 and locked_by is not null group by locked_by order by 1`,
      [topic],
    )
    return rows.map((row) => (row as { n: number }).n)
  }
  expect(await held()).toEqual([32])
  const middle = await probe(transport, { topic })
  const right = await probe(transport, { topic })
  await eventually(async () => expect(await held()).toEqual([10, 11, 11]))
  await middle.receiver.close()
  await left.receiver.close()
  await eventually(async () => expect(await held()).toEqual([32]))
  await publishAll(transport, interleaved(topic, ['a', 'b', 'c'], 3))
  await right.until(9)
})

test('a lane with messages in hand is not given to a receiver that comes before they are settled', async () => {
  const clock = createFakeClock()
  let beats = 0
  const counting: Queryable = {
    query: async (text, values) => {
      const result = await db.query(text, values)
      if (text.includes('transport_lease')) beats += 1
      return result
    },
  }
  const transport = open({ db: counting, lanes: 1, clock })
  const topic = newTopic()
  const first = await probe(transport, { topic, on: () => undefined })
  await publishAll(transport, interleaved(topic, ['a'], 3))
  await first.until(3)
  const second = await probe(transport, { topic })
  // Several heartbeats of both, each of which could move the lane.
  for (let round = 0; round < 6; round += 1) {
    const before = beats
    await clock.advance(20_000)
    await eventually(() => beats >= before + 2)
  }
  expect(second.deliveries).toHaveLength(0)
  expect(first.deliveries.map((each) => each.lost.aborted)).toEqual([false, false, false])
  for (const delivery of first.deliveries) expect(await delivery.ack()).toBe('confirmed')
})

test('a nack of one message brings back those behind it that were in hand, and tells their holder', async () => {
  const transport = open()
  const topic = newTopic()
  const inHand: Delivery[] = []
  const received = await probe(transport, { topic, on: (delivery) => void inHand.push(delivery) })
  await publishAll(transport, interleaved(topic, ['a'], 3))
  await received.until(3)
  await inHand[0]?.nack()
  expect(inHand.slice(0, 3).map((each) => each.lost.aborted)).toEqual([false, true, true])
  expect(await inHand[1]?.ack()).toBe('lost')
  await eventually(() => expect(received.names()).toEqual(['a1', 'a2', 'a3', 'a1', 'a2', 'a3']))
})

test('a key that rests with a long line behind it does not hold up the others', async () => {
  const transport = open({ lanes: 1 })
  const topic = newTopic()
  const received = await probe(transport, {
    topic,
    maxMessages: 100,
    on: (delivery) => void (delivery.message.orderingKey === 'poison' ? delivery.nack(60_000) : delivery.ack()),
  })
  await publishAll(transport, interleaved(topic, ['poison'], 6_000))
  await eventually(() => received.deliveries.length > 0)
  await publishAll(transport, interleaved(topic, ['good', 'fine'], 100))
  await eventually(() => expect(received.ofKey('good').length + received.ofKey('fine').length).toBe(200))
  expect(received.ofKey('good')).toEqual(Array.from({ length: 100 }, (_, i) => `good${i + 1}`))
})

test('a seek while messages are in hand takes them away, and they come again', async () => {
  const transport = open()
  const topic = newTopic()
  const inHand: Delivery[] = []
  const received = await probe(transport, { topic, on: (delivery) => void inHand.push(delivery) })
  await publishAll(transport, interleaved(topic, ['a'], 3))
  await received.until(3)
  await inHand[0]?.ack()
  await transport.seek({ topic, consumer: 'one', to: 'earliest' })
  expect(await inHand[1]?.ack()).toBe('lost')
  await eventually(() => expect(received.names()).toEqual(['a1', 'a2', 'a3', 'a1', 'a2', 'a3']))
})

test('a rewind keeps what rests and is older: its key waits for it, and what was in hand is lost', async () => {
  const transport = open({ lanes: 1 })
  const topic = newTopic()
  const inHand: Delivery[] = []
  const on = (delivery: Delivery): void => {
    if (nameOf(delivery) === 'a1') void delivery.nack(60_000)
    else if (nameOf(delivery) === 'b1') inHand.push(delivery)
    else void delivery.ack()
  }
  const received = await probe(transport, { topic, on })
  await publishAll(transport, interleaved(topic, ['a', 'b'], 1))
  await received.until(2)
  await db.query(`update waybill.transport_message set published_at = published_at - interval '1 hour'`)
  await publishAll(transport, [message(topic, 'a2', 'a'), message(topic, 'b2', 'b')])
  await received.until(3)
  const sinceMs = received.deliveries.at(-1)?.message.publishedAtMs ?? 0
  await transport.rewind?.({ topic, consumer: 'one', sinceMs })
  expect(await inHand[0]?.ack()).toBe('lost')
  await eventually(() => expect(received.names()).toEqual(['a1', 'b1', 'b2', 'b1', 'b2']))
})

test('the relay’s role can publish and the consumer’s role can receive, and neither needs more', async () => {
  const topic = newTopic()
  const asRole = async (role: 'relay' | 'consumer'): Promise<pg.Pool> => {
    const login = `${role}_${database.name}`
    await database.pool.query(`create role ${login} login in role ${groupRole(names, role)}`)
    const url = new URL(database.url)
    url.username = login
    return new pg.Pool({ connectionString: url.href, max: 4 })
  }
  const [relayPool, consumerPool] = [await asRole('relay'), await asRole('consumer')]
  const relay = postgresTransport({ db: fromPg(relayPool) })
  const consumer = postgresTransport({ db: fromPg(consumerPool), retentionMs: 0, leaseMs: 60_000 })
  await publishAll(relay, interleaved(topic, ['a'], 3))
  let nacked = false
  const received = await probe(consumer, {
    topic,
    on: (delivery) => {
      const first = !nacked
      nacked = true
      void (first ? delivery.nack(1) : delivery.ack())
    },
  })
  await eventually(() => expect(received.names().slice(-3)).toEqual(['a1', 'a2', 'a3']))
  await consumer.seek({ topic, consumer: 'one', to: 'earliest' })
  await consumer.rewind?.({ topic, consumer: 'one', sinceMs: 0 })
  await consumer.sweep()
  await relay.close()
  await consumer.close()
  await Promise.all([relayPool.end(), consumerPool.end()])
  await database.pool.query(`drop role relay_${database.name}, consumer_${database.name}`)
})
