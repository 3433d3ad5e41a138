import pg from 'pg'
import { expect, test } from 'vitest'
import {
  accounts,
  consumerFixture,
  deposited,
  published,
  removed,
  videos,
  type ConsumerFixture,
} from '../../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { seededRandom } from '../../core/service/random.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { memory } from '../../transport/memory/memory.ts'
import { postgresTransport } from '../../transport/postgres/postgres-transport.ts'
import type { Consumer } from '../consumer.ts'
import type { ConsumerOptions } from '../model/consumer-options.ts'
import { discardDeadLetters } from '../operate/discard.ts'
import { createInboxRetention } from '../operate/retention.ts'
import { pauseConsumer, resumeConsumer } from '../operate/pause.ts'
import { redriveDeadLetters } from '../operate/redrive.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

/** Everything that a broker may do to deliveries. */
const nastiness = { duplicatePublish: 0.1, reorderKeys: 0.2, dropAck: 0.2, duplicateDelivery: 0.2, redeliverSuccessors: 0.2 }

/** Writes down every event in the order it is applied; `fails` may throw. */
function recorder(
  fixture: ConsumerFixture,
  fails: (name: string, attempt: number) => void,
  options?: Partial<ConsumerOptions>,
): Consumer {
  const consumer = fixture.consumer({ mode: 'stored', ...options })
  for (const type of [videos.VideoPublished, accounts.Deposited] as const) {
    consumer.on(type as typeof videos.VideoPublished, async (event, { tx, attempt }) => {
      await tx.query(`insert into ${fixture.schema}.effect (event_id, aggregate_id, version) values ($1, $2, $3)`, [
        event.id,
        event.aggregateId,
        String(event.version),
      ])
      fails(`${event.aggregateId} ${event.version}`, attempt)
    })
  }
  return consumer
}

const effects = async (fixture: ConsumerFixture, aggregateId?: string): Promise<readonly string[]> =>
  (
    await fixture.query<{ id: string; name: string }>(
      `select aggregate_id as id, aggregate_id || ' ' || version as name from $schema.effect order by at`,
    )
  )
    .filter(({ id }) => aggregateId === undefined || id === aggregateId)
    .map(({ name }) => name)

const atRest = (fixture: ConsumerFixture): Promise<number> => fixture.count('inbox_message')

test('what is received is stored and acknowledged, then applied once and removed; a duplicate changes nothing', async () => {
  const fixture = await consumerFixture(db)
  const consumer = fixture
    .consumer({ mode: 'stored' })
    .project(videos, { table: `${fixture.schema}.video_view`, key: 'video_id', set: (e) => ({ title: e.data.title }) })
  const stop = fixture.start(consumer)
  const again = published('a', 1)
  await fixture.publish(again, published('a', 2), published('b', 1), removed('b', 2), again)
  await fixture.settled(4)
  await fixture.publish(again)
  await eventually(() => fixture.broker.deliveries.length >= 6)
  await eventually(async () => (await atRest(fixture)) === 0)
  await stop()
  expect(
    await fixture.query(`select video_id, title, version::int, deleted_at is null as live from $schema.video_view order by 1`),
  ).toEqual([
    { video_id: 'a', title: 'a 2', version: 2, live: true },
    { video_id: 'b', title: null, version: 2, live: false },
  ])
  expect(fixture.heard('consumer.processed').reduce((sum, { count }) => sum + count, 0)).toBeGreaterThanOrEqual(4)
  expect(fixture.heard('consumer.processed').every(({ lagMs }) => lagMs >= 0)).toBe(true)
  expect(await fixture.count('inbox_lane', 'lock_token is not null')).toBe(0)
})

