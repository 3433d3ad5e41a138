/** What rests in the Postgres transport is skipped without ever passing over a publisher that has not committed yet. */
import { randomUUID } from 'node:crypto'
import { afterEach, expect, test } from 'vitest'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { one, rows, type Queryable } from '../../postgres/query/database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { migrate } from '../../postgres/schema/migrate.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { interleaved, message, probe, publishAll } from '../../testing/contract/probe.ts'
import { postgresTransport, type PostgresTransport } from './postgres-transport.ts'
import { Horizon } from './visibility-horizon.ts'
import { fetchDeliveries, leaseLanes, publishMessages, readHorizon, transportTables } from './transport.sql.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
await migrate(db, { schema: 'waybill', service: 'transport' })
const tables = transportTables('waybill')

let opened: PostgresTransport[] = []

afterEach(async () => {
  for (const transport of opened) await transport.close()
  opened = []
})

/** A transport of one lane, and how often its receivers have looked for messages and at the horizon. */
function open(): { readonly transport: PostgresTransport; readonly looks: { fetches: number; horizons: number } } {
  const looks = { fetches: 0, horizons: 0 }
  const watched: Queryable = {
    query: async (text, values) => {
      const result = await db.query(text, values)
      if (text.includes('published_at_ms')) looks.fetches += 1
      if (text.includes('transport_horizon')) looks.horizons += 1
      return result
    },
  }
  const transport = postgresTransport({ db: watched, leaseMs: 60_000, lanes: 1 })
  opened.push(transport)
  return { transport, looks }
}

test('a publisher that commits late beside a key that rests is not overtaken by its own next message', async () => {
  const { transport, looks } = open()
  const topic = 'late.events'
  const received = await probe(transport, {
    topic,
    on: (delivery) => void (delivery.message.orderingKey === 'resting' ? delivery.nack(60_000) : delivery.ack()),
  })
  await publishAll(transport, [message(topic, 'resting1', 'resting')])
  await eventually(async () => {
    const { rows } = await db.query('select from waybill.transport_delivery where rest_until is not null')
    return rows.length === 1
  })
  const { text, values } = publishMessages(tables, topic, [message(topic, 'late1', 'late')])
  await transaction(db, async (tx) => {
    await tx.query(text, values)
    await publishAll(transport, [message(topic, 'resting2', 'resting')])
    const before = { ...looks }
    await eventually(() => looks.horizons >= before.horizons + 2)
    await eventually(() => looks.fetches >= before.fetches + 3)
  })
  await publishAll(transport, [message(topic, 'late2', 'late')])
  await received.until(3)
  expect(received.ofKey('late')).toEqual(['late1', 'late2'])
})

test('nothing is decided while a publisher that has a number is open, also if it is the youngest of all', async () => {
  const horizon = new Horizon()
  const look = async (): Promise<bigint> => {
    horizon.see(await one(db, readHorizon(tables)), 0)
    return BigInt(horizon.decided)
  }
  const { text, values } = publishMessages(tables, 'open.events', [message('open.events', 'open')])
  const number = await transaction(db, async (tx) => {
    const [{ seq }] = (await tx.query(text, values)).rows as [{ seq: string }]
    for (let looks = 0; looks < 3; looks += 1) expect(await look()).toBeLessThan(BigInt(seq))
    return BigInt(seq)
  })
  await eventually(async () => expect(await look()).toBeGreaterThanOrEqual(number))
})

test('a key that rests is skipped as far as all is decided, and the scan does not end there', async () => {
  const { transport } = open()
  const topic = 'skipped.events'
  const { id } = (await db.query(`select waybill.transport_subscribe($1, 'one', 1::smallint) as id`, [topic])).rows[0] as {
    id: number
  }
  await publishAll(transport, interleaved(topic, ['rests'], 5))
  await publishAll(transport, [message(topic, 'free1', 'free')])
  const call = { subscription: id, receiver: randomUUID(), leaseMs: 60_000, leaving: [], stays: true }
  const [leased] = await rows(db, leaseLanes(tables, call))
  const { rows: found } = await db.query(
    'select seq::int as seq from waybill.transport_delivery where subscription_id = $1 order by seq',
    [id],
  )
  const seqs = found.map((row) => (row as { seq: number }).seq)
  await db.query(`update waybill.transport_delivery set rest_until = clock_timestamp() + interval '1 hour' where seq = $1`, [
    seqs[0] ?? 0,
  ])
  const look = async (decided: number, floor: number): Promise<readonly unknown[]> => {
    const lanes = [{ lane: 0, tenure: leased?.tenure ?? '', floor: `${floor}` }]
    const fetched = await rows(
      db,
      fetchDeliveries(tables, {
        subscription: id,
        lanes,
        window: 1,
        decided: `${decided}`,
        inHand: [],
        room: 1,
        roomBytes: 1_000,
        empty: true,
      }),
    )
    return [fetched[0]?.floor, fetched[0]?.rests, ...fetched.slice(1).map(({ seq }) => seq)]
  }
  const free = String(seqs[5])
  expect(await look(0, 0)).toEqual(['0', true, free])
  expect(await look(seqs[2] ?? 0, 0)).toEqual([String(seqs[2]), true, free])
  expect(await look(1_000_000, 0)).toEqual([String(Number(free) - 1), true, free])
  expect(await look(0, seqs[2] ?? 0)).toEqual([String(seqs[2]), true, free])
  await db.query('delete from waybill.transport_delivery where seq = $1', [Number(free)])
  expect(await look(1_000_000, 0)).toEqual(['1000000', true])
})

test('a nack delays by a day at most, so that a longer rest can be told from a clock that stepped back', async () => {
  const { transport } = open()
  const topic = 'delayed.events'
  const received = await probe(transport, { topic, on: () => undefined })
  await publishAll(transport, [message(topic, 'delayed')])
  await received.until(1)
  await received.deliveries[0]?.nack(10 * 86_400_000)
  const { rows: found } = await db.query(
    `select rest_until > clock_timestamp() + interval '23 hours' and rest_until < clock_timestamp() + interval '1 day' as capped
       from waybill.transport_delivery d join waybill.transport_message m on m.seq = d.seq and m.attributes ->> 'name' = 'delayed'`,
  )
  expect(found).toEqual([{ capped: true }])
})
