import { createHash } from 'node:crypto'
import { expect, test } from 'vitest'
import {
  accounts,
  consumerFixture,
  deposited,
  published,
  videos,
  type ConsumerFixture,
} from '../../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { systemClock } from '../../core/service/clock.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import type { Delivery, IncomingMessage, ReceiveOptions } from '../../transport/port/transport.ts'
import type { ConsumerOptions } from '../model/consumer-options.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

/** Text that no compression makes shorter. */
const noise = (length: number): string =>
  Array.from({ length: Math.ceil(length / 64) }, (_, nth) => createHash('sha256').update(String(nth)).digest('hex'))
    .join('')
    .slice(0, length)

/** The fixture's broker with other words in its messages; tells the delay of each nack. */
function reworded(
  { broker }: ConsumerFixture,
  change: (message: IncomingMessage) => IncomingMessage,
  onNack: (delivery: Delivery, delayMs: number) => void = () => undefined,
): ConsumerOptions['transport'] {
  return {
    receive: (options: ReceiveOptions) =>
      broker.receive({
        ...options,
        onDelivery: (delivery) =>
          options.onDelivery({
            message: change(delivery.message),
            ack: () => delivery.ack(),
            nack: (delayMs = 0) => {
              onNack(delivery, delayMs)
              return delivery.nack(delayMs)
            },
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

test('what cannot be stored is given back alone, with a delay, and those behind it come after it', async () => {
  const fixture = await consumerFixture(db)
  await fixture.query(`alter table $schema.inbox_message add constraint refused check (aggregate_id <> 'bad')`)
  const nacked = new Set<string>()
  const delays: number[] = []
  const transport = reworded(
    fixture,
    (message) => message,
    ({ message }, delayMs) => {
      nacked.add(message.attributes['aggregate_id'] ?? '')
      if (message.attributes['version'] === '1') delays.push(delayMs)
    },
  )
  const good = Array.from({ length: 20 }, (_, nth) => published(`good${nth}`, 1))
  await fixture.publish(...good.slice(0, 10), published('bad', 1), ...good.slice(10), published('bad', 2), published('bad', 3))
  const backoff = { firstMs: 7, maxMs: 20, jitter: 'none' } as const
  const stop = fixture.start(recorder(fixture, { mode: 'stored', transport, backoff, lingerMs: 50 }))
  await eventually(async () => (await fixture.count('effect')) === 20)
  await eventually(() => delays.length >= 3)
  expect([...nacked]).toEqual(['bad'])
  expect(Math.min(...delays)).toBeGreaterThanOrEqual(7)
  await fixture.query('alter table $schema.inbox_message drop constraint refused')
  await eventually(async () => (await fixture.count('effect')) === 23)
  await stop()
  expect((await titles(fixture)).slice(-3)).toEqual(['bad 1', 'bad 2', 'bad 3'])
})

test.each(['direct', 'stored'] as const)('a round that is given up comes again after a while, not at once (%s)', async (mode) => {
  const fixture = await consumerFixture(db)
  await fixture.query(`alter table $schema.dead_letter add constraint refused check (reason <> 'failed')`)
  const [delays, sleeps]: [number[], number[]] = [[], []]
  const transport = reworded(
    fixture,
    (message) => message,
    (_delivery, delayMs) => void delays.push(delayMs),
  )
  const clock = { ...systemClock, sleep: (ms: number, signal?: AbortSignal) => (sleeps.push(ms), systemClock.sleep(ms, signal)) }
  const backoff = { firstMs: 17, maxMs: 17, jitter: 'none' } as const
  const consumer = fixture.consumer({ mode, transport, clock, backoff, maxAttempts: 1 }).on(videos.VideoPublished, () => {
    throw new Error('broken')
  })
  await fixture.publish(published('a', 1))
  const stop = fixture.start(consumer)
  await eventually(() => fixture.heard('consumer.retried').length >= 3)
  await fixture.query('alter table $schema.dead_letter drop constraint refused')
  await eventually(async () => (await fixture.count('dead_letter')) === 1)
  await stop()
  expect(new Set(fixture.heard('consumer.retried').map(({ delayMs }) => delayMs))).toEqual(new Set([17]))
  // A delivery rests at the broker; what is stored would be found again at once, so its processor rests.
  const rests = mode === 'direct' ? delays : sleeps.filter((ms) => ms === 17)
  expect(rests.length).toBeGreaterThanOrEqual(3)
  expect(new Set(rests)).toEqual(new Set([17]))
})