test('several processes keep the order of each aggregate over a nasty broker, and each effect happens once', async () => {
  const fixture = await consumerFixture(db, memory({ nasty: nastiness, random: seededRandom(7) }))
  const consumers = [1, 2, 3].map(() => recorder(fixture, () => undefined, { processBatchSize: 20, concurrency: 2 }))
  const stop = fixture.start(...consumers)
  const ids = Array.from({ length: 12 }, (_, i) => `x${i}`)
  for (let version = 1; version <= 25; version += 1) await fixture.publish(...ids.map((id) => deposited(id, version, 1)))
  await eventually(async () => (await fixture.count('inbox')) === 300, { timeoutMs: 60_000 })
  await stop()
  const expected = Array.from({ length: 25 }, (_, i) => i + 1)
  for (const id of ids) expect(await effects(fixture, id)).toEqual(expected.map((version) => `${id} ${version}`))
  expect(await fixture.count('effect')).toBe(300)
})

test('a failing message rests with growing attempts and holds its aggregate only; then it is dead, and the policy decides', async () => {
  const fixture = await consumerFixture(db)
  const attempts: number[] = []
  const stop = fixture.start(
    recorder(
      fixture,
      (name, attempt) => {
        if (name !== 'a 2') return
        attempts.push(attempt)
        throw new Error('broken')
      },
      { maxAttempts: 3 },
    ),
  )
  await fixture.publish(published('a', 1), published('a', 2), published('a', 3), published('b', 1))
  await eventually(async () => (await fixture.count('dead_letter', `state = 'dead' and attempts = 3`)) === 1)
  await eventually(async () => (await fixture.count('inbox_message', 'state = 4')) === 1)
  expect((await effects(fixture)).toSorted()).toEqual(['a 1', 'b 1'])
  expect(attempts.filter((attempt) => attempt === 1).length).toBeGreaterThan(0)
  await discardDeadLetters({ db, schema: fixture.schema, filter: { all: true }, actor: 'ada' })
  await eventually(async () => (await effects(fixture)).length === 3)
  await stop()
  expect(await effects(fixture, 'a')).toEqual(['a 1', 'a 3'])
  expect(await atRest(fixture)).toBe(0)
})

test('what is behind a resting head is out of the way, and follows it in order', async () => {
  const fixture = await consumerFixture(db)
  let broken = true
  const stop = fixture.start(
    recorder(
      fixture,
      (name) => {
        if (broken && name === 'a 1') throw new Error('not yet')
      },
      { maxAttempts: 1_000 },
    ),
  )
  await fixture.publish(...Array.from({ length: 30 }, (_, i) => published('a', i + 1)), published('b', 1))
  await eventually(
    async () => (await fixture.count('inbox_message', 'state = 2')) === 29 && (await fixture.count('effect')) === 1,
  )
  expect(await fixture.count('inbox_message', 'state = 1')).toBe(1)
  broken = false
  await eventually(async () => (await fixture.count('effect')) === 31)
  await stop()
  expect(await effects(fixture, 'a')).toEqual(Array.from({ length: 30 }, (_, i) => `a ${i + 1}`))
  expect(await atRest(fixture)).toBe(0)
})

test('a delta that came before its predecessor waits, and a redriven letter takes its turn', async () => {
  const fixture = await consumerFixture(db)
  let broken = true
  const stop = fixture.start(
    recorder(
      fixture,
      (name) => {
        if (broken && name === 'x 2') throw new Error('broken')
      },
      { maxAttempts: 1 },
    ),
  )
  await fixture.publish({ ...deposited('x', 3, 1), orderingKey: 'early' })
  await eventually(async () => (await fixture.count('inbox_message', 'state = 4')) === 1)
  await fixture.publish(deposited('x', 1, 1), deposited('x', 2, 1))
  await eventually(async () => (await fixture.count('dead_letter')) === 1)
  broken = false
  await redriveDeadLetters({ db, schema: fixture.schema, filter: { all: true }, actor: 'ada' })
  await eventually(async () => (await fixture.count('effect')) === 3)
  await stop()
  expect(await effects(fixture)).toEqual(['x 1', 'x 2', 'x 3'])
})

