import { expect, test } from 'vitest'
import {
  accounts,
  consumerFixture,
  deposited,
  message,
  published,
  removed,
  videos,
} from '../../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import type { OutgoingMessage } from '../../transport/port/transport.ts'
import type { Consumer } from '../consumer.ts'
import { pauseConsumer, resumeConsumer } from '../operate/pause.ts'

type Note = Parameters<Consumer['on']>[1]

const database = await testDatabase()
const db = fromPg(database.pool)

test('late is what comes after a newer version, not what a newer one follows in its own batch', async () => {
  const fixture = await consumerFixture(db)
  const balance = (version: number): OutgoingMessage =>
    message({ stream: accounts, type: 'BalanceSet', id: 'x', version }, { balance: version })
  const note = noteIn(fixture.schema)
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

test('late is also what falls into a gap of its own batch, behind a newer version that was seen before', async () => {
  const fixture = await consumerFixture(db)
  const stop = fixture.start(fixture.consumer({ lingerMs: 100 }).on(videos.VideoPublished, noteIn(fixture.schema)))
  await fixture.publish(published('a', 5))
  await fixture.settled(1)
  const again = [3, 6].map((version) => ({ ...published('a', version), orderingKey: 'p' }))
  await fixture.publish(...again)
  await fixture.settled(3)
  await stop()
  expect(await fixture.query(`select version::int, note from $schema.effect order by version`)).toEqual([
    { version: 3, note: 'late' },
    { version: 5, note: '' },
    { version: 6, note: '' },
  ])
  expect(await fixture.query(`select version::int from $schema.consumer_position`)).toEqual([{ version: 6 }])
})

test('not late is what waited, although the batch that it goes with has newer rows with a gap', async () => {
  const fixture = await consumerFixture(db)
  const table = `${fixture.schema}.video_view`
  const consumer = fixture.consumer({ streams: [videos], lingerMs: 100, pollMs: 600_000 })
  consumer.project(videos, { table, key: 'video_id', set: () => ({}) }).on(videos.VideoRemoved, noteIn(fixture.schema))
  const stop = fixture.start(consumer)
  const action = { db, schema: fixture.schema, consumer: 'catalog', aggregate: { type: 'video', id: 'a' }, actor: 'ada' }
  await fixture.publish(published('a', 1))
  await fixture.settled(1)
  await pauseConsumer(action)
  await fixture.publish(removed('a', 2))
  await eventually(async () => (await fixture.count('inbox_message')) === 1)
  await resumeConsumer(action)
  await fixture.publish(...[3, 5].map((version) => ({ ...published('a', version), orderingKey: undefined })))
  await fixture.settled(4)
  await stop()
  expect(await fixture.query(`select version::int, note from $schema.effect`)).toEqual([{ version: 2, note: '' }])
  expect(await fixture.query(`select version::int from $schema.consumer_position`)).toEqual([{ version: 5 }])
})

/** Writes down what it got, and whether it was late. */
function noteIn(schema: string): Note {
  return async (event, { tx, late }) => {
    await tx.query(`insert into ${schema}.effect (aggregate_id, version, note) values ($1, $2, $3)`, [
      event.aggregateId,
      String(event.version),
      late ? 'late' : '',
    ])
  }
}
