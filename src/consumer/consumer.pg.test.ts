import { expect, test } from 'vitest'
import { consumerFixture, deposited, published, removed, videos, accounts } from '../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../test/setup/test-database.ts'
import { fromPg } from '../postgres/adapters/from-pg.ts'
import { eventually } from '../testing/kit/eventually.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

test('a projection shows the newest version, and a tombstone that came early keeps older events out', async () => {
  const fixture = await consumerFixture(db)
  const consumer = fixture
    .consumer()
    .project(videos, { table: `${fixture.schema}.video_view`, key: 'video_id', set: (e) => ({ title: e.data.title }) })
  const stop = fixture.start(consumer)
  await fixture.publish(published('a', 1), published('a', 2), removed('b', 3), published('b', 2), published('c', 1))
  await eventually(async () => (await fixture.count('inbox')) === 5)
  await stop()
  expect(
    await fixture.query(
      'select video_id, title, version::int, deleted_at is not null as gone from $schema.video_view order by 1',
    ),
  ).toEqual([
    { video_id: 'a', title: 'a 2', version: 2, gone: false },
    { video_id: 'b', title: null, version: 3, gone: true },
    { video_id: 'c', title: 'c 1', version: 1, gone: false },
  ])
})

test('deltas apply in the order of versions, whatever order they come in, each once', async () => {
  const fixture = await consumerFixture(db)
  const consumer = fixture.consumer().on(accounts.Deposited, async (event, { tx }) => {
    await tx.query(`insert into ${fixture.schema}.effect (event_id, aggregate_id, version) values ($1, $2, $3)`, [
      event.id,
      event.aggregateId,
      String(event.version),
    ])
  })
  const stop = fixture.start(consumer)
  const [one, two, three] = [deposited('x', 1, 5), deposited('x', 2, 6), deposited('x', 3, 7)]
  await fixture.publish({ ...three, orderingKey: 'other' }, { ...three, orderingKey: 'third' })
  await eventually(async () => (await fixture.count('inbox_message')) === 1)
  await fixture.publish({ ...two, orderingKey: 'another' })
  await eventually(async () => (await fixture.count('inbox_message')) === 2)
  expect(await fixture.count('inbox')).toBe(0)
  await fixture.publish(one, one)
  await eventually(async () => (await fixture.count('inbox')) === 3)
  await stop()
  expect(await fixture.query('select version::int from $schema.effect order by at')).toEqual([
    { version: 1 },
    { version: 2 },
    { version: 3 },
  ])
  expect(await fixture.query('select version::int, waiting, held_by from $schema.consumer_position')).toEqual([
    { version: 3, waiting: 0, held_by: null },
  ])
  expect(await fixture.count('inbox_message')).toBe(0)
})
