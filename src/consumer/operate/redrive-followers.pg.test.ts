/** Letters of one aggregate that are redriven together have their effects in order, whatever becomes of the first. */
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
import type { Database } from '../../postgres/query/database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import type { OutgoingMessage } from '../../transport/port/transport.ts'
import { drainBrokerDeadLetters } from './broker-dead-letters.ts'
import type { Consumer } from '../consumer.ts'
import type { ConsumerOptions } from '../model/consumer-options.ts'
import { discardDeadLetters } from './discard.ts'
import { redriveDeadLetters } from './redrive.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

interface Graveyard {
  readonly fixture: ConsumerFixture
  /** The versions at which the handler fails. */
  readonly broken: Set<bigint>
  /** The versions that it was called with. */
  readonly tried: readonly bigint[]
  /** Runs the consumer that writes down what it handles. */
  readonly start: (options?: Partial<ConsumerOptions>) => () => Promise<void>
  readonly redrive: (filter?: Parameters<typeof redriveDeadLetters>[0]['filter']) => Promise<unknown>
  readonly versions: () => Promise<readonly number[]>
  /** Version, state and how often each was tried and redriven, the first version first. */
  readonly letters: () => Promise<readonly string[]>
}

/** The broker gave up on these messages, one after the other. */
async function graveyard(...dead: readonly OutgoingMessage[]): Promise<Graveyard> {
  const fixture = await consumerFixture(db)
  const { schema, broker: transport } = fixture
  const drain = drainBrokerDeadLetters({ db, schema, transport, consumer: 'catalog', topics: ['dead'] })
  const drained = fixture.start(drain as Consumer)
  for (const [i, message] of dead.entries()) {
    await fixture.publish({ ...message, topic: 'dead' })
    await eventually(async () => (await fixture.count('dead_letter')) === i + 1)
  }
  await drained()
  const broken = new Set([1n])
  const tried: bigint[] = []
  const note: Parameters<Consumer['on']>[1] = async ({ version }, { tx }) => {
    tried.push(version)
    if (broken.has(version)) throw new Error(`${version} is broken`)
    await tx.query(`insert into ${schema}.effect (version) values ($1)`, [String(version)])
  }
  return {
    fixture,
    broken,
    tried,
    start: (options) => fixture.start(fixture.consumer(options).on(videos.VideoPublished, note).on(accounts.Deposited, note)),
    redrive: async (filter = { all: true }) => await redriveDeadLetters({ db, schema, filter, actor: 'ada' }),
    versions: async () =>
      (await fixture.query<{ version: number }>('select version::int from $schema.effect order by at')).map((row) => row.version),
    letters: async () =>
      (
        await fixture.query<{ letter: string }>(
          `select concat_ws(' ', version, state, attempts, redrives) as letter from $schema.dead_letter order by version`,
        )
      ).map(({ letter }) => letter),
  }
}

const states = [published('x', 1), published('x', 2)] as const
const first = { eventId: states[0].attributes['event_id'] ?? '' }
const second = { eventId: states[1].attributes['event_id'] ?? '' }
const notTried = 'Version 1 of its aggregate failed again before it; this one was not tried.'
const noneRedriving = async ({ fixture }: Graveyard): Promise<boolean> =>
  (await fixture.count('dead_letter', `state = 'redriving'`)) === 0

test.each([
  ['in one batch', 100],
  ['in batches of one', 1],
])(
  'a state whose predecessor fails again is dead again with it, and both are applied in order later (%s)',
  async (_, batchSize) => {
    const there = await graveyard(...states)
    const { fixture, broken, redrive, versions, letters } = there
    await redrive()
    const stop = there.start({ batchSize })
    await eventually(() => noneRedriving(there))
    expect(await versions()).toEqual([])
    expect(await letters()).toEqual(['1 dead 2 1', '2 dead 1 1'])
    expect(fixture.heard('consumer.dead')).toMatchObject([
      { reason: 'failed', attempts: 1, held: true, error: '1 is broken' },
      { reason: 'broker', attempts: 0, held: true, error: notTried, orderingKey: 'x', aggregateType: 'video', aggregateId: 'x' },
    ])

    broken.clear()
    await redrive()
    await eventually(async () => (await versions()).length === 2)
    await stop()
    expect(await versions()).toEqual([1, 2])
    expect(await letters()).toEqual(['1 redriven 2 2', '2 redriven 1 2'])
    expect(await fixture.query('select version::int, held_by from $schema.consumer_position')).toEqual([
      { version: 2, held_by: null },
    ])
  },
)

test('a state behind one that still ends the process is dead again with it', async () => {
  const there = await graveyard(...states)
  await there.fixture.query(
    `insert into $schema.delivery_attempt (consumer, generation, event_id, unfinished)
     select consumer, generation, event_id, 3 from $schema.dead_letter where version = 1`,
  )
  await there.redrive()
  const stop = there.start()
  await eventually(() => noneRedriving(there))
  await stop()
  expect(await there.versions()).toEqual([])
  expect(await there.letters()).toEqual(['1 dead 4 1', '2 dead 1 1'])
  expect(there.fixture.heard('consumer.dead').map(({ reason, error }) => [reason, error])).toEqual([
    ['crashed', 'The process ended 3 times while it handled this event.'],
    ['broker', notTried],
  ])
})

