import { randomUUID } from 'node:crypto'
import { expect, test } from 'vitest'
import { z } from 'zod'
import { consumerFixture, published, videos, type ConsumerFixture } from '../../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { state } from '../../core/event/event.ts'
import { stream } from '../../core/event/stream.ts'
import { execute, rows, type Tx } from '../../postgres/query/database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { inboxTables, type Scope } from '../tables/inbox.sql.ts'
import { delayAtHead } from '../failure/settle.ts'
import { discard } from '../model/handler.ts'
import { fenceLanes, makeLanes, removeReceived, takeLanes } from '../tables/stored.sql.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

/** From now on a statement that lets go of more than this many held messages takes too long. */
async function refuseMany(fixture: ConsumerFixture, most: number): Promise<void> {
  await fixture.query(
    `create function $schema.many() returns trigger language plpgsql as $$ begin
       if (select count(*) from old_rows where state = 2) > ${most} then raise exception 'canceling statement due to statement timeout' using errcode = '57014'; end if;
       return null; end $$`,
  )
  await fixture.query(
    'create trigger many after update on $schema.inbox_message referencing old table as old_rows for each statement execute function $schema.many()',
  )
}

test.each([
  ['is applied', 1],
  ['is given up', 2],
])('a long line is let go bit by bit when its head %s, in order', async (_, first) => {
  const fixture = await consumerFixture(db)
  await refuseMany(fixture, 100)
  let broken = true
  const consumer = fixture
    .consumer({ mode: 'stored', streams: [videos], maxAttempts: 1_000, processBatchSize: 100 })
    .on(videos.VideoPublished, async ({ version }, { tx }) => {
      if (broken && version === 1n) throw new Error('not yet')
      if (version < first) throw discard('never')
      await tx.query(`insert into ${fixture.schema}.effect (version) values ($1)`, [String(version)])
    })
  const stop = fixture.start(consumer)
  await fixture.publish(...Array.from({ length: 150 }, (_item, i) => published('a', i + 1)))
  await eventually(async () => (await fixture.count('inbox_message', 'state = 2')) === 149)
  broken = false
  await eventually(async () => (await fixture.count('inbox_message')) === 0)
  await stop()
  const applied = await fixture.query<{ version: number }>('select version::int from $schema.effect order by at')
  expect(applied.map(({ version }) => version)).toEqual(Array.from({ length: 151 - first }, (_item, i) => i + first))
})

/** Messages of one aggregate, as they are stored: the state, the attempts and the end of the rest of each. */
async function storeLine(fixture: ConsumerFixture, ...line: readonly (readonly [number, number, string])[]): Promise<Scope> {
  for (const [at, attempts, restEnds] of line) {
    await fixture.query(
      `insert into $schema.inbox_message (key, lane, state, attempts, consumer, generation, event_id, aggregate_type, aggregate_id, version, topic, message_id, attributes, body, published_at, next_attempt_at)
       values (7, 7, ${at}, ${attempts}, 'catalog', 1, gen_random_uuid(), 'video', 'a', 1, 'video.events', 'm', '{}', '', now(), now() + interval '${restEnds}')`,
    )
  }
  return { tables: inboxTables(fixture.schema), consumer: 'catalog', generation: 1 }
}

async function statesOf(fixture: ConsumerFixture): Promise<readonly number[]> {
  const found = await fixture.query<{ state: number }>('select state from $schema.inbox_message order by seq')
  return found.map(({ state }) => state)
}

const rest = { delayMs: 60_000, error: 'e' }

test('what fails before the head that it was read with becomes the head; behind one that rests it stays', async () => {
  const fixture = await consumerFixture(db)
  const scope = await storeLine(fixture, [1, 0, '0 s'], [2, 0, '0 s'])
  await delayAtHead(db, scope, { place: { lane: 7, seq: '2', state: 2 }, ...rest })
  expect(await statesOf(fixture)).toEqual([2, 1])
  await delayAtHead(db, scope, { place: { lane: 7, seq: '1', state: 1 }, ...rest })
  expect(await statesOf(fixture)).toEqual([2, 1])
})

test('a head that has failed gives way to nobody, though its rest is over', async () => {
  const fixture = await consumerFixture(db)
  const scope = await storeLine(fixture, [1, 1, '0 s'], [0, 0, '0 s'])
  await delayAtHead(db, scope, { place: { lane: 7, seq: '2', state: 0 }, ...rest })
  expect(await statesOf(fixture)).toEqual([1, 0])
})

test.each([
  [0, 1],
  [0, 2],
  [1, 2],
  [2, 1],
])('a message that was in state %i when it was read and is in %i is found', async (read, now) => {
  const fixture = await consumerFixture(db)
  const scope = await storeLine(fixture, [now, 0, '0 s'], [4, 0, '0 s'])
  await execute(db, removeReceived(scope, [{ lane: 7, seq: '1', state: read }]))
  expect(await statesOf(fixture)).toEqual([4])
})

