import { expect, test } from 'vitest'
import { consumerFixture, published, videos, type ConsumerFixture } from '../../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { redriveDeadLetters } from '../operate/redrive.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

/** As if the database's clock had stepped back by two hours just now. */
const stepBack = (fixture: ConsumerFixture, table: string, ...columns: readonly string[]): Promise<unknown> =>
  fixture.query(`update $schema.${table} set ${columns.map((each) => `${each} = ${each} + interval '2 hours'`).join(', ')}`)

test('a message that rested when the clock stepped back is due again; a long rest is kept', async () => {
  const fixture = await consumerFixture(db)
  let broken = true
  const build = (backoff: object): ReturnType<typeof fixture.consumer> =>
    fixture
      .consumer({ mode: 'stored', streams: [videos], maxAttempts: 1_000, ...backoff })
      .on(videos.VideoPublished, async (event, { tx }) => {
        if (broken) throw new Error('not yet')
        await tx.query(`insert into ${fixture.schema}.effect (aggregate_id) values ($1)`, [event.aggregateId])
      })
  const hour = { backoff: { firstMs: 3_600_000, maxMs: 3_600_000 } }
  const stop = fixture.start(build(hour))
  await fixture.publish(published('a', 1))
  await eventually(async () => (await fixture.count('inbox_message', 'state = 1')) === 1)
  await stop()
  broken = false
  const rested = fixture.start(build(hour))
  await fixture.publish(published('b', 1))
  await fixture.settled(1)
  await rested()
  expect(await fixture.count('inbox_message', 'state = 1 and attempts = 1')).toBe(1)

  await stepBack(fixture, 'inbox_message', 'next_attempt_at', 'started_at')
  const again = fixture.start(build(hour))
  await fixture.settled(2)
  await again()
  expect(await fixture.query('select aggregate_id from $schema.effect order by at')).toEqual([
    { aggregate_id: 'b' },
    { aggregate_id: 'a' },
  ])
})

test('a redriven letter that was in hand when the clock stepped back is taken up again', async () => {
  const fixture = await consumerFixture(db)
  let broken = true
  const build = (): ReturnType<typeof fixture.consumer> =>
    fixture.consumer({ streams: [videos], maxAttempts: 1 }).on(videos.VideoPublished, () => {
      if (broken) throw new Error('broken')
    })
  const stop = fixture.start(build())
  await fixture.publish(published('a', 1))
  await eventually(async () => (await fixture.count('dead_letter')) === 1)
  await stop()
  broken = false
  await redriveDeadLetters({ db, schema: fixture.schema, filter: { all: true }, actor: 'ada' })
  await fixture.query('update $schema.dead_letter set next_attempt_at = clock_timestamp()')
  await stepBack(fixture, 'dead_letter', 'next_attempt_at')
  const again = fixture.start(build())
  await eventually(async () => (await fixture.count('dead_letter', `state = 'redriven'`)) === 1)
  await again()
})
