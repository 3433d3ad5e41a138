import { afterEach, expect, test } from 'vitest'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { message, publishAll } from '../../testing/contract/probe.ts'
import { openOperation } from '../../outbox/backfill/operation.ts'
import { connect, type Connection } from '../../postgres/connect.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { parseMigration, shippedMigrations } from '../../postgres/schema/migration-files.ts'
import { migrate } from '../../postgres/schema/migrate.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { postgresTransport } from './postgres-transport.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
const names = { schema: 'waybill', service: 'locks' }
await migrate(db, names)

const opened: { close(): Promise<void> }[] = []
afterEach(async () => {
  for (const each of opened.splice(0)) await each.close()
})

function opening<Thing extends { close(): Promise<void> }>(thing: Thing): Thing {
  opened.push(thing)
  return thing
}

async function waiting(): Promise<number> {
  const { rows } = await db.query(
    `select count(*)::int as n from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`,
  )
  return (rows[0] as { n: number }).n
}

/** Two connections of a login that is a member of nothing. */
async function stranger(): Promise<readonly [Connection, Connection]> {
  const name = `stranger_${database.name}`
  await db.query(`create role ${name} login`)
  const url = new URL(database.url)
  url.username = name
  const its = [connect({ url: url.href, max: 1 }), connect({ url: url.href, max: 1 })] as const
  opened.push({
    close: async () => {
      for (const each of its) await each.close()
      await db.query(`drop role ${name}`)
    },
  })
  return its
}

test('a login without rights holds no lock that a publisher, a subscriber, a sweep, a backfill or a migration waits for', async () => {
  const transport = opening(postgresTransport({ db, retentionMs: 0 }))
  const [its, other] = await stranger()
  await transport.subscribe('held.events', 'one')
  await its.query('begin')
  for (const key of ['waybill.transport.held.events', 'waybill.migrate.waybill', 'waybill backfill waybill orders'])
    await its.query('select pg_advisory_lock(hashtextextended($1, 0))', [key])
  const { rows } = await db.query(
    `select oid::regclass::text as relation from pg_class where relnamespace = 'waybill'::regnamespace and relkind in ('r', 'v')`,
  )
  expect(rows.length).toBeGreaterThan(30)
  for (const { relation } of rows as { relation: string }[]) {
    for (const attempt of [`lock table ${relation} in access share mode`, `select from ${relation} for key share`]) {
      await expect(other.query(`begin; ${attempt}`)).rejects.toMatchObject({ code: '42501' })
      await other.query('rollback')
    }
  }
  await publishAll(transport, [message('held.events', 'one')])
  await transport.subscribe('held.events', 'two')
  await transport.seek({ topic: 'held.events', consumer: 'one', to: 'earliest' })
  await transport.sweep()
  const operation = { schema: 'waybill', name: 'orders', source: 's', actor: 'ada', mode: 'new', measure: async () => 1 } as const
  expect(await openOperation(db, operation)).toMatchObject({ isFinished: false })
  const number = shippedMigrations().length + 1
  const next = parseMigration(`${String(number).padStart(4, '0')}_add_more.sql`, 'create table :schema.more (id int);')
  expect(await migrate(db, { ...names, migrations: [...shippedMigrations(), next], waitMs: 0 })).toMatchObject({
    applied: [next.name],
  })
  expect(await migrate(db, { schema: 'fresh', service: 'locks', waitMs: 0 })).toMatchObject({ newer: [] })
  await its.query('rollback')
})

test('a subscriber that waits for a topic is not overtaken by publishers that come later', async () => {
  const transport = opening(postgresTransport({ db }))
  const topic = 'fair.events'
  await publishAll(transport, [message(topic, 'first')])
  const publish = 'select from waybill.transport_publish($1, array[null], array[$2::jsonb], array[$3::bytea], array[1])'
  let all: Promise<unknown>[] = []
  await transaction(db, async (tx) => {
    await tx.query(publish, [topic, '{}', '\\x00'])
    all = [db.query(`select waybill.transport_subscribe($1, 'late', 4::smallint)`, [topic])]
    await eventually(async () => (await waiting()) === 1)
    const later = publishAll(transport, [message(topic, 'behind')])
    all.push(later)
    // It shares the row with the first publisher, and waits all the same: for the subscriber.
    await Promise.race([later.then(() => expect.unreachable('It came first.')), eventually(async () => (await waiting()) === 2)])
  })
  await Promise.all(all)
  const { rows } = await db.query(
    `select count(*)::int as n from waybill.transport_delivery d join waybill.transport_subscription s on s.id = d.subscription_id where s.consumer = 'late'`,
  )
  expect(rows).toEqual([{ n: 3 }])
})

test('publishers of one topic do not wait for each other', async () => {
  const publish = `select from waybill.transport_publish('shared.events', array[null], array['{}'::jsonb], array['\\x00'::bytea], array[1])`
  await db.query(publish)
  await transaction(db, async (first) => {
    await first.query(publish)
    await transaction(db, (second) => second.query(publish), { lockTimeoutMs: 1 })
    expect(await waiting()).toBe(0)
  })
})
