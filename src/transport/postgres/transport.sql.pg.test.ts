import { randomUUID } from 'node:crypto'
import { expect, test } from 'vitest'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { rows } from '../../postgres/database.ts'
import { fromPg } from '../../postgres/from-pg.ts'
import { migrate } from '../../postgres/migrate.ts'
import { interleaved, publishAll } from '../../testing/transport-probe.ts'
import { postgresTransport } from './postgres-transport.ts'
import { fetchDeliveries, leaseLanes, transportTables } from './transport.sql.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
await migrate(db, { schema: 'waybill', service: 'transport' })
const tables = transportTables('waybill')

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
    const lanes = [{ lane: 0, tenure: leased?.tenure ?? '', floor, window: 100 }]
    const found = await rows(
      db,
      fetchDeliveries(tables, { subscription: id, lanes, inHand: [], room: 100, roomBytes: 1_000_000, empty: true }),
    )
    return found
      .filter((row) => row.seq !== null)
      .map(({ attributes }) => (JSON.parse(attributes ?? '') as { name: string }).name)
  }
  expect(await fetched('0')).toEqual(['a1', 'b1', 'a2', 'b2'])
  expect(await fetched(seq)).toEqual(['b1', 'b2'])
})
