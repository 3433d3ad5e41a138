import { expect, test } from 'vitest'
import { consumerFixture, published, videos, type ConsumerFixture } from '../../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { discardDeadLetters } from '../operate/discard.ts'
import { redriveDeadLetters } from '../operate/redrive.ts'

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

test('a process that gives up its work charges nobody, and its marks do not look like its death', async () => {
  const fixture = await consumerFixture(db)
  const handling = Promise.withResolvers<void>()
  const consumer = fixture.consumer({ maxAttempts: 1, lingerMs: 50 }).on(videos.VideoPublished, async (_event, { signal }) => {
    handling.resolve()
    await new Promise<never>((_resolve, reject) => signal.addEventListener('abort', () => reject(new Error('interrupted'))))
  })
  const [stopping, aborting] = [new AbortController(), new AbortController()]
  const running = consumer.run({ stopping: stopping.signal, aborting: aborting.signal })
  await fixture.publish(published('a', 1), published('b', 1), published('c', 1))
  await handling.promise
  expect(await fixture.count('delivery_attempt', 'unfinished = 1')).toBeGreaterThan(0)
  stopping.abort()
  aborting.abort()
  await running
  expect(await fixture.count('dead_letter')).toBe(0)
  expect(await fixture.count('delivery_attempt', 'attempts > 0 or unfinished > 0')).toBe(0)
  expect(fixture.heard('consumer.failed')).toEqual([])
})

test.each(['our statements', 'a handler'])('an outage in %s while the process stops is charged to nobody', async (place) => {
  const fixture = await consumerFixture(db)
  const stopping = new AbortController()
  const consumer = fixture.consumer({ maxAttempts: 1, lockTimeoutMs: 20 }).on(videos.VideoPublished, () => {
    stopping.abort()
    throw Object.assign(new Error('deadlock detected'), { code: '40P01' })
  })
  const locker = await database.pool.connect()
  await locker.query('begin')
  if (place === 'our statements') await locker.query(`lock table ${fixture.schema}.consumer_position in exclusive mode`)
  const running = consumer.run({ stopping: stopping.signal, aborting: new AbortController().signal })
  await fixture.publish(published('a', 1))
  if (place === 'our statements') {
    await eventually(() => fixture.heard('consumer.retried').length > 0)
    stopping.abort()
  }
  await running
  await locker.query('rollback')
  locker.release()
  expect(await fixture.count('dead_letter')).toBe(0)
  expect(await fixture.count('delivery_attempt', 'attempts > 0 or unfinished > 0')).toBe(0)
  expect(fixture.heard('consumer.failed')).toEqual([])
})

test.each([
  ['redriven', 'direct'],
  ['redriven', 'stored'],
  ['discarded', 'direct'],
  ['discarded', 'stored'],
] as const)('a row that the table refuses is blamed on its own event, not on the %s one before it (%s)', async (fate, mode) => {
  const fixture = await consumerFixture(db)
  const refuse = async (...titles: readonly string[]): Promise<void> => {
    await fixture.query('alter table $schema.video_view drop constraint if exists refused')
    await fixture.query(
      `alter table $schema.video_view add constraint refused check (title not in (${titles.map((each) => `'${each}'`).join()}))`,
    )
  }
  await refuse('first', 'second')
  const view = { table: `${fixture.schema}.video_view`, key: 'video_id', set: (event: { data: { title: string } }) => event.data }
  const stop = fixture.start(fixture.consumer({ mode, maxAttempts: 2 }).project(videos, view))
  await fixture.publish(published('a', 1, 'first'), published('a', 2, 'second'))
  await eventually(
    async () => (await fixture.count('dead_letter')) === 1 && (await fixture.count('inbox_message', 'state = 4')) === 1,
  )
  await refuse('second')
  if (fate === 'redriven') await redriveDeadLetters({ db, schema: fixture.schema, filter: { all: true }, actor: 'ada' })
  else await discardDeadLetters({ db, schema: fixture.schema, filter: { all: true }, actor: 'ada' })
  await eventually(async () => (await fixture.count('dead_letter', `state = 'dead' and version = 2`)) === 1)
  await stop()
  expect(await fixture.query('select version::int, state from $schema.dead_letter order by 1')).toEqual([
    { version: 1, state: fate },
    { version: 2, state: 'dead' },
  ])
  expect(await fixture.query('select title from $schema.video_view')).toEqual(fate === 'redriven' ? [{ title: 'first' }] : [])
})

