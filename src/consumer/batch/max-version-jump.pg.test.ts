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
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import type { Consumer } from '../consumer.ts'
import type { ConsumerOptions } from '../model/consumer-options.ts'
import { discardDeadLetters } from '../operate/discard.ts'
import { pauseConsumer, resumeConsumer } from '../operate/pause.ts'
import { redriveDeadLetters } from '../operate/redrive.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

/** The largest version that a column can hold: nothing that comes after it is newer. */
const forged = { version: (2n ** 63n - 1n).toString() }

/** Videos become rows, deposits add up. */
function bank(fixture: ConsumerFixture, options: Partial<ConsumerOptions> = {}): Consumer {
  return fixture
    .consumer({ maxVersionJump: 1_000, onVersionJump: 'dead-letter', ...options })
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
  await fixture.publish(published('a', 2), deposited('b', 2, 2), published('c', 1), published('c', 2, 'forged', forged))
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
  await fixture.publish(published('a', 1), published('b', 1))
  await fixture.settled(2)
  await fixture.publish(far, further)
  await eventually(async () => expect(await dead(fixture)).toEqual([jumped, jumped]))
  const filter = { reason: 'version_jump', eventId: far.attributes['event_id'] ?? '' }
  expect(await redriveDeadLetters({ ...store, filter })).toMatchObject({ redriven: 1 })
  await fixture.settled(3)
  expect(await discardDeadLetters({ ...store, filter: { reason: 'version_jump' } })).toMatchObject({ discarded: { length: 1 } })
  await fixture.publish(far, further, published('a', 5_001), published('b', 2))
  await fixture.settled(6)
  await stop()
  expect(await titles(fixture)).toEqual(['a 5001', 'b 2'])
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
    strict(
      fixture,
      { maxVersionJump: 3, onVersionJump: 'dead-letter', maxAttempts: 100_000 },
      (version) => isBroken && version === 2n,
    ),
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
  const stop = fixture.start(
    strict(fixture, { maxVersionJump: 1, onVersionJump: 'dead-letter', maxAttempts: 1 }, (version) => isBroken && version === 2n),
  )
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

/** The ways in which a consumer writes down what it gets. */
const kinds: readonly (readonly [string, (fixture: ConsumerFixture, options: Partial<ConsumerOptions>) => Consumer])[] = [
  ['rows', (fixture, options) => rowsOnly(fixture, options)],
  ['rows without an inbox', (fixture, options) => rowsOnly(fixture, { inbox: false, ...options })],
  [
    'handlers',
    (fixture, options) =>
      fixture.consumer({ streams: [videos], ...options }).on(videos.VideoPublished, async (event, { tx }) => {
        await tx.query(`insert into ${fixture.schema}.effect (version) values ($1)`, [String(event.version)])
      }),
  ],
]

function rowsOnly(fixture: ConsumerFixture, options: Partial<ConsumerOptions>): Consumer {
  const { schema } = fixture
  return fixture
    .consumer({ streams: [videos], ...options })
    .project(videos, { table: `${schema}.video_view`, key: 'video_id', set: (e) => ({ title: e.data.title }) })
}

const jumps = (fixture: ConsumerFixture): readonly unknown[] =>
  fixture.heard('consumer.version-jumped').map(({ aggregateId, from, version }) => `${aggregateId} ${from} ${version}`)

const appliedCount = (fixture: ConsumerFixture): number =>
  fixture.heard('consumer.applied').reduce((sum, { count, duplicates }) => sum + count + duplicates, 0)

test.each(kinds)('a jump of more than a million is told of by default, and takes its turn (%s)', async (_kind, open) => {
  const fixture = await consumerFixture(db)
  const stop = fixture.start(open(fixture, {}))
  const [first, far] = [published('a', 1), published('a', 1_000_002)]
  await fixture.publish(first, published('b', 4_000_000), published('c', 1), published('c', 1_000_001))
  await eventually(() => expect(appliedCount(fixture)).toBe(4))
  expect(jumps(fixture)).toEqual([])
  await fixture.publish(far)
  await eventually(() => expect(appliedCount(fixture)).toBe(5))
  await fixture.publish(published('d', 1), published('d', 3_000_000))
  await eventually(() => expect(appliedCount(fixture)).toBe(7))
  await fixture.publish(far, published('a', 1_000_003), first)
  await eventually(() => expect(appliedCount(fixture)).toBe(10))
  await stop()
  expect(jumps(fixture)).toEqual(['a 1 1000002', 'd 1 3000000'])
  expect(await dead(fixture)).toEqual([])
  expect(await fixture.query(`select version::int from $schema.consumer_position where aggregate_id = 'a'`)).toEqual([
    { version: 1_000_003 },
  ])
})

test.each(kinds)('an aggregate that is met for the first time may begin anywhere (%s)', async (_kind, open) => {
  const fixture = await consumerFixture(db)
  const stop = fixture.start(open(fixture, { maxVersionJump: 10, onVersionJump: 'dead-letter' }))
  await fixture.publish(published('a', 5_000), published('a', 5_001))
  await eventually(() => expect(appliedCount(fixture)).toBe(2))
  await fixture.publish(published('a', 5_100), published('a', 5_002))
  await eventually(async () => expect(await dead(fixture)).toEqual([jumped]))
  await eventually(() => expect(appliedCount(fixture)).toBe(3))
  await stop()
  expect(jumps(fixture)).toEqual([])
})

test('to look for jumps costs no statement, until there is one', async () => {
  const fixture = await consumerFixture(db)
  const asked: string[] = []
  const counted = counting(asked)
  const stop = fixture.start(rowsOnly(fixture, { db: counted, onVersionJump: 'dead-letter' }))
  await fixture.publish(published('a', 1), published('b', 1))
  await fixture.settled(2)
  await fixture.publish(published('a', 2))
  await fixture.settled(3)
  expect(asked.filter((text) => text.includes('m.version from'))).toEqual([])
  await fixture.publish(published('a', 2_000_000))
  await eventually(async () => expect(await dead(fixture)).toEqual([jumped]))
  await stop()
  expect(asked.filter((text) => text.includes('m.version from'))).toHaveLength(1)
})

/** The database, with what it is asked outside of transactions. */
function counting(asked: string[]): typeof db {
  return Object.assign(Object.create(db) as typeof db, {
    query: (text: string, values?: readonly (string | number)[]) => {
      asked.push(text)
      return db.query(text, values)
    },
  })
}

test('without positions nobody knows how far an aggregate is, so the two options do not go together', async () => {
  const fixture = await consumerFixture(db)
  expect(() => bank(fixture, { positions: 'needed' })).toThrow(
    "maxVersionJump and onVersionJump: 'dead-letter' need positions: 'every'",
  )
  expect(() => bank(fixture, { maxVersionJump: 0 })).toThrow('maxVersionJump')
})
