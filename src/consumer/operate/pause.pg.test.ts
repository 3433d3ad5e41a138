import { expect, test } from 'vitest'
import { accounts, consumerFixture, deposited, message, published, videos } from '../../../test/setup/consumer-fixture.ts'
import type { ConsumerFixture } from '../../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import type { OutgoingMessage } from '../../transport/port/transport.ts'
import { drainBrokerDeadLetters } from './broker-dead-letters.ts'
import type { Consumer } from '../consumer.ts'
import type { ConsumerOptions } from '../model/consumer-options.ts'
import { discardDeadLetters } from './discard.ts'
import type { ConsumedEvent, HandlerContext } from '../model/handler.ts'
import { pauseConsumer, resumeConsumer } from './pause.ts'
import { planRedrive, redriveDeadLetters } from './redrive.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

/** Writes down every event, unless its version is in `broken`. */
function recorder(fixture: ConsumerFixture, broken: ReadonlySet<number>, options?: Partial<ConsumerOptions>): Consumer {
  const record = async (event: ConsumedEvent, { tx }: Pick<HandlerContext, 'tx'>): Promise<void> => {
    if (broken.has(Number(event.version))) throw new Error('broken')
    await tx.query(`insert into ${fixture.schema}.effect (aggregate_id, version) values ($1, $2)`, [
      event.aggregateId,
      String(event.version),
    ])
  }
  const consumer = fixture.consumer({ maxAttempts: 1, ...options })
  return consumer.on(videos.VideoPublished, record).on(accounts.Deposited, record).on(accounts.BalanceSet, record)
}

const effects = async (fixture: ConsumerFixture): Promise<readonly string[]> =>
  (await fixture.query<{ name: string }>(`select aggregate_id || ' ' || version as name from $schema.effect order by at`)).map(
    ({ name }) => name,
  )

function action(fixture: ConsumerFixture, type: string, id: string): Parameters<typeof pauseConsumer>[0] {
  return { db, schema: fixture.schema, consumer: 'catalog', aggregate: { type, id }, actor: 'ada' }
}

const letters = ({ schema }: ConsumerFixture): Parameters<typeof redriveDeadLetters>[0] => ({
  db,
  schema,
  filter: { consumer: 'catalog' },
  actor: 'ada',
})

/** It killed its process as often as it may, or the broker gave it up. */
async function die(fixture: ConsumerFixture, how: 'crashed' | 'broker', dead: OutgoingMessage): Promise<void> {
  if (how === 'broker') return await fixture.publish({ ...dead, topic: 'video.events.catalog.dead' })
  await fixture.query(
    `insert into $schema.delivery_attempt (consumer, generation, event_id, unfinished) values ('catalog', 1, $1::uuid, 3)`,
    [dead.attributes['event_id'] ?? ''],
  )
  await fixture.publish(dead)
}

test.each(['crashed', 'broker'] as const)(
  'what follows a letter that died while its aggregate was paused waits for it after the resume (%s)',
  async (how) => {
    const fixture = await consumerFixture(db)
    const { schema, broker: transport } = fixture
    const topics = ['video.events.catalog.dead']
    const drain = drainBrokerDeadLetters({ db, schema, transport, consumer: 'catalog', topics }) as Consumer
    const stop = fixture.start(recorder(fixture, new Set(), { maxCrashes: 3 }), drain)
    await fixture.publish(published('v', 1))
    await eventually(async () => (await fixture.count('effect')) === 1)
    await pauseConsumer(action(fixture, 'video', 'v'))
    await die(fixture, how, published('v', 2))
    await eventually(async () => (await fixture.count('dead_letter', `reason = '${how}'`)) === 1)
    await fixture.publish(published('v', 3))
    await eventually(async () => (await fixture.count('inbox_message')) === 1)
    expect(await resumeConsumer(action(fixture, 'video', 'v'))).toBe(true)
    await fixture.publish(published('v', 4))
    // It waits, or has its effect.
    await eventually(async () => (await fixture.count('inbox_message', 'version = 4')) + (await fixture.count('inbox')) > 1)
    await redriveDeadLetters(letters(fixture))
    await eventually(async () => (await fixture.count('effect')) === 4)
    await stop()
    expect(await effects(fixture)).toEqual(['v 1', 'v 2', 'v 3', 'v 4'])
  },
)