test('the messages of a processor that died are applied when its lease is over', async () => {
  const fixture = await consumerFixture(db)
  const warm = fixture.start(recorder(fixture, () => undefined))
  await fixture.publish(published('a', 1))
  await fixture.settled(1)
  await warm()
  await fixture.query(
    `update $schema.inbox_lane set lock_token = gen_random_uuid(), lock_expires_at = clock_timestamp() + interval '1 minute'`,
  )
  const stop = fixture.start(recorder(fixture, () => undefined, { leaseMs: 60_000 }))
  await fixture.publish(published('a', 2))
  await eventually(async () => (await fixture.count('inbox_message', 'state = 0')) === 1)
  await fixture.query('update $schema.inbox_lane set lock_expires_at = clock_timestamp()')
  await fixture.settled(2)
  await stop()
  expect(await effects(fixture)).toEqual(['a 1', 'a 2'])
})

test('a processor whose lane was taken over writes nothing, and blames nobody', async () => {
  const fixture = await consumerFixture(db)
  let handled = 0
  const consumer = recorder(fixture, () => void (handled += 1), { leaseMs: 60_000 })
  // Somebody takes the lanes between the first look at the messages and the transaction that applies them.
  await fixture.query(
    `create function $schema.steal() returns trigger language plpgsql as $$ begin
       update ${fixture.schema}.inbox_lane set lock_token = gen_random_uuid(), lock_expires_at = clock_timestamp() + interval '1 minute';
       return new; end $$`,
  )
  await fixture.query(
    `create trigger steal after insert on $schema.delivery_attempt for each row when (new.attempts = 0) execute function $schema.steal()`,
  )
  const stop = fixture.start(consumer)
  await fixture.publish(published('a', 1))
  await eventually(() => fixture.heard('consumer.retried').some(({ error }) => /took over the lanes/.test(error)))
  expect(handled).toBe(0)
  await eventually(async () => (await fixture.count('delivery_attempt', 'attempts > 0 or unfinished > 0')) === 0)
  await fixture.query('drop trigger steal on $schema.delivery_attempt')
  await fixture.query('update $schema.inbox_lane set lock_expires_at = clock_timestamp()')
  await fixture.settled(1)
  await stop()
  expect(await effects(fixture)).toEqual(['a 1'])
})

test('an event that keeps ending the process is given up in stored mode too', async () => {
  const fixture = await consumerFixture(db)
  const killer = published('a', 1)
  await fixture.query(
    `insert into $schema.delivery_attempt (consumer, generation, event_id, unfinished) values ('catalog', 1, $1::uuid, 3)`,
    [killer.attributes['event_id'] ?? ''],
  )
  const stop = fixture.start(recorder(fixture, () => undefined))
  await fixture.publish(killer, published('b', 1))
  await eventually(
    async () => (await fixture.count('dead_letter', `reason = 'crashed'`)) === 1 && (await fixture.count('inbox')) === 1,
  )
  await stop()
  expect(await effects(fixture)).toEqual(['b 1'])
})

test('a pool of two, slow handlers, three processes and duplicates in flight do not deadlock', async () => {
  const pool = new pg.Pool({ connectionString: database.url, max: 2 })
  try {
    const fixture = await consumerFixture(db)
    let release = (): void => undefined
    const slow = new Promise<void>((resolve) => (release = resolve))
    let calls = 0
    const build = (): Consumer =>
      fixture
        .consumer({ mode: 'stored', db: fromPg(pool), streams: [videos], lockTimeoutMs: 50, concurrency: 4 })
        .on(videos.VideoPublished, async (event, { tx }) => {
          calls += 1
          await slow
          await tx.query(`insert into ${fixture.schema}.effect (aggregate_id) values ($1)`, [event.aggregateId])
        })
    const event = published('a', 1)
    const stop = fixture.start(build(), build(), build())
    await fixture.publish(...Array.from({ length: 6 }, (_, i) => ({ ...event, orderingKey: `way ${i}` })), published('b', 1))
    await eventually(() => calls > 0)
    release()
    await fixture.settled(2)
    await eventually(async () => (await atRest(fixture)) === 0)
    await stop()
    expect(await fixture.count('effect')).toBe(2)
  } finally {
    await pool.end()
  }
})

