/** Whoever begins on a connection that falls silent does not wait for ever: a consumer ends, and the drain of its dead letters asks again. */
import { expect, test } from 'vitest'
import { consumerFixture, published, videos } from '../../test/setup/consumer-fixture.ts'
import { muteOnce } from '../../test/setup/mute-once.ts'
import { testDatabase } from '../../test/setup/test-database.ts'
import type { Database } from '../postgres/query/database.ts'
import { fromPg } from '../postgres/adapters/from-pg.ts'
import { eventually } from '../testing/kit/eventually.ts'
import { createFakeClock } from '../testing/kit/fake-clock.ts'
import type { Consumer } from './consumer.ts'
import { deadLetterDrains } from './operate/broker-dead-letters.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

/** The same database; the first statement that is meant has no answer. */
function muteAt(statement: RegExp): { readonly db: Database; readonly asked: Promise<void> } {
  const { asked, db: once } = muteOnce(db, (text) => statement.test(text))
  return { asked, db: { ...db, query: once.query } }
}

test.each([
  ['whose schema it is', /\."deployment"/],
  ['what columns its table has', /from pg_attribute a\s+where a\.attrelid = to_regclass/],
  ['that it is registered', /insert into \S+"consumer"/],
])('a consumer that is never told %s ends with an error, and can be started again', async (_, statement) => {
  const fixture = await consumerFixture(db)
  const clock = createFakeClock()
  const mute = muteAt(statement)
  const consumer = fixture
    .consumer({ db: mute.db, clock, streams: [videos] })
    .project(videos, { table: `${fixture.schema}.video_view`, key: 'video_id', set: (e) => ({ title: e.data.title }) })
  const never = new AbortController().signal
  const ended = consumer.run({ stopping: never, aborting: never }).catch((error: unknown) => error)
  await mute.asked
  await clock.advance(95_000)
  expect(await ended).toMatchObject({ code: 'UNAVAILABLE' })
  const stop = fixture.start(consumer)
  await eventually(() => consumer.lastPassAgeMs() !== undefined)
  await stop()
})

test('a drain that cannot begin on its connection says so, and begins on another one', async () => {
  const fixture = await consumerFixture(db)
  const [clock, mute] = [createFakeClock(), muteAt(/insert into \S+"consumer"/)]
  const transport = { ...fixture.broker, deadLetterTopic: () => 'dead' }
  const [drain] = deadLetterDrains(
    fixture.consumer({ db: mute.db, clock, transport, streams: [videos] }).on(videos.VideoPublished, () => undefined),
  )
  const stop = fixture.start(drain as Consumer)
  await fixture.publish({ ...published('a', 1), topic: 'dead' })
  await mute.asked
  await clock.advance(35_000)
  await eventually(() => fixture.heard('consumer.disturbed').length === 1)
  expect(fixture.heard('consumer.disturbed')).toMatchObject([{ topic: 'dead', error: { code: 'UNAVAILABLE' } }])
  await clock.advance(60_000)
  await eventually(async () => (await fixture.count('dead_letter')) === 1)
  await stop()
})