test('a resume that meets a burial waits for it, and leaves the aggregate to the letter', async () => {
  const fixture = await consumerFixture(db)
  const stop = fixture.start(recorder(fixture, new Set([1])))
  await fixture.publish(published('v', 1))
  await eventually(async () => (await fixture.count('consumer_position', 'held_by is not null')) === 1)
  await stop()
  // It died late: the aggregate was past it.
  await fixture.query('update $schema.consumer_position set version = 9')
  const paused = action(fixture, 'video', 'v')
  expect(await pauseConsumer(paused)).toBe(true)
  const letter = await fixture.query<{ id: string }>('select event_id::text as id from $schema.dead_letter')
  // As a burial: the letter, then the aggregate's row.
  await fixture.query(`update $schema.dead_letter set state = 'redriven'`)
  const { resuming } = await transaction(db, async (tx) => {
    await tx.query(`update ${fixture.schema}.dead_letter set state = 'dead'`)
    await tx.query(`update ${fixture.schema}.consumer_position set updated_at = clock_timestamp()`)
    const waits = `select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`
    const begun = resumeConsumer(paused)
    await eventually(async () => (await fixture.query(waits)).length > 0)
    return { resuming: begun }
  })
  expect(await resuming).toBe(true)
  expect(await fixture.query('select held_by::text as id from $schema.consumer_position')).toEqual(letter)
})

test('a pause takes over from a letter: a redrive waits for the resume, and nothing is out of order', async () => {
  const fixture = await consumerFixture(db)
  const broken = new Set([2])
  const stop = fixture.start(recorder(fixture, broken))
  const ids = ['v', 'w']
  await fixture.publish(...ids.flatMap((id) => [published(id, 1), published(id, 2), published(id, 3)]))
  await eventually(async () => (await fixture.count('dead_letter')) === 2 && (await fixture.count('inbox_message')) === 2)
  expect(await pauseConsumer(action(fixture, 'video', 'v'))).toBe(true)
  expect(await pauseConsumer(action(fixture, 'video', 'v'))).toBe(false)
  broken.clear()
  expect(await planRedrive(letters(fixture))).toMatchObject([
    { verdict: 'apply', holding: 1, because: expect.stringContaining('paused') },
    { verdict: 'apply', holding: 1, because: 'It is applied, and 1 that wait behind it follow.' },
  ])
  await redriveDeadLetters(letters(fixture))
  // Whoever finds the second letter has looked at the first.
  await eventually(async () => (await effects(fixture)).includes('w 3'))
  expect((await effects(fixture)).filter((name) => name.startsWith('v'))).toEqual(['v 1'])
  expect(await fixture.count('dead_letter', `state = 'redriving'`)).toBe(1)
  expect(await resumeConsumer(action(fixture, 'video', 'v'))).toBe(true)
  await eventually(async () => (await effects(fixture)).length === 6)
  await stop()
  expect((await effects(fixture)).filter((name) => name.startsWith('v'))).toEqual(['v 1', 'v 2', 'v 3'])
  expect(await fixture.count('consumer_position', 'held_by is not null or waiting > 0')).toBe(0)
})

test('a letter that is discarded while its aggregate is paused is passed over as it is otherwise, after the resume', async () => {
  const fixture = await consumerFixture(db)
  const stop = fixture.start(recorder(fixture, new Set()))
  // Its turn was before versions that are missing: it stands for them.
  const unreadable = message({ stream: accounts, type: 'BalanceSet', id: 'x', version: 10 }, 'no balance')
  await fixture.publish(unreadable, deposited('x', 11, 1))
  await eventually(async () => (await fixture.count('dead_letter')) === 1 && (await fixture.count('inbox_message')) === 1)
  await pauseConsumer(action(fixture, 'account', 'x'))
  await discardDeadLetters(letters(fixture))
  expect(await fixture.query('select version::int, waiting from $schema.consumer_position')).toEqual([
    { version: 10, waiting: 1 },
  ])
  await resumeConsumer(action(fixture, 'account', 'x'))
  await eventually(async () => (await fixture.count('effect')) === 1)
  await stop()
  expect(await effects(fixture)).toEqual(['x 11'])
})

test('a letter that was passed over holds nobody after a resume', async () => {
  const fixture = await consumerFixture(db)
  const stop = fixture.start(recorder(fixture, new Set([1]), { onDead: 'pass' }))
  await fixture.publish(published('v', 1))
  await eventually(async () => (await fixture.count('dead_letter')) === 1)
  await pauseConsumer(action(fixture, 'video', 'v'))
  await resumeConsumer(action(fixture, 'video', 'v'))
  expect(await fixture.query('select version::int, held_by from $schema.consumer_position')).toEqual([
    { version: 1, held_by: null },
  ])
  await stop()
})