test('an older letter that a redrive leaves out on purpose keeps no later one from its effect', async () => {
  const there = await graveyard(...states)
  await there.redrive(second)
  const stop = there.start()
  await eventually(() => noneRedriving(there))
  await stop()
  expect(await there.versions()).toEqual([2])
  expect(await there.letters()).toEqual(['1 dead 1 0', '2 redriven 1 1'])
})

test('with onDead: pass, a state goes on without the predecessor that fails again', async () => {
  const there = await graveyard(...states)
  await there.redrive()
  const stop = there.start({ onDead: 'pass' })
  await eventually(() => noneRedriving(there))
  await stop()
  expect(await there.versions()).toEqual([2])
  expect(await there.letters()).toEqual(['1 dead 2 1', '2 redriven 1 1'])
})

test('what has no ordering key goes on without the predecessor that fails again', async () => {
  const there = await graveyard(...states.map((message) => ({ ...message, orderingKey: undefined })))
  await there.redrive()
  const stop = there.start()
  await eventually(() => noneRedriving(there))
  await stop()
  expect(await there.versions()).toEqual([2])
})

/** Something happens between the first failure of a handler and the transaction in which its letter would die again. */
function afterFirstTry(there: Graveyard, happens: () => Promise<unknown>): Database {
  let happening: Promise<unknown> | undefined
  return {
    ...db,
    attempt: async (options, work) => {
      if (there.tried.length > 0) await (happening ??= happens())
      return await db.attempt(options, work)
    },
  }
}

test('a letter that fails again takes none with it that comes before it', async () => {
  const there = await graveyard(...states)
  there.broken.clear()
  there.broken.add(2n)
  await there.redrive(second)
  const stop = there.start({ db: afterFirstTry(there, () => there.redrive(first)) })
  await eventually(async () => there.tried.length > 0 && (await noneRedriving(there)))
  await stop()
  expect(await there.versions()).toEqual([1])
  expect(await there.letters()).toEqual(['1 redriven 1 1', '2 dead 2 1'])
})

test('a letter that fails again holds its aggregate, also if the one that held it is settled', async () => {
  const there = await graveyard(...states)
  const { fixture } = there
  await discardDeadLetters({ db, schema: fixture.schema, filter: first, actor: 'ada' })
  there.broken.add(2n)
  await there.redrive(second)
  const stop = there.start()
  await eventually(() => noneRedriving(there))
  await fixture.publish(published('x', 3))
  await eventually(async () => (await fixture.count('inbox_message', 'version = 3')) === 1)
  expect(await there.versions()).toEqual([])
  there.broken.clear()
  await there.redrive(second)
  await eventually(async () => (await there.versions()).length === 2)
  await stop()
  expect(await there.versions()).toEqual([2, 3])
})

test.each([
  ['in one batch', 100, [], [1, 2, 3]],
  ['in batches of one', 1, [], [1, 2, 3]],
  ['in one batch, and the later one fails again', 100, [2n], [1]],
  ['in batches of one, and the later one fails again', 1, [2n], [1]],
] as const)('what waits behind several letters comes behind all of them (%s)', async (_, batchSize, broken, before) => {
  const there = await graveyard(...states)
  const { fixture } = there
  there.broken.clear()
  for (const version of broken) there.broken.add(version)
  const stop = there.start({ batchSize })
  await fixture.publish(published('x', 3))
  await eventually(async () => (await fixture.count('inbox_message')) === 1)
  await there.redrive()
  await eventually(async () => (await noneRedriving(there)) && (await there.versions()).length >= before.length)
  expect(await there.versions()).toEqual(before)
  there.broken.clear()
  await there.redrive()
  await eventually(async () => (await there.versions()).length === 3)
  await stop()
  expect(await there.versions()).toEqual([1, 2, 3])
  expect(await fixture.query('select version::int, waiting, held_by from $schema.consumer_position')).toEqual([
    { version: 3, waiting: 0, held_by: null },
  ])
})

test('a letter that is discarded while its handler fails ends no redrive behind it', async () => {
  const there = await graveyard(...states)
  const { schema } = there.fixture
  const discarding = afterFirstTry(there, () => discardDeadLetters({ db, schema, filter: first, actor: 'ada' }))
  await there.redrive()
  const stop = there.start({ db: discarding, batchSize: 1 })
  await eventually(() => noneRedriving(there))
  await stop()
  expect(await there.versions()).toEqual([2])
  expect(await there.letters()).toEqual(['1 discarded 1 0', '2 redriven 1 1'])
})

test.each([
  ['would begin its aggregate', [deposited('x', 2, 1), deposited('x', 1, 1)], 0],
  ['comes late as well', [deposited('x', 1, 1), deposited('x', 2, 1)], 3],
  ['comes next', [deposited('x', 1, 1), deposited('x', 2, 1)], 1],
] as const)('a delta that %s is not applied before its predecessor that fails again', async (_, dead, passed) => {
  // The first of them that died holds the aggregate.
  const there = await graveyard(...dead)
  await there.fixture.query('update $schema.consumer_position set version = $1', [passed])
  await there.redrive()
  const stop = there.start({ deltaStart: 'any' })
  await eventually(() => noneRedriving(there))
  expect(await there.versions()).toEqual([])
  there.broken.clear()
  await there.redrive()
  await eventually(async () => (await there.versions()).length === 2)
  await stop()
  expect(await there.versions()).toEqual([1, 2])
})
