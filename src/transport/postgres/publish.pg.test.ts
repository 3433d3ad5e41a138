import { expect, test } from 'vitest'
import { testDatabase } from '../../../test/setup/test-database.ts'
import type { Queryable, Tx } from '../../postgres/query/database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { migrate } from '../../postgres/schema/migrate.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { message, publish, statuses } from '../../testing/contract/probe.ts'
import type { PublishOutcome } from '../port/transport.ts'
import { postgresTransport } from './postgres-transport.ts'
import { publishMessages, transportTables } from './transport.sql.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
await migrate(db, { schema: 'waybill', service: 'transport' })

test('text that Postgres cannot store is rejected as the message’s own fault', async () => {
  const transport = postgresTransport({ db })
  const topic = 'publishing'
  const bad = [
    message(topic, 'zero\u0000', 'a'),
    message(topic, 'half \ud800', 'b'),
    { ...message(topic, 'n'), orderingKey: 'k\u0000' },
  ]
  const outcomes = await publish(transport, [...bad, message(topic, 'a2', 'a'), message(topic, 'good', 'c')])
  expect(statuses(outcomes)).toEqual(['rejected', 'rejected', 'rejected', 'not-sent', 'confirmed'])
})

test('a message waits for the subscriptions of its topic, and for no other', async () => {
  const transport = postgresTransport({ db })
  await transport.subscribe('mine', 'one')
  await transport.subscribe('other', 'one')
  await publish(transport, [message('mine', 'a1', 'a'), message('mine', 'free')])
  const { rows } = await db.query(
    `select t.name from waybill.transport_delivery d join waybill.transport_subscription s on s.id = d.subscription_id join waybill.transport_topic t on t.id = s.topic_id`,
  )
  expect(rows).toEqual([{ name: 'mine' }, { name: 'mine' }])
})

test('a publisher has a transaction id before it takes numbers, so that whoever skips knows of it', async () => {
  const { text, values } = publishMessages(transportTables('waybill'), 'publishing', [message('publishing', 'm')])
  let publishing: Promise<unknown> | undefined
  // From one place: in pg_stat_activity the wait is read later than the transaction id.
  const waiters = `
    select exists (select from pg_locks o where o.pid = w.pid and o.locktype = 'transactionid' and o.granted) as known
      from pg_locks w where w.relation = 'waybill.transport_message'::regclass and not w.granted`
  await transaction(db, async (tx) => {
    await tx.query('lock table waybill.transport_message in exclusive mode')
    const waiting = await eventually(async () => {
      // Its wait has an end; should nobody have looked by then, another one waits.
      publishing ??= db.query(text, values).catch(() => (publishing = undefined))
      const { rows } = await db.query(waiters)
      return rows.length > 0 && rows
    })
    expect(waiting).toEqual([{ known: true }])
  })
  await publishing
})

test('a topic that somebody has alone is unroutable after a while, and others are not', async () => {
  const transport = postgresTransport({ db })
  const sent = [message('taken', 'a1', 'a'), message('taken', 'a2', 'a'), message('free', 'b1', 'b')]
  const subscribing = async (tx: Tx): Promise<readonly PublishOutcome[]> => {
    await tx.query(`select waybill.transport_subscribe('taken', 'new', 4::smallint)`)
    return await publish(transport, sent)
  }
  const outcomes = await transaction(db, subscribing, { idleInTransactionTimeoutMs: 0 })
  expect(statuses(outcomes)).toEqual(['unroutable', 'unroutable', 'confirmed'])
  expect(outcomes[0]).toMatchObject({ error: { code: 'UNAVAILABLE', message: expect.stringContaining('topic taken') } })
  expect(statuses(await publish(transport, sent))).toEqual(['confirmed', 'confirmed', 'confirmed'])
})

test('a publish leaves the waits of the transaction that it is in as they were', async () => {
  const { text, values } = publishMessages(transportTables('waybill'), 'publishing', [message('publishing', 'm')])
  await transaction(db, async (tx) => {
    await tx.query(`set local lock_timeout = '12s'`)
    await tx.query(text, values)
    expect((await tx.query('show lock_timeout')).rows).toEqual([{ lock_timeout: '12s' }])
  })
})

test('a statement that the database refuses for one of its values is taken apart until the culprit stands alone', async () => {
  const topic = 'publishing'
  const picky: Queryable = {
    query: (text, values) =>
      values?.some((value) => String(value).includes('poison')) === true
        ? Promise.reject(Object.assign(new Error('bad value'), { code: '22021' }))
        : db.query(text, values),
  }
  const transport = postgresTransport({ db: picky })
  const outcomes = await publish(transport, [
    message(topic, 'a1', 'a'),
    message(topic, 'poison', 'b'),
    message(topic, 'b2', 'b'),
    message(topic, 'a2', 'a'),
  ])
  expect(statuses(outcomes)).toEqual(['confirmed', 'rejected', 'not-sent', 'confirmed'])
})

test('a caller whose database defaults to a stricter isolation is refused, not served wrongly', async () => {
  const { text, values } = publishMessages(transportTables('waybill'), 'publishing', [message('t', 'm')])
  await expect(transaction(db, (tx) => tx.query(text, values), { isolation: 'repeatable read' })).rejects.toThrow(
    'READ COMMITTED',
  )
})

test('options that cannot be used are refused by name', () => {
  expect(() => postgresTransport({ db, lanes: 3 })).toThrow('must be a power of two')
  expect(() => postgresTransport({ db, busyMs: 0 })).toThrow('postgresTransport.busyMs')
  expect(() => postgresTransport({ db, leaseMS: 3 } as never)).toThrow('Did you mean "leaseMs"')
  expect(() => postgresTransport({} as never)).toThrow('postgresTransport.db')
})
