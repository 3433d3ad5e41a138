import { randomUUID } from 'node:crypto'
import { expect, test } from 'vitest'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { rows } from '../../postgres/query/database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { migrate } from '../../postgres/schema/migrate.ts'
import { interleaved, publishAll } from '../../testing/contract/probe.ts'
import { postgresTransport } from './postgres-transport.ts'
import { countUnsettled, fetchDeliveries, leaseLanes, transportTables } from './transport.sql.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
await migrate(db, { schema: 'waybill', service: 'transport' })
const tables = transportTables('waybill')
const roomy = { window: 100, decided: '0', inHand: [], room: 100, roomBytes: 1_000_000, empty: true }

test('a key whose head was skipped because it rested waits for it, also when the rest ends meanwhile', async () => {
  const topic = 'skipped'
  const transport = postgresTransport({ db })
  const { id } = (await db.query(`select waybill.transport_subscribe($1, 'one', 1::smallint) as id`, [topic])).rows[0] as {
    id: number
  }
  await publishAll(transport, interleaved(topic, ['a', 'b'], 2))
  const lease = leaseLanes(tables, { subscription: id, receiver: randomUUID(), leaseMs: 60_000, leaving: [], stays: true })
  const [leased] = await rows(db, lease)
  const { seq } = (
    await db.query(
      `update waybill.transport_delivery set rest_until = clock_timestamp() where subscription_id = $1 and seq = (select min(seq) from waybill.transport_delivery where subscription_id = $1) returning seq::text as seq`,
      [id],
    )
  ).rows[0] as { seq: string }
  const fetched = async (floor: string): Promise<readonly unknown[]> => {
    const lanes = [{ lane: 0, tenure: leased?.tenure ?? '', floor }]
    const found = await rows(db, fetchDeliveries(tables, { ...roomy, subscription: id, lanes }))
    return found
      .filter((row) => row.seq !== null)
      .map(({ attributes }) => (JSON.parse(attributes ?? '') as { name: string }).name)
  }
  expect(await fetched('0')).toEqual(['a1', 'b1', 'a2', 'b2'])
  expect(await fetched(seq)).toEqual(['b1', 'b2'])
})

test('what is not settled is counted up to a bound, for one subscription', async () => {
  await db.query(`insert into waybill.transport_delivery (subscription_id, lane, seq, bytes)
                  select 900 + n % 2, n % 3, n, 1 from generate_series(1, 60) as n`)
  const counted = async (bound: number) => await rows(db, countUnsettled(tables, 900, bound))
  expect(await counted(30)).toEqual([{ messages: 30 }])
  expect(await counted(31)).toEqual([{ messages: 30 }])
  expect(await counted(20)).toEqual([{ messages: 20 }])
})

/** A subscription with four lanes, and the lanes and shares that a receiver of it is given. */
async function fourLanes(topic: string) {
  const { rows: made } = await db.query(`select waybill.transport_subscribe($1, 'one', 4::smallint) as id`, [topic])
  const { id } = made[0] as { id: number }
  const lease = async (receiver: string, leaseMs: number): Promise<readonly (readonly [lane: number, share: number])[]> => {
    const call = { subscription: id, receiver, leaseMs, leaving: [], stays: true }
    return (await rows(db, leaseLanes(tables, call))).map(({ lane, share }) => [lane, share] as const)
  }
  const known = async (): Promise<number> =>
    (await db.query('select from waybill.transport_receiver where subscription_id = $1', [id])).rows.length
  return { id, lease, known, all: [0, 1, 2, 3].map((lane) => [lane, 4]) }
}

test('a receiver whose own lease is short takes no lane of a longer lease, unless that is from a future that it does not reach', async () => {
  const { id, lease, known, all } = await fourLanes('lengths')
  const [long, short] = [randomUUID(), randomUUID()]
  expect(await lease(long, 30_000)).toEqual(all)
  // Longer ago than the other's lease, and than what that takes for dead for good.
  await db.query(`update waybill.transport_receiver set seen_at = seen_at - interval '25 seconds' where subscription_id = $1`, [
    id,
  ])
  expect(await lease(short, 1_000)).toEqual([])
  expect(await known()).toBe(2)
  expect((await lease(long, 30_000)).map(([, share]) => share)).toEqual([2, 2, 2, 2])

  await db.query(`update waybill.transport_receiver set seen_at = seen_at - interval '5 seconds' where subscription_id = $1`, [
    id,
  ])
  // What a clock that steps back by an hour makes of the leases.
  await db.query(
    `update waybill.transport_lane set locked_at = locked_at + interval '1 hour', lock_expires_at = lock_expires_at + interval '1 hour' where subscription_id = $1`,
    [id],
  )
  expect(await lease(short, 1_000)).toEqual(all)
})

