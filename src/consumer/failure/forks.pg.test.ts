/**
 * Two events of one aggregate and version: an owner that lost commits in a fail-over gives its versions again.
 */
import { expect, test } from 'vitest'
import { forksOf, range, readers, reading } from '../../../test/consumer/reading.ts'
import { consumerFixture, deposited, published, removed } from '../../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { discardDeadLetters } from '../operate/discard.ts'
import { redriveDeadLetters } from '../operate/redrive.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

test.each(['deltas', 'states', 'rows'] as const)(
  'each version that a fail-over gave again is noticed once by a reader of %s, and none that was given first',
  async (kind) => {
    const { fixture, take, stop } = await reading(db, kind)
    const event = (id: string, version: number) => (kind === 'deltas' ? deposited(id, version, 1) : published(id, version))
    // What the first primary had committed and published; the standby that is promoted lacks the end of it.
    for (const id of ['a', 'b', 'c']) await take(...range(1, 9).map((version) => event(id, version)))
    // The new primary goes on behind what it has: a was lost from version 4 on, b from 9 on, c not at all.
    const again = [...range(4, 12).map((version) => event('a', version)), ...range(9, 10).map((version) => event('b', version))]
    await take(...again.slice(0, 3))
    await take(...again.slice(3), event('c', 10))
    expect(forksOf(fixture)).toEqual(['a 4', 'a 5', 'a 6', 'a 7', 'a 8', 'a 9', 'b 9'])
    // One that comes again is a duplicate, and no other fork.
    await take(...again)
    expect(forksOf(fixture)).toHaveLength(7)
    await stop()
  },
)

test.each(['deltas', 'states', 'rows'] as const)(
  'two events of one version in one batch of a reader of %s are a fork',
  async (kind) => {
    const { fixture, take, stop } = await reading(db, kind, { lingerMs: 100 })
    const event = (version: number) => (kind === 'deltas' ? deposited('a', version, 1) : published('a', version))
    await take(event(1), event(2), event(2), event(3))
    expect(forksOf(fixture)).toEqual(['a 2'])
    await stop()
  },
)

test('a fork is told of with the consumer, the aggregate and the event', async () => {
  const { fixture, take, stop } = await reading(db, 'deltas')
  const fork = deposited('a', 1, 2)
  await take(deposited('a', 1, 1), fork)
  expect(fixture.heard('consumer.forked')).toEqual([
    {
      consumer: 'catalog',
      eventId: fork.attributes['event_id'],
      eventType: 'Deposited',
      aggregateType: 'account',
      aggregateId: 'a',
      version: '1',
    },
  ])
  expect(await fixture.count('effect')).toBe(1)
  await stop()
})

test('a tombstone of a version that was taken is a fork', async () => {
  const { fixture, take, stop } = await reading(db, 'rows')
  await take(published('a', 1), published('a', 2))
  await take(removed('a', 2))
  expect(forksOf(fixture)).toEqual(['a 2'])
  await stop()
})

test('in stored mode forks are noticed as in direct mode', async () => {
  const fixture = await consumerFixture(db)
  const stop = fixture.start(readers.deltas(fixture, { mode: 'stored' }))
  await fixture.publish(deposited('a', 1, 1), deposited('a', 2, 1))
  await eventually(async () => expect(await fixture.count('effect')).toBe(2))
  await fixture.publish(deposited('a', 2, 5), deposited('a', 3, 5))
  await eventually(async () => expect(await fixture.count('effect')).toBe(3))
  expect(forksOf(fixture)).toEqual(['a 2'])
  await stop()
})

test('a version that waited behind a gap and was overtaken by one of the same version is a fork', async () => {
  const { fixture, stop } = await reading(db, 'deltas')
  await fixture.publish(deposited('a', 3, 1))
  await eventually(async () => expect(await fixture.count('inbox_message')).toBe(1))
  await fixture.publish(deposited('a', 3, 2))
  await eventually(async () => expect(await fixture.count('inbox_message')).toBe(2))
  await fixture.publish(deposited('a', 1, 1), deposited('a', 2, 1))
  await eventually(async () => expect(await fixture.count('inbox_message')).toBe(0))
  expect(await fixture.count('effect')).toBe(3)
  expect(forksOf(fixture)).toEqual(['a 3'])
  await stop()
})

test('with onFork: dead-letter a fork is a letter that holds its aggregate, until an operator decides', async () => {
  for (const kind of ['deltas', 'states', 'rows'] as const) {
    for (const decision of ['redrive', 'discard'] as const) {
      const { fixture, take, stop } = await reading(db, kind, { onFork: 'dead-letter', onDead: 'pass' })
      const event = (id: string, version: number) => (kind === 'deltas' ? deposited(id, version, 1) : published(id, version))
      await take(event('a', 1), event('a', 2))
      const fork = event('a', 2)
      await fixture.publish(fork, event('b', 1))
      await eventually(async () => expect(await fixture.count('dead_letter', `reason = 'forked'`)).toBe(1))
      expect(await fixture.count('consumer_position', 'held_by is not null')).toBe(1)
      expect(forksOf(fixture)).toEqual(['a 2'])
      await fixture.publish(event('a', 3), fork)
      await eventually(async () =>
        expect(await fixture.count('consumer_position', 'waiting = 1 and held_by is not null')).toBe(1),
      )
      const [filter, actor] = [{ all: true } as const, 'test']
      if (decision === 'redrive') await redriveDeadLetters({ db, schema: fixture.schema, filter, actor })
      else await discardDeadLetters({ db, schema: fixture.schema, filter, actor, reason: 'lost' })
      await eventually(async () => expect(await fixture.count('consumer_position', 'version = 3 and held_by is null')).toBe(1))
      // a 1, a 2, a 3 and b 1; and a 2 of the other history, if it was redriven.
      await eventually(async () => expect(await fixture.count('inbox')).toBe(5))
      const effects = { redrive: 5, discard: 4 }[decision]
      expect(await fixture.count('effect')).toBe(kind === 'rows' ? 0 : effects)
      expect(forksOf(fixture)).toEqual(['a 2'])
      await stop()
    }
  }
})

test.each([
  [{ inbox: false }, /inbox: true/],
  [{ positions: 'needed' }, /positions: 'every'/],
] as const)('onFork: dead-letter is refused where no fork would be seen: %j', async (options, says) => {
  const fixture = await consumerFixture(db)
  expect(() => readers.rows(fixture, { ...options, onFork: 'dead-letter' })).toThrow(says)
})