test('stored mode works over the Postgres transport, and a pause stops processors too', async () => {
  const fixture = await consumerFixture(db)
  const transport = postgresTransport({ db, schema: fixture.schema, idleMs: 5 })
  const consumer = recorder(fixture, () => undefined, { transport })
  const stop = fixture.start(consumer)
  const send = async (...messages: readonly ReturnType<typeof published>[]): Promise<void> => {
    const outcomes = await transport.publish(messages, { signal: new AbortController().signal, maySend: () => true })
    expect(outcomes.every(({ status }) => status === 'confirmed')).toBe(true)
  }
  await eventually(async () => (await fixture.count('transport_subscription')) === 2)
  await send(...Array.from({ length: 50 }, (_, i) => deposited(`x${i % 5}`, Math.floor(i / 5) + 1, 1)))
  await fixture.settled(50)
  const whole = { db, schema: fixture.schema, consumer: 'catalog', actor: 'ada' }
  await pauseConsumer(whole)
  await eventually(() => fixture.heard('consumer.paused').length === 1)
  await fixture.query(`update $schema.effect set note = 'before'`)
  await send(deposited('x0', 11, 1))
  await resumeConsumer(whole)
  await fixture.settled(51)
  await stop()
  await transport.close()
  for (let i = 0; i < 5; i += 1)
    expect((await effects(fixture, `x${i}`)).slice(0, 10)).toEqual(Array.from({ length: 10 }, (_, v) => `x${i} ${v + 1}`))
  expect(await fixture.count('effect')).toBe(51)
})

test('an archive keeps what was applied as it was received, once, until its time is over', async () => {
  const fixture = await consumerFixture(db)
  const stop = fixture.start(recorder(fixture, () => undefined, { archive: true }))
  const [first, early] = [deposited('x', 1, 1), { ...deposited('x', 3, 3), orderingKey: 'early' }]
  await fixture.publish(early)
  await eventually(async () => (await fixture.count('inbox_message', 'state = 4')) === 1)
  await fixture.publish(first, deposited('x', 2, 2), published('a', 1))
  await fixture.settled(4)
  await fixture.publish(first)
  await eventually(async () => fixture.broker.deliveries.length >= 5 && (await atRest(fixture)) === 0)
  await stop()
  expect(
    await fixture.query(
      `select aggregate_id || ' ' || version as name, ordering_key, convert_from(body, 'UTF8')::json as data, attributes->>'event_type' as type from $schema.inbox_archive order by 1`,
    ),
  ).toEqual([
    { name: 'a 1', ordering_key: 'a', data: { title: 'a 1' }, type: 'VideoPublished' },
    { name: 'x 1', ordering_key: 'x', data: { amount: 1 }, type: 'Deposited' },
    { name: 'x 2', ordering_key: 'x', data: { amount: 2 }, type: 'Deposited' },
    { name: 'x 3', ordering_key: 'early', data: { amount: 3 }, type: 'Deposited' },
  ])
  const retention = createInboxRetention({ db, schema: fixture.schema, archiveMs: 3_600_000, signals: fixture.signals })
  await fixture.query(`update $schema.inbox_archive set archived_at = archived_at - interval '2 hours' where aggregate_id = 'x'`)
  await retention.pass(new AbortController().signal)
  expect(fixture.heard('inbox.retained')).toEqual([{ inbox: 0, attempts: 0, deadLetters: 0, archive: 3 }])
  expect(await fixture.count('inbox_archive')).toBe(1)
  expect(() => fixture.consumer({ archive: true })).toThrow(/archive: is for mode: 'stored'/)
})