test('whoever holds a running lease counts as alive, however rare its heartbeats are', async () => {
  const { id, lease, all } = await fourLanes('rare')
  const [long, short] = [randomUUID(), randomUUID()]
  expect(await lease(long, 30_000)).toEqual(all)
  await db.query(
    `update waybill.transport_lane set locked_by = null, lock_expires_at = null where subscription_id = $1 and lane > 0`,
    [id],
  )
  await db.query(`update waybill.transport_receiver set seen_at = seen_at - interval '5 seconds' where subscription_id = $1`, [
    id,
  ])
  expect(await lease(short, 1_000)).toEqual([1, 2].map((lane) => [lane, 2]))
})

test('a lease from before its beginning was stored is not taken from its owner, and holds no lane for ever', async () => {
  const { id, lease, all } = await fourLanes('unmeasured')
  const expireIn = async (minutes: number): Promise<void> =>
    void (await db.query(
      `update waybill.transport_lane set locked_at = null, lock_expires_at = clock_timestamp() + $2 * interval '1 minute' where subscription_id = $1`,
      [id, minutes],
    ))
  expect(await lease(randomUUID(), 600_000)).toEqual(all)
  await expireIn(10)
  const short = randomUUID()
  expect(await lease(short, 1_000)).toEqual([])
  await expireIn(60)
  expect((await lease(short, 1_000)).map(([lane]) => lane)).not.toEqual([])
})

test('a receiver that died before the clock stepped back does not count as alive', async () => {
  const { id, lease, known, all } = await fourLanes('stepped')
  await db.query(
    `insert into waybill.transport_receiver (subscription_id, receiver, seen_at) values ($1, $2, clock_timestamp() + interval '1 hour')`,
    [id, randomUUID()],
  )
  expect(await lease(randomUUID(), 5_000)).toEqual(all)
  expect(await known()).toBe(1)
})

test('a rest that is longer than any is over: the clock stepped back', async () => {
  const topic = 'rested'
  const transport = postgresTransport({ db })
  const { id } = (await db.query(`select waybill.transport_subscribe($1, 'one', 1::smallint) as id`, [topic])).rows[0] as {
    id: number
  }
  await publishAll(transport, interleaved(topic, ['a', 'b'], 2))
  const call = { subscription: id, receiver: randomUUID(), leaseMs: 60_000, leaving: [], stays: true }
  const lanes = (await rows(db, leaseLanes(tables, call))).map((lane) => ({ ...lane, floor: '0' }))
  const rest = async (hours: number): Promise<readonly (string | null)[]> => {
    await db.query(
      `update waybill.transport_delivery set rest_until = clock_timestamp() + $2 * interval '1 hour' where subscription_id = $1 and seq = (select min(seq) from waybill.transport_delivery where subscription_id = $1)`,
      [id, hours],
    )
    const fetched = await rows(db, fetchDeliveries(tables, { ...roomy, subscription: id, lanes }))
    return fetched.filter(({ seq }) => seq !== null).map(({ body }) => Buffer.from(body ?? []).toString())
  }
  expect(await rest(23)).toEqual(['b1', 'b2'])
  expect(await rest(25)).toEqual(['a1', 'b1', 'a2', 'b2'])
})

test('a message is stored for the subscriptions of its own topic alone', async () => {
  const transport = postgresTransport({ db })
  await transport.subscribe('one.events', 'one')
  await transport.subscribe('two.events', 'two')
  await publishAll(transport, interleaved('one.events', ['a'], 3))
  await publishAll(transport, interleaved('two.events', ['a'], 2))
  const { rows: waiting } = await db.query(
    `select s.consumer, count(*)::int as n from waybill.transport_delivery d join waybill.transport_subscription s on s.id = d.subscription_id
      where s.consumer in ('one', 'two') and s.topic_id in (select id from waybill.transport_topic where name in ('one.events', 'two.events'))
      group by 1 order by 1`,
  )
  expect(waiting).toEqual([
    { consumer: 'one', n: 3 },
    { consumer: 'two', n: 2 },
  ])
})
