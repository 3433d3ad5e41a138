import { expect, test } from 'vitest'
import { consumerFixture, published, videos } from '../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../test/setup/test-database.ts'
import { fromPg } from '../postgres/from-pg.ts'
import { eventually } from '../testing/eventually.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

test('events that must be alone do not wait for acks that a log confirms only together', async () => {
  const fixture = await consumerFixture(db)
  const events = Array.from({ length: 20 }, (_, nth) => published(`v${nth}`, 1))
  for (const { attributes } of events) {
    await fixture.query(
      `insert into $schema.delivery_attempt (consumer, generation, event_id, unfinished) values ('catalog', 1, $1::uuid, 1)`,
      [attributes['event_id'] ?? ''],
    )
  }
  // Like a partition whose first record is the last to be settled: nothing is confirmed before all are.
  const all = Promise.withResolvers<void>()
  let acked = 0
  const { broker } = fixture
  const transport = {
    receive: (options: Parameters<typeof broker.receive>[0]) =>
      broker.receive({
        ...options,
        onDelivery: (delivery) =>
          options.onDelivery({
            message: delivery.message,
            ack: async () => {
              if ((acked += 1) === events.length) all.resolve()
              await all.promise
              return delivery.ack()
            },
            nack: (delayMs) => delivery.nack(delayMs),
            lost: delivery.lost,
          }),
      }),
  }
  await fixture.publish(...events)
  const consumer = fixture.consumer({ transport }).on(videos.VideoPublished, async (event, { tx }) => {
    await tx.query(`insert into ${fixture.schema}.effect (event_id) values ($1)`, [event.id])
  })
  const stop = fixture.start(consumer)
  await eventually(async () => (await fixture.count('effect')) === events.length)
  await stop()
  expect(acked).toBe(events.length)
})
