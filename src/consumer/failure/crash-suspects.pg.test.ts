import { expect, test } from 'vitest'
import { consumerFixture, published, uncounted, videos } from '../../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import type { Consumer } from '../consumer.ts'
import { retryAfter } from '../model/handler.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

test('after a start everything is marked until new events come, however many that are done come before; then nothing is', async () => {
  const fixture = await consumerFixture(db)
  const marks: [string, number][] = []
  const consumer = (): Consumer =>
    fixture.consumer({ transport: uncounted(fixture.broker), maxInFlight: 5 }).on(videos.VideoPublished, async ({ id, data }) => {
      marks.push([data.title, await fixture.count('delivery_attempt', `event_id = '${id}' and unfinished = 1`)])
    })
  const first = fixture.start(consumer())
  await fixture.publish(...Array.from({ length: 40 }, (_, i) => published(`v${i}`, 1, 'before')))
  await fixture.settled(40)
  await first()
  await fixture.broker.seek({ topic: videos.topic, consumer: 'catalog', to: 'earliest' })
  await fixture.publish(published('k', 1, 'in hand'))
  const second = fixture.start(consumer())
  await fixture.settled(41)
  await fixture.publish(...Array.from({ length: 20 }, (_, i) => published(`w${i}`, 1, 'new')))
  await fixture.settled(61)
  await fixture.publish(published('z', 1, 'much later'))
  await fixture.settled(62)
  await second()
  expect(marks.filter(([title]) => title === 'in hand' || title === 'much later')).toEqual([
    ['in hand', 1],
    ['much later', 0],
  ])
  expect(await fixture.count('delivery_attempt')).toBe(0)
})

test('a stored message that failed in another process is suspect here: its attempts go on, and its mark goes with its effect', async () => {
  const fixture = await consumerFixture(db)
  const options = { mode: 'stored' as const, streams: [videos], maxInFlight: 2 }
  const failing = fixture.consumer(options).on(videos.VideoPublished, () => {
    throw retryAfter(3_600_000)
  })
  const first = fixture.start(failing)
  await fixture.publish(published('a', 1, 'failed'))
  await eventually(async () => (await fixture.count('inbox_message', 'attempts > 0')) === 1)
  await first()
  const attempts: [string, number][] = []
  const second = fixture.start(
    fixture.consumer(options).on(videos.VideoPublished, ({ data }, { attempt }) => void attempts.push([data.title, attempt])),
  )
  // Its start is over after as many new ones as can be in hand.
  for (let nth = 1; nth <= 4; nth += 1) {
    await fixture.publish(published(`v${nth}`, 1, 'new'))
    await fixture.settled(nth)
  }
  await fixture.query('update $schema.inbox_message set next_attempt_at = now()')
  await fixture.settled(5)
  await second()
  expect(attempts.at(-1)).toEqual(['failed', 2])
  expect(await fixture.count('delivery_attempt')).toBe(0)
})