/** The server ends every upsert of which `when` is true, as if its time were over; `upserts` is how many there were, also those that were rolled back. */
async function endStatements(fixture: ConsumerFixture, when: string): Promise<void> {
  await fixture.query('create sequence $schema.upserts')
  await fixture.query(
    `create function $schema.slow() returns trigger language plpgsql as $$ declare upserts int := nextval('${fixture.schema}.upserts'); begin
       if (select ${when} from rows) then raise exception 'canceling statement due to statement timeout' using errcode = '57014'; end if;
       return null; end $$`,
  )
  await fixture.query(
    `create trigger slow after insert on $schema.video_view referencing new table as rows for each statement execute function $schema.slow()`,
  )
}

test.each(['direct', 'stored'] as const)(
  'a batch that is too slow for one statement is halved, and only what is too slow alone is charged (%s)',
  async (mode) => {
    const fixture = await consumerFixture(db)
    await endStatements(fixture, `count(*) > 1 or bool_or(title = 'endless')`)
    const view = {
      table: `${fixture.schema}.video_view`,
      key: 'video_id',
      set: (event: { data: { title: string } }) => event.data,
    }
    await fixture.publish(published('a', 1), published('b', 1, 'endless'), published('c', 1))
    const stop = fixture.start(fixture.consumer({ mode, maxAttempts: 1, lingerMs: 50 }).project(videos, view))
    await eventually(async () => (await fixture.count('video_view')) === 2 && (await fixture.count('dead_letter')) === 1)
    await stop()
    expect(await fixture.query('select aggregate_id, reason, attempts from $schema.dead_letter')).toEqual([
      { aggregate_id: 'b', reason: 'failed', attempts: 1 },
    ])
    expect(await fixture.query('select video_id from $schema.video_view order by 1')).toEqual([
      { video_id: 'a' },
      { video_id: 'c' },
    ])
  },
)

test('a statement that an operator cancels once or twice is made again, whole, and charged to nobody', async () => {
  const fixture = await consumerFixture(db)
  await endStatements(fixture, 'bool_and(upserts <= 2)')
  const view = { table: `${fixture.schema}.video_view`, key: 'video_id', set: (event: { data: { title: string } }) => event.data }
  await fixture.publish(published('a', 1), published('b', 1), published('c', 1))
  const stop = fixture.start(fixture.consumer({ maxAttempts: 1, lingerMs: 50 }).project(videos, view))
  await eventually(async () => (await fixture.count('video_view')) === 3)
  await stop()
  expect(fixture.heard('consumer.applied').map(({ count }) => count)).toEqual([3])
  expect(fixture.heard('consumer.retried').map(({ count }) => count)).toEqual([3, 3])
  expect(await fixture.count('delivery_attempt', 'attempts > 0')).toBe(0)
})

test('the halves of a batch that was too slow are not tried three times each before they are halved', async () => {
  const fixture = await consumerFixture(db)
  await endStatements(fixture, 'count(*) > 1')
  const view = { table: `${fixture.schema}.video_view`, key: 'video_id', set: (event: { data: { title: string } }) => event.data }
  await fixture.publish(...Array.from({ length: 8 }, (_, nth) => published(`v${nth}`, 1)))
  const stop = fixture.start(fixture.consumer({ maxAttempts: 1, lingerMs: 50 }).project(videos, view))
  await eventually(async () => (await fixture.count('video_view')) === 8)
  await stop()
  expect(fixture.heard('consumer.retried').map(({ count }) => count)).toEqual([8, 8])
  expect(await fixture.count('dead_letter')).toBe(0)
})

test.each(['direct', 'stored'] as const)(
  'a row that another session has locked holds up its own event and no other, and nobody is charged (%s)',
  async (mode) => {
    const fixture = await consumerFixture(db)
    const view = {
      table: `${fixture.schema}.video_view`,
      key: 'video_id',
      set: (event: { data: { title: string } }) => event.data,
    }
    const ids = Array.from({ length: 50 }, (_, nth) => `v${nth}`)
    await fixture.query(`insert into $schema.video_view (video_id, version) values ('v7', 0)`)
    const locker = await database.pool.connect()
    await locker.query('begin')
    await locker.query(`update ${fixture.schema}.video_view set title = 'mine' where video_id = 'v7'`)
    await fixture.publish(...ids.map((id) => published(id, 1)), published('v7', 2))
    const options = { mode, maxAttempts: 1, lockTimeoutMs: 20, lingerMs: 50 }
    const stop = fixture.start(fixture.consumer(options).project(videos, view))
    await eventually(async () => (await fixture.count('video_view', 'version = 1')) === 49)
    // Its event is given back, and comes again.
    await eventually(() => fixture.heard('consumer.retried').filter(({ count }) => count === 1).length > 4)
    expect(await fixture.count('delivery_attempt', 'attempts > 0')).toBe(0)
    await locker.query('rollback')
    locker.release()
    await eventually(async () => (await fixture.count('video_view', 'version = 2')) === 1)
    await stop()
    expect(await fixture.count('dead_letter')).toBe(0)
    expect(fixture.heard('consumer.failed')).toEqual([])
  },
)
