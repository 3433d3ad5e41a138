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
import { voidEventType } from '../../core/event/event.ts'
import { createRelay } from '../../outbox/relay/relay.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import type { Consumer } from '../consumer.ts'
import type { ConsumerOptions } from '../model/consumer-options.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

function handling(fixture: ConsumerFixture, options: Partial<ConsumerOptions> = {}): Consumer {
  return fixture.consumer({ streams: [videos], ...options }).on(videos.VideoPublished, async (event, { tx }) => {
    await tx.query(`insert into ${fixture.schema}.effect (note) values ($1)`, [event.data.title])
  })
}

function projecting(fixture: ConsumerFixture, options: Partial<ConsumerOptions> = {}): Consumer {
  return fixture.consumer({ streams: [videos], ...options }).project(videos, {
    table: `${fixture.schema}.video_view`,
    key: 'video_id',
    set: ({ data }) => ({ title: data.title }),
  })
}

const repeats = (fixture: ConsumerFixture): number =>
  fixture.heard('consumer.applied').reduce((sum, { duplicates }) => sum + duplicates, 0)

test.each<[string, (fixture: ConsumerFixture) => Consumer]>([
  ['handlers', handling],
  ['rows', projecting],
  ['rows alone, and positions where they are needed', (fixture) => projecting(fixture, { positions: 'needed' })],
  ['stored messages', (fixture) => handling(fixture, { mode: 'stored' })],
])('an event under the id of another one is told of, and the first one stays; a repeat is none (%s)', async (_what, open) => {
  const fixture = await consumerFixture(db)
  const stop = fixture.start(open(fixture))
  const first = published('a', 1, 'first')
  const same = { event_id: first.attributes['event_id'] ?? '' }
  await fixture.publish(first)
  await fixture.settled(1)
  for (const count of [1, 2]) {
    await fixture.publish(first)
    await eventually(() => expect(repeats(fixture)).toBe(count))
  }
  expect(fixture.heard('consumer.id-reused')).toEqual([])
  const others = [
    published('a', 1, 'other', same),
    published('b', 1, 'first', same),
    published('a', 2, 'first', same),
    published('a', 1, 'first', { ...same, schema_version: '2' }),
    published('a', 1, 'first', { ...same, content_hash: 'f'.repeat(32) }),
    published('a', 1, 'first', { ...same, event_type: voidEventType }),
  ]
  for (const [n, other] of others.entries()) {
    await fixture.publish(other)
    await eventually(() => expect(repeats(fixture)).toBe(3 + n))
  }
  await stop()
  expect(fixture.heard('consumer.id-reused').map(({ eventId, aggregateId }) => [eventId, aggregateId])).toEqual([
    [same.event_id, 'a'],
    [same.event_id, 'b'],
    [same.event_id, 'a'],
    [same.event_id, 'a'],
  ])
  expect(fixture.heard('consumer.fact-conflict')).toHaveLength(1)
  expect(await fixture.count('inbox', 'conflicted_at is not null')).toBe(1)
  const seen = await fixture.query('select note from $schema.effect union all select title from $schema.video_view')
  expect(seen).toEqual([{ note: 'first' }])
})

test('what a relay publishes again, and what an operator skipped after it had been published, is no other content', async () => {
  const fixture = await consumerFixture(db)
  const { outbox, broker } = fixture
  const consumer = fixture.consumer().on(accounts.Deposited, () => undefined)
  const stop = fixture.start(consumer)
  const relay = createRelay({ db, outbox, transport: broker })
  await transaction(db, (tx) => outbox.add(tx, accounts.Deposited, 'größe', { amount: 1 }, { headers: { tenant: 'a' } }))
  await relay.once()
  await fixture.settled(1)
  const [sent] = broker.published
  if (sent === undefined) throw new Error('Nothing was published.')
  await fixture.publish(sent, { ...sent, attributes: { ...sent.attributes, event_type: voidEventType }, body: new Uint8Array() })
  await eventually(() => expect(repeats(fixture)).toBe(2))
  const skipped = deposited('b', 1, 1)
  const marker = { ...skipped, attributes: { ...skipped.attributes, event_type: voidEventType }, body: new Uint8Array() }
  await fixture.publish(marker)
  await fixture.settled(2)
  await fixture.publish(skipped)
  await eventually(() => expect(repeats(fixture)).toBe(3))
  await stop()
  expect(fixture.heard('consumer.id-reused')).toEqual([])
})
