import { createHash } from 'node:crypto'
import { expect, test } from 'vitest'
import {
  accounts,
  consumerFixture,
  deposited,
  published,
  videos,
  type ConsumerFixture,
} from '../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../test/setup/test-database.ts'
import { fromPg } from '../postgres/from-pg.ts'
import { eventually } from '../testing/eventually.ts'
import type { IncomingMessage, ReceiveOptions } from '../transport/transport.ts'
import type { ConsumerOptions } from './consumer-options.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

/** Text that no compression makes shorter. */
const noise = (length: number): string =>
  Array.from({ length: Math.ceil(length / 64) }, (_, nth) => createHash('sha256').update(String(nth)).digest('hex'))
    .join('')
    .slice(0, length)

/** The fixture's broker with other words in its messages. */
function reworded(
  { broker }: ConsumerFixture,
  change: (message: IncomingMessage) => IncomingMessage,
): ConsumerOptions['transport'] {
  return {
    receive: (options: ReceiveOptions) =>
      broker.receive({
        ...options,
        onDelivery: (delivery) =>
          options.onDelivery({
            message: change(delivery.message),
            ack: () => delivery.ack(),
            nack: (delayMs) => delivery.nack(delayMs),
            lost: delivery.lost,
          }),
      }),
  }
}

const titles = async (fixture: ConsumerFixture): Promise<readonly string[]> =>
  (await fixture.query<{ note: string }>('select note from $schema.effect order by at')).map(({ note }) => note)

const recorder = (fixture: ConsumerFixture, options: Partial<ConsumerOptions>): ReturnType<ConsumerFixture['consumer']> =>
  fixture.consumer(options).on(videos.VideoPublished, async (event, { tx }) => {
    await tx.query(`insert into ${fixture.schema}.effect (note) values ($1)`, [event.data.title])
  })

test.each(['direct', 'stored'] as const)(
  'an id or a name that no index takes is not ours, and costs nobody else anything (%s)',
  async (mode) => {
    const fixture = await consumerFixture(db)
    await fixture.publish(
      published(noise(3_000), 1),
      published('\u{1f600}'.repeat(257), 1),
      published('half \ud83d', 1),
      published('a', 1, 'long type', { event_type: noise(2_900) }),
      published('a', 1, 'long stream', { aggregate_type: `${noise(3_000)}` }),
      published(noise(1_024), 1, 'as long as an id may be'),
      published('b', 1),
    )
    const stop = fixture.start(recorder(fixture, { mode }))
    await eventually(async () => (await fixture.count('dead_letter')) === 5 && (await fixture.count('effect')) === 2)
    await stop()
    expect(await fixture.query('select distinct reason, aggregate_id from $schema.dead_letter')).toEqual([
      { reason: 'not_ours', aggregate_id: null },
    ])
    expect((await titles(fixture)).toSorted()).toEqual(['as long as an id may be', 'b 1'])
  },
)

test.each([
  ['direct', 1_700_000_000_000_000_000],
  ['stored', 1_700_000_000_000_000_000],
  ['direct', 1_700_000_000_000_000],
  ['stored', 1_700_000_000_000_000],
] as const)('a message whose producer counts time in other units can be kept (%s, %d)', async (mode, publishedAtMs) => {
  const fixture = await consumerFixture(db)
  const transport = reworded(fixture, (message) => ({ ...message, publishedAtMs }))
  const consumer = fixture.consumer({ mode, transport, maxAttempts: 1 }).on(accounts.Deposited, () => {
    throw new Error('no')
  })
  const { occurred_at: _gone, ...timeless } = deposited('z', 1, 1).attributes
  await fixture.publish(
    deposited('x', 1, 1),
    deposited('y', 2, 1),
    { ...deposited('z', 1, 1), attributes: timeless },
    { ...deposited('q', 1, 1), attributes: {} },
  )
  const stop = fixture.start(consumer)
  await eventually(
    async () => (await fixture.count('dead_letter')) === 3 && (await fixture.count('inbox_message', 'state = 4')) === 1,
  )
  await stop()
  expect(await fixture.count('dead_letter', `published_at = '9999-12-31T23:59:59.999Z'`)).toBe(3)
  expect(await fixture.count('inbox_message', `published_at = '9999-12-31T23:59:59.999Z'`)).toBe(1)
})
