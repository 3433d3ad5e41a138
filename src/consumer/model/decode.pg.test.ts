import { expect, test } from 'vitest'
import { consumerFixture, published, videos } from '../../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { eventually } from '../../testing/kit/eventually.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

test('what a handler does to its event is not seen by the next run of the batch', async () => {
  const fixture = await consumerFixture(db)
  let runs = 0
  const consumer = fixture
    .consumer({ maxAttempts: 1, lingerMs: 200 })
    .project(videos, { table: `${fixture.schema}.video_view`, key: 'video_id', set: (e) => ({ title: e.data.title }) })
    .on(videos.VideoPublished, async (event, { tx }) => {
      if (event.data.title === 'poison') throw new Error('I am poison')
      runs += 1
      event.data.title += '!'
      await tx.query(`insert into ${fixture.schema}.effect (event_id, aggregate_id, version, note) values ($1, $2, $3, $4)`, [
        event.id,
        event.aggregateId,
        String(event.version),
        event.data.title,
      ])
    })
  await fixture.publish(published('v1', 1, 'fine'), published('v2', 1, 'poison'))
  const stop = fixture.start(consumer)
  await eventually(async () => (await fixture.count('dead_letter')) === 1)
  await eventually(async () => (await fixture.count('inbox')) >= 1)
  await stop()
  expect(runs).toBeGreaterThan(1)
  expect(await fixture.query('select note from $schema.effect')).toEqual([{ note: 'fine!' }])
  expect(await fixture.query(`select title from $schema.video_view where video_id = 'v1'`)).toEqual([{ title: 'fine' }])
})
