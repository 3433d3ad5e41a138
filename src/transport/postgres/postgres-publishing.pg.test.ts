import { expect, test } from 'vitest'
import { testDatabase } from '../../../test/setup/test-database.ts'
import type { Queryable } from '../../postgres/database.ts'
import { fromPg } from '../../postgres/from-pg.ts'
import { migrate } from '../../postgres/migrate.ts'
import { transaction } from '../../postgres/transaction.ts'
import { message, publish, statuses } from '../../testing/transport-probe.ts'
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
  expect(() => postgresTransport({ db, leaseMS: 3 } as never)).toThrow('Did you mean "leaseMs"')
  expect(() => postgresTransport({} as never)).toThrow('postgresTransport.db')
})
