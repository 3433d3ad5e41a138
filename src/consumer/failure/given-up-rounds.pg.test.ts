/** A round that is given up takes its lines with it: nothing overtakes what comes again. */
import pg from 'pg'
import { afterAll, expect, test } from 'vitest'
import { accounts, consumerFixture, deposited, type ConsumerFixture } from '../../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import type { Database } from '../../postgres/query/database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import type { Consumer } from '../consumer.ts'
import type { ConsumerOptions } from '../model/consumer-options.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

/** Begins wherever an aggregate begins, so whoever overtakes takes the other's effect away. One event a batch. */
function ledger(
  fixture: ConsumerFixture,
  before: (version: bigint) => void | Promise<void> = () => undefined,
  options: Partial<ConsumerOptions> = {},
): Consumer {
  return fixture.consumer({ deltaStart: 'any', batchSize: 1, ...options }).on(accounts.Deposited, async (event, { tx }) => {
    await before(event.version)
    await tx.query(`insert into ${fixture.schema}.effect (version) values ($1)`, [String(event.version)])
  })
}

const versions = async (fixture: ConsumerFixture): Promise<readonly number[]> =>
  (await fixture.query<{ version: number }>('select version::int from $schema.effect order by at')).map(({ version }) => version)

test('an event that is given up at a stop comes again before the one that was in line behind it', async () => {
  const fixture = await consumerFixture(db)
  const stopping = new AbortController()
  const first = ledger(fixture, async (version) => {
    if (version !== 1n) return
    await eventually(() => fixture.broker.deliveries.length === 2)
    stopping.abort()
    throw Object.assign(new Error('deadlock detected'), { code: '40P01' })
  })
  await fixture.publish(deposited('x', 1, 1), deposited('x', 2, 1))
  await first.run({ stopping: stopping.signal, aborting: new AbortController().signal })
  const stop = fixture.start(ledger(fixture))
  await eventually(async () => expect(await versions(fixture)).toEqual([1, 2]))
  await stop()
})

test('an event that can be neither applied nor buried keeps the one behind it in line', async () => {
  const fixture = await consumerFixture(db)
  await fixture.query(`alter table $schema.dead_letter add constraint refused check (reason <> 'failed')`)
  let broken = true
  const consumer = ledger(
    fixture,
    async (version) => {
      if (version !== 1n || !broken) return
      await eventually(() => fixture.broker.deliveries.length >= 2)
      throw new Error('broken')
    },
    { maxAttempts: 1 },
  )
  await fixture.publish(deposited('x', 1, 1), deposited('x', 2, 1))
  const stop = fixture.start(consumer)
  await eventually(() => fixture.heard('consumer.retried').length >= 3)
  expect(await versions(fixture)).toEqual([])
  broken = false
  await eventually(async () => expect(await versions(fixture)).toEqual([1, 2]))
  await stop()
})

const readOnlyPool = new pg.Pool({ connectionString: database.directUrl, options: '-c default_transaction_read_only=on' })
afterAll(() => readOnlyPool.end())

test.each(['direct', 'stored'] as const)(
  'while the database takes no writes, nothing is given back to the broker and nobody is charged (%s)',
  async (mode) => {
    const fixture = await consumerFixture(db)
    const readOnly = fromPg(readOnlyPool)
    let isReadOnly = false
    const failingOver: Database = {
      query: (text, values) => (isReadOnly ? readOnly : db).query(text, values),
      attempt: (options, work) => (isReadOnly ? readOnly : db).attempt(options, work),
    }
    const stop = fixture.start(ledger(fixture, undefined, { db: failingOver, mode, maxAttempts: 1 }))
    await eventually(() => fixture.heard('consumer.in-flight').length > 0)
    isReadOnly = true
    await fixture.publish(deposited('x', 1, 1), deposited('x', 2, 1))
    await eventually(() => fixture.heard('consumer.retried').length >= 3)
    isReadOnly = false
    await eventually(async () => expect(await versions(fixture)).toEqual([1, 2]))
    await stop()
    expect(fixture.heard('consumer.retried').every(({ error }) => error.includes('read-only'))).toBe(true)
    expect(fixture.broker.deliveries).toHaveLength(2)
    expect(await fixture.count('delivery_attempt', 'attempts > 0')).toBe(0)
  },
)

test('an outage while an event is given back behind its predecessor gives up no round', async () => {
  const fixture = await consumerFixture(db)
  let outages = 1
  const flickering: Database = {
    ...db,
    query: async (text, values) => {
      if (!text.includes('set unfinished = 0, finished_at') || outages === 0) return await db.query(text, values)
      outages -= 1
      throw Object.assign(new Error('read ECONNRESET'), { code: 'ECONNRESET' })
    },
  }
  // In its batch, and alone.
  let failures = 2
  const consumer = ledger(
    fixture,
    (version) => {
      if (version === 1n && (failures -= 1) >= 0) throw new Error('broken')
    },
    { db: flickering, batchSize: 2, lingerMs: 50 },
  )
  await fixture.publish(deposited('x', 1, 1), deposited('x', 2, 1))
  const stop = fixture.start(consumer)
  await eventually(async () => (await fixture.count('inbox')) === 2)
  await stop()
  expect([outages, fixture.heard('consumer.retried').map(({ count }) => count)]).toEqual([0, [1]])
  expect(await versions(fixture)).toEqual([1, 2])
})
