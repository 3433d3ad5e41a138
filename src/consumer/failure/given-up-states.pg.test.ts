import { expect, test } from 'vitest'
import { accounts, consumerFixture, deposited, message, type ConsumerFixture } from '../../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import type { Consumer } from '../consumer.ts'
import type { ConsumerOptions } from '../model/consumer-options.ts'
import { discardDeadLetters } from '../operate/discard.ts'
import { discard } from '../model/handler.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

/** Writes down every deposit. */
function ledger(fixture: ConsumerFixture, options?: Partial<ConsumerOptions>): Consumer {
  return fixture.consumer({ maxAttempts: 1, ...options }).on(accounts.Deposited, async (event, { tx }) => {
    const values = [event.id, event.aggregateId, String(event.version)]
    await tx.query(`insert into ${fixture.schema}.effect (event_id, aggregate_id, version) values ($1, $2, $3)`, values)
  })
}

const effects = async (fixture: ConsumerFixture): Promise<readonly string[]> =>
  (await fixture.query<{ name: string }>(`select aggregate_id || ' ' || version as name from $schema.effect order by at`)).map(
    ({ name }) => name,
  )

const balanceSet = (version: number): ReturnType<typeof message> =>
  message({ stream: accounts, type: 'BalanceSet', id: 'x', version }, { balance: 1 })

test('a discarded state that holds its aggregate loses none of the deltas before it', async () => {
  const fixture = await consumerFixture(db)
  const snapshot = { ...deposited('x', 3, 0), body: Buffer.from('"unreadable"') }
  const attributes = { ...snapshot.attributes, event_type: 'BalanceSet' }
  const consumer = ledger(fixture).on(accounts.BalanceSet, () => undefined)
  const stop = fixture.start(consumer)
  await fixture.publish({ ...snapshot, attributes, orderingKey: 'early' })
  await eventually(async () => (await fixture.count('dead_letter')) === 1)
  await fixture.publish(deposited('x', 1, 1), deposited('x', 2, 1), deposited('x', 4, 1))
  await eventually(async () => (await fixture.count('inbox_message')) === 3)
  await discardDeadLetters({ db, schema: fixture.schema, actor: 'ada', filter: { consumer: 'catalog' } })
  await eventually(async () => (await fixture.count('effect')) === 3)
  await stop()
  expect(await effects(fixture)).toEqual(['x 1', 'x 2', 'x 4'])
})

test.each(['its handler discards it', 'it is passed over', 'an operator discards it'])(
  'a snapshot that is given up lets everything behind it go on, where nothing before it ever comes (%s)',
  async (how) => {
    const fixture = await consumerFixture(db)
    const options = { onDead: how === 'it is passed over' ? 'pass' : 'hold' } as const
    const consumer = ledger(fixture, options).on(accounts.BalanceSet, () => {
      throw how === 'its handler discards it' ? discard('not mine') : new Error('broken')
    })
    const stop = fixture.start(consumer)
    await fixture.publish(balanceSet(10))
    await eventually(async () => (await fixture.count('dead_letter')) === 1)
    await fixture.publish(deposited('x', 11, 1))
    if (how === 'an operator discards it') {
      await eventually(async () => (await fixture.count('inbox_message')) === 1)
      await discardDeadLetters({ db, schema: fixture.schema, actor: 'ada', filter: { all: true } })
    }
    await eventually(async () => (await fixture.count('effect')) === 1)
    await stop()
    expect(await effects(fixture)).toEqual(['x 11'])
    expect(await fixture.query('select version::int, waiting, held_by from $schema.consumer_position')).toEqual([
      { version: 11, waiting: 0, held_by: null },
    ])
  },
)

test('a state that is passed over loses none of the deltas before it that wait', async () => {
  const fixture = await consumerFixture(db)
  const consumer = ledger(fixture, { onDead: 'pass' }).on(accounts.BalanceSet, () => {
    throw new Error('broken')
  })
  const stop = fixture.start(consumer)
  await fixture.publish(deposited('x', 1, 1), deposited('x', 3, 1))
  await eventually(async () => (await fixture.count('inbox_message')) === 1)
  await fixture.publish(balanceSet(4))
  await eventually(async () => (await fixture.count('dead_letter')) === 1)
  await fixture.publish(deposited('x', 5, 1), deposited('x', 2, 1))
  await eventually(async () => (await fixture.count('effect')) === 4)
  await stop()
  expect(await effects(fixture)).toEqual(['x 1', 'x 2', 'x 3', 'x 5'])
})

test('a state that is passed over in stored mode loses none of the deltas before it that are stored', async () => {
  const fixture = await consumerFixture(db)
  const begun = Promise.withResolvers<void>()
  const gate = Promise.withResolvers<void>()
  const consumer = ledger(fixture, { onDead: 'pass', mode: 'stored' }).on(accounts.BalanceSet, async () => {
    begun.resolve()
    await gate.promise
    throw new Error('broken')
  })
  const stop = fixture.start(consumer)
  await fixture.publish(deposited('x', 1, 1))
  await eventually(async () => (await fixture.count('effect')) === 1)
  await fixture.publish({ ...balanceSet(4), orderingKey: 'early' })
  await begun.promise
  await fixture.publish(deposited('x', 2, 1), deposited('x', 3, 1), deposited('x', 5, 1))
  await eventually(async () => (await fixture.count('inbox_message')) === 4)
  gate.resolve()
  await eventually(async () => (await fixture.count('inbox_message')) === 0)
  await stop()
  expect(await effects(fixture)).toEqual(['x 1', 'x 2', 'x 3', 'x 5'])
})

test('a state that an operator discards in stored mode loses none of the deltas before it that are stored', async () => {
  const fixture = await consumerFixture(db)
  const consumer = (): Consumer =>
    ledger(fixture, { mode: 'stored' }).on(accounts.BalanceSet, () => {
      throw new Error('broken')
    })
  const stop = fixture.start(consumer())
  await fixture.publish({ ...balanceSet(4), orderingKey: 'early' })
  await eventually(async () => (await fixture.count('dead_letter')) === 1)
  await fixture.publish(deposited('x', 1, 1), deposited('x', 2, 1), deposited('x', 3, 1))
  await eventually(async () => (await fixture.count('inbox_message', 'state = 4')) === 3)
  await stop()
  // As if nobody had looked at them yet.
  await fixture.query('update $schema.inbox_message set state = 0')
  await fixture.query('update $schema.consumer_position set waiting = 0')
  await discardDeadLetters({ db, schema: fixture.schema, actor: 'ada', filter: { all: true } })
  const again = fixture.start(consumer())
  await eventually(async () => (await fixture.count('effect')) === 3)
  await again()
  expect(await effects(fixture)).toEqual(['x 1', 'x 2', 'x 3'])
})