/** Takes all lanes; their token. */
async function takeAll(scope: Scope): Promise<string> {
  const token = randomUUID()
  await execute(db, makeLanes(scope))
  await rows(db, takeLanes(scope, { token, worker: 'w', leaseMs: 60_000, count: 64, from: 0 }))
  return token
}

/** Whether somebody waits for a lock. */
async function isWaiting({ query }: ConsumerFixture): Promise<boolean> {
  const waiting = await query("select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'")
  return waiting.length > 0
}

test('a rest that is set while another takes the head away leaves no line without one', async () => {
  const fixture = await consumerFixture(db)
  const scope = await storeLine(fixture, [1, 1, '0 s'], [2, 0, '0 s'])
  const token = await takeAll(scope)
  let removed: Promise<unknown> | undefined
  await transaction(db, async (tx) => {
    await delayAtHead(tx, scope, { place: { lane: 7, seq: '2', state: 2 }, ...rest })
    removed = transaction(db, async (other) => {
      expect(await rows(other, fenceLanes(scope, { token, lanes: [7] }))).toHaveLength(1)
      await execute(other, removeReceived(scope, [{ lane: 7, seq: '1', state: 1 }]))
    })
    await eventually(() => isWaiting(fixture))
  })
  await removed
  expect(await statesOf(fixture)).toEqual([1])
})

/** Lets the second of the line rest while another is at work in the lane; how the line is left. */
async function restDuring(
  fixture: ConsumerFixture,
  scope: Scope,
  work: (tx: Tx) => Promise<unknown>,
): Promise<readonly number[]> {
  const [, state = 0] = await statesOf(fixture)
  let rested: Promise<unknown> | undefined
  await transaction(db, async (tx) => {
    await work(tx)
    rested = delayAtHead(db, scope, { place: { lane: 7, seq: '2', state }, ...rest })
    await eventually(() => isWaiting(fixture))
  })
  await rested
  return await statesOf(fixture)
}

test('a head stays the head if what failed before it is gone by the time that may rest', async () => {
  const fixture = await consumerFixture(db)
  const scope = await storeLine(fixture, [1, 0, '0 s'], [2, 0, '0 s'])
  const token = await takeAll(scope)
  const left = await restDuring(fixture, scope, async (tx) => {
    expect(await rows(tx, fenceLanes(scope, { token, lanes: [7] }))).toHaveLength(1)
    await execute(tx, removeReceived(scope, [{ lane: 7, seq: '2', state: 2 }]))
  })
  expect(left).toEqual([1])
})

test('of two that fail side by side, the one that comes second to its rest leaves the other the head', async () => {
  const fixture = await consumerFixture(db)
  const scope = await storeLine(fixture, [0, 0, '0 s'], [0, 0, '0 s'])
  await execute(db, makeLanes(scope))
  const left = await restDuring(fixture, scope, (tx) =>
    delayAtHead(tx, scope, { place: { lane: 7, seq: '1', state: 0 }, ...rest }),
  )
  expect(left).toEqual([1, 0])
})

test('without an ordering key, a message whose rest ends while a later one fails is applied before that', async () => {
  const fixture = await consumerFixture(db)
  const unordered = stream('video', {
    topic: 'video.events',
    ordering: 'version',
    events: { VideoPublished: state(z.object({ title: z.string() })) },
  })
  const isRestOver = async (): Promise<boolean> =>
    (await fixture.count('inbox_message', 'version = 1 and state = 1 and next_attempt_at <= clock_timestamp()')) === 1
  let isSecondTried = false
  const consumer = fixture
    .consumer({ mode: 'stored', streams: [unordered], batchSize: 2, lingerMs: 10_000, maxAttempts: 3 })
    .on(unordered.VideoPublished, async ({ version }, { tx }) => {
      if (version === 1n && !isSecondTried) throw new Error('not yet')
      if (version === 1n) await tx.query(`insert into ${fixture.schema}.effect (version) values (1)`)
      if (version === 1n) return
      if (!isSecondTried) await eventually(isRestOver)
      isSecondTried = true
      throw new Error('never')
    })
  const stop = fixture.start(consumer)
  await fixture.publish(...[1, 2].map((version) => ({ ...published('a', version), orderingKey: undefined })))
  await eventually(() => fixture.heard('consumer.dead').length === 1)
  await eventually(async () => (await fixture.count('inbox_message', 'state < 4')) === 0)
  await stop()
  expect(await fixture.query('select version::int from $schema.effect')).toEqual([{ version: 1 }])
})
