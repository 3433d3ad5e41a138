/**
 * Retention of the Postgres transport, in a database of its own: on tables without statistics the planner once chose a plan that
 * took one message of a key for all of them.
 */
import { afterAll, expect, test } from 'vitest'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { fromPg } from '../../postgres/from-pg.ts'
import { migrate } from '../../postgres/migrate.ts'
import { eventually } from '../../testing/eventually.ts'
import { interleaved, probe, publishAll } from '../../testing/transport-probe.ts'
import { postgresTransport, type PostgresTransport } from './postgres-transport.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
await migrate(db, { schema: 'waybill', service: 'transport' })

const opened: PostgresTransport[] = []
afterAll(async () => {
  for (const transport of opened) await transport.close()
})

function open(options: Partial<Parameters<typeof postgresTransport>[0]>): PostgresTransport {
  const transport = postgresTransport({ db, leaseMs: 600, ...options })
  opened.push(transport)
  return transport
}

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
  const stored = async (): Promise<number> => {
    const { rows } = await db.query(
      `select count(*)::int as n from waybill.transport_message m join waybill.transport_topic t on t.id = m.topic_id where t.name = $1`,
      [topic],
    )
    return (rows[0] as { n: number }).n
  }
  await transport.sweep()
  expect(await stored()).toBe(10)
  expect(await open({ retentionMs: 3_600_000 }).sweep()).toBe(0)
  const slow = await probe(transport, {
    topic,
    consumer: 'slow',
    on: (delivery) => void (delivery.message.attributes['name'] === 'a5' ? undefined : delivery.ack()),
  })
  await slow.until(10)
  await eventually(async () => {
    await transport.sweep()
    return (await stored()) === 1
  })
  await transport.unsubscribe(topic, 'slow')
  await transport.sweep()
  expect(await stored()).toBe(0)
})
