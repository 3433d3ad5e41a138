import { expect, test } from 'vitest'
import { consumerFixture, message, published, videos } from '../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../test/setup/test-database.ts'
import { fromPg } from '../postgres/adapters/from-pg.ts'
import { eventually } from '../testing/kit/eventually.ts'
import { discardDeadLetters } from './operate/discard.ts'
import { pauseConsumer } from './operate/pause.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

test('calls of handlers are reported with their time, failed ones too, and failures by the ids of event and message', async () => {
  const fixture = await consumerFixture(db)
  const consumer = fixture.consumer({ maxAttempts: 2 }).on(videos.VideoPublished, (event) => {
    if (event.data.title === 'bad') throw new Error('no')
  })
  const stop = fixture.start(consumer)
  await fixture.publish(published('v1', 1, 'good'), published('v2', 1, 'bad'))
  const [dead] = await eventually(() => (fixture.heard('consumer.dead').length === 1 ? fixture.heard('consumer.dead') : false))
  await stop()
  expect(dead).toMatchObject({ orderingKey: 'v2', aggregateId: 'v2' })
  expect(dead?.messageId).toMatch(/.+/)
  expect(fixture.heard('consumer.failed')).toMatchObject([
    { messageId: dead?.messageId, eventId: dead?.eventId, orderingKey: 'v2' },
  ])
  const handled = fixture.heard('consumer.handled')
  expect(handled.filter(({ failed }) => failed).length).toBeGreaterThanOrEqual(2)
  expect(handled.filter(({ failed }) => !failed).length).toBeGreaterThanOrEqual(1)
  for (const each of handled) {
    expect(each).toMatchObject({ consumer: 'catalog', eventType: 'VideoPublished' })
    expect(each.durationMs).toBeGreaterThanOrEqual(0)
  }
  for (const { ackMs, durationMs } of fixture.heard('consumer.applied')) expect(ackMs).toBeLessThanOrEqual(durationMs)
})

test('a message that is no event is reported by the id of the message', async () => {
  const fixture = await consumerFixture(db)
  const stop = fixture.start(fixture.consumer().on(videos.VideoPublished, () => undefined))
  const foreign = { ...published('v1', 1), attributes: { event_type: 'Unknown' } }
  await fixture.publish(foreign)
  const [dead] = await eventually(() => (fixture.heard('consumer.dead').length === 1 ? fixture.heard('consumer.dead') : false))
  await stop()
  expect(dead).toMatchObject({ reason: 'not_ours', orderingKey: 'v1' })
  expect(dead?.messageId).toMatch(/.+/)
})

test('dead letters are told as long as nobody has settled them, by a consumer that is paused too', async () => {
  const fixture = await consumerFixture(db)
  const { schema } = fixture
  const consumer = fixture.consumer({ maxAttempts: 1, onDead: 'pass', gapAlertMs: 5 }).on(videos.VideoPublished, () => {
    throw new Error('no')
  })
  const told = (dead: number): Promise<unknown> =>
    eventually(() => expect(fixture.heard('consumer.backlog').at(-1)).toMatchObject({ consumer: 'catalog', messages: 0, dead }))
  const stop = fixture.start(consumer)
  await fixture.publish(published('v1', 1), published('v2', 1))
  await told(2)
  await pauseConsumer({ db, schema, consumer: 'catalog', actor: 'ada' })
  await discardDeadLetters({ db, schema, actor: 'ada', filter: { aggregateType: 'video', aggregateId: 'v1' } })
  await told(1)
  await discardDeadLetters({ db, schema, actor: 'ada', filter: { consumer: 'catalog' } })
  await told(0)
  await stop()
})

test('what is in hand is counted until it is settled', async () => {
  const fixture = await consumerFixture(db)
  const { promise: held, resolve: release } = Promise.withResolvers<void>()
  const stop = fixture.start(fixture.consumer().on(videos.VideoPublished, () => held))
  await fixture.publish(
    message({ stream: videos, type: 'VideoPublished', id: 'v1', version: 1 }, { title: 'one' }),
    message({ stream: videos, type: 'VideoPublished', id: 'v2', version: 1 }, { title: 'two' }),
  )
  await eventually(() => expect(fixture.heard('consumer.in-flight').at(-1)).toMatchObject({ consumer: 'catalog', messages: 2 }))
  expect(fixture.heard('consumer.in-flight').at(-1)?.oldestMs).toBeGreaterThan(0)
  release()
  await eventually(() => expect(fixture.heard('consumer.in-flight').at(-1)).toMatchObject({ messages: 0, oldestMs: 0 }))
  await stop()
})
