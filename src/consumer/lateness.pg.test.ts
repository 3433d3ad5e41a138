import { expect, test } from 'vitest'
import { accounts, consumerFixture, deposited, message, published, videos } from '../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../test/setup/test-database.ts'
import { fromPg } from '../postgres/from-pg.ts'
import type { OutgoingMessage } from '../transport/transport.ts'
import type { Consumer } from './consumer.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

test('late is what comes after a newer version, not what a newer one follows in its own batch', async () => {
  const fixture = await consumerFixture(db)
  const balance = (version: number): OutgoingMessage =>
    message({ stream: accounts, type: 'BalanceSet', id: 'x', version }, { balance: version })
  const note: Parameters<Consumer['on']>[1] = async (event, { tx, late }) => {
    await tx.query(`insert into ${fixture.schema}.effect (aggregate_id, version, note) values ($1, $2, $3)`, [
      event.aggregateId,
      String(event.version),
      late ? 'late' : '',
    ])
  }
  const consumer = fixture.consumer({ lingerMs: 100 }).on(videos.VideoPublished, note)
  const stop = fixture.start(consumer.on(accounts.Deposited, note).on(accounts.BalanceSet, note))
  const newest = published('a', 3)
  await fixture.publish(newest, balance(1), deposited('x', 2, 1))
  await fixture.settled(3)
  // In one batch: a duplicate that is newer, and two that were never seen.
  await fixture.publish(
    { ...published('a', 1), orderingKey: 'p' },
    { ...published('a', 2), orderingKey: 'p' },
    { ...newest, orderingKey: 'p' },
  )
  await fixture.publish(published('b', 1), published('b', 2))
  await fixture.settled(7)
  await stop()
  expect(
    await fixture.query(`select aggregate_id || ' ' || version as name, note from $schema.effect order by aggregate_id, version`),
  ).toEqual([
    { name: 'a 1', note: 'late' },
    { name: 'a 2', note: 'late' },
    { name: 'a 3', note: '' },
    { name: 'b 1', note: '' },
    { name: 'b 2', note: '' },
    { name: 'x 1', note: '' },
    { name: 'x 2', note: '' },
  ])
})
