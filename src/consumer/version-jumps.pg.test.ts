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
import type { Consumer } from './consumer.ts'
import type { ConsumerOptions } from './consumer-options.ts'
import { discardDeadLetters } from './discard-dead-letters.ts'
import { pauseConsumer, resumeConsumer } from './pause-consumer.ts'
import { redriveDeadLetters } from './redrive.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

/** The largest version that a column can hold: nothing that comes after it is newer. */
const forged = { version: (2n ** 63n - 1n).toString() }

/** Videos become rows, deposits add up. */
function bank(fixture: ConsumerFixture, options: Partial<ConsumerOptions> = {}): Consumer {
  return fixture
    .consumer({ maxVersionJump: 1_000, ...options })
    .project(videos, { table: `${fixture.schema}.video_view`, key: 'video_id', set: (e) => ({ title: e.data.title }) })
    .on(accounts.Deposited, async (event, { tx }) => {
      await tx.query(
        `insert into ${fixture.schema}.balance as b values ($1, $2)
         on conflict (account_id) do update set balance = b.balance + excluded.balance`,
        [event.aggregateId, event.data.amount],
      )
    })
}

const titles = async (fixture: ConsumerFixture): Promise<readonly string[]> =>
  (await fixture.query<{ title: string }>(`select title from $schema.video_view order by video_id`)).map(({ title }) => title)

const dead = (fixture: ConsumerFixture): Promise<readonly unknown[]> =>
  fixture.query(`select reason, aggregate_id, state from $schema.dead_letter order by id`)

const jumped = { reason: 'version_jump', aggregate_id: null, state: 'dead' }

test.each([
  { mode: 'direct', onDead: 'hold' },
  { mode: 'direct', onDead: 'pass' },
  { mode: 'stored', onDead: 'hold' },
] as const)('a forged version is put aside, and its aggregate goes on as if it had not come (%o)', async (options) => {
  const fixture = await consumerFixture(db)
  const stop = fixture.start(bank(fixture, options))
  await fixture.publish(
    published('a', 1),
    published('a', 2, 'forged', forged),
    deposited('b', 1, 1),
    deposited('b', 2, 100, forged),
  )
  await fixture.publish(published('a', 2), deposited('b', 2, 2), published('c', 1, 'forged', forged), published('c', 1))
  await fixture.settled(5)
  await eventually(async () => expect(await dead(fixture)).toEqual([jumped, jumped, jumped]))
  await fixture.publish(published('a', 1_002))
  await fixture.settled(6)
  await stop()
  expect(await titles(fixture)).toEqual(['a 1002', 'c 1'])
  expect(await fixture.query('select balance::int from $schema.balance')).toEqual([{ balance: 3 }])
  expect(await fixture.count('consumer_position', `held_by is not null or waiting > 0 or version > 1002`)).toBe(0)
  expect(fixture.heard('consumer.dead')).toMatchObject([{ held: false }, { held: false }, { held: false }])
})

test.each(['direct', 'stored'] as const)(
  'onPoison stop: a forged version is not given up, and true ones pass it (%s)',
  async (mode) => {
    const fixture = await consumerFixture(db)
    const stop = fixture.start(bank(fixture, { mode, onPoison: 'stop' }))
    await fixture.publish(published('a', 1), published('a', 2, 'forged', forged), published('a', 2), published('b', 1))
    await fixture.settled(3)
    await eventually(() => fixture.heard('consumer.stopped').length > 1)
    await stop()
    expect(fixture.heard('consumer.stopped')[0]).toMatchObject({
      aggregateId: 'a',
      attempts: 1,
      error: expect.stringContaining('more than 1000 ahead'),
    })
    expect(await titles(fixture)).toEqual(['a 2', 'b 1'])
    expect(await dead(fixture)).toEqual([])
  },
)

test('an operator’s word is enough: redriven it is applied, discarded it never comes back', async () => {
  const fixture = await consumerFixture(db)
  const consumer = bank(fixture)
  const store = { db, schema: fixture.schema, actor: 'test' }
  const stop = fixture.start(consumer)
  const [far, further] = [published('a', 5_000), published('b', 5_000)]
  await fixture.publish(far, further)
  await eventually(async () => expect(await dead(fixture)).toEqual([jumped, jumped]))
  const filter = { reason: 'version_jump', eventId: far.attributes['event_id'] ?? '' }
  expect(await redriveDeadLetters({ ...store, filter })).toMatchObject({ redriven: 1 })
  await fixture.settled(1)
  expect(await discardDeadLetters({ ...store, filter: { reason: 'version_jump' } })).toMatchObject({ discarded: { length: 1 } })
  await fixture.publish(far, further, published('a', 5_001), published('b', 1))
  await fixture.settled(4)
  await stop()
  expect(await titles(fixture)).toEqual(['a 5001', 'b 1'])
  expect(await fixture.query(`select state from $schema.dead_letter order by id`)).toEqual([
    { state: 'redriven' },
    { state: 'discarded' },
  ])
})

/** A consumer that adds up deposits and writes down their versions, and fails at those that `fails` says. */
function strict(fixture: ConsumerFixture, options: Partial<ConsumerOptions>, fails: (version: bigint) => boolean): Consumer {
  return fixture.consumer({ streams: [accounts], ...options }).on(accounts.Deposited, async ({ version }, { tx }) => {
    if (fails(version)) throw new Error('not yet')
    await tx.query(`insert into ${fixture.schema}.effect (version) values ($1)`, [String(version)])
  })
}

/** Publishes versions, each when the one before it waits already. */
async function publishWaiting(fixture: ConsumerFixture, ...them: readonly number[]): Promise<void> {
  const jumps = (): Promise<number> => fixture.count('dead_letter', "reason = 'version_jump'")
  for (const version of them) {
    await fixture.publish(deposited('a', version, 1))
    await eventually(async () => (await fixture.count('inbox_message', `version = ${version}`)) + (await jumps()) > 0)
    expect(await jumps()).toBe(0)
  }
}

const applied = async (fixture: ConsumerFixture): Promise<readonly number[]> =>
  (await fixture.query<{ version: number }>('select version::int from $schema.effect order by at')).map(({ version }) => version)

test('behind a pause, and behind what rests after it, an event is measured against the newest that waits', async () => {
  const fixture = await consumerFixture(db)
  const action = { db, schema: fixture.schema, consumer: 'catalog', actor: 'test', aggregate: { type: 'account', id: 'a' } }
  let isBroken = true
  const stop = fixture.start(
    strict(fixture, { maxVersionJump: 3, maxAttempts: 100_000 }, (version) => isBroken && version === 2n),
  )
  await fixture.publish(deposited('a', 1, 1))
  await fixture.settled(1)
  await pauseConsumer(action)
  await publishWaiting(fixture, 2, 3, 4, 5)
  await resumeConsumer(action)
  await eventually(async () => (await fixture.count('inbox_message', 'version = 2 and attempts > 0')) === 1)
  await publishWaiting(fixture, 6, 7, 8)
  isBroken = false
  await fixture.settled(8)
  await stop()
  expect(await dead(fixture)).toEqual([])
  expect(await applied(fixture)).toEqual([1, 2, 3, 4, 5, 6, 7, 8])
})

test('behind a dead letter an event is measured against that', async () => {
  const fixture = await consumerFixture(db)
  let isBroken = true
  const stop = fixture.start(strict(fixture, { maxVersionJump: 1, maxAttempts: 1 }, (version) => isBroken && version === 2n))
  await fixture.publish(deposited('a', 1, 1), deposited('a', 2, 1))
  await eventually(async () => (await fixture.count('dead_letter')) === 1)
  await publishWaiting(fixture, 3, 4)
  isBroken = false
  await redriveDeadLetters({ db, schema: fixture.schema, actor: 'test', filter: { reason: 'failed' } })
  await fixture.settled(4)
  await stop()
  expect(await applied(fixture)).toEqual([1, 2, 3, 4])
})

test('with onPoison: stop, a forged version is never tried, also where nothing rests', async () => {
  const fixture = await consumerFixture(db)
  const stop = fixture.start(bank(fixture, { onPoison: 'stop', backoff: { firstMs: 0, maxMs: 0 } }))
  await fixture.publish(published('a', 1), published('a', 2, 'forged', forged))
  await eventually(() => fixture.heard('consumer.stopped').length > 1)
  await stop()
  expect(await titles(fixture)).toEqual(['a 1'])
  expect(await fixture.query('select version::int from $schema.consumer_position')).toEqual([{ version: 1 }])
})

test('without positions nobody knows how far an aggregate is, so the two options do not go together', async () => {
  const fixture = await consumerFixture(db)
  expect(() => bank(fixture, { positions: 'needed' })).toThrow("consumer.maxVersionJump: needs positions: 'every'")
  expect(() => bank(fixture, { maxVersionJump: 0 })).toThrow('maxVersionJump')
})
