import { randomUUID } from 'node:crypto'
import { expect, test } from 'vitest'
import { consumerFixture, published, videos, type ConsumerFixture } from '../../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { systemClock, type Clock } from '../../core/service/clock.ts'
import { execute, rows, type Database } from '../../postgres/query/database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { inboxTables, type Scope } from '../tables/inbox.sql.ts'
import { makeLanes, renewLanes, takeLanes } from '../tables/stored.sql.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

const leaseMs = 60_000
const scopeOf = ({ schema }: ConsumerFixture): Scope => ({ tables: inboxTables(schema), consumer: 'catalog', generation: 1 })

/** Takes what lanes it can get, as another processor would. */
async function take(fixture: ConsumerFixture, lease = { token: randomUUID() as string, leaseMs }): Promise<number> {
  const taken = await rows(db, takeLanes(scopeOf(fixture), { ...lease, worker: 'another', count: 64, from: 0 }))
  return taken.length
}

/** A clock on which leases are prolonged when the test says so, and silence can be long. */
function heldClock(): { readonly clock: Clock; prolong(): Promise<void>; silence(ms: number): void } {
  const renewals: (() => void)[] = []
  let silentMs = 0
  const sleep: Clock['sleep'] = (delayMs, signal) => {
    if (delayMs !== leaseMs / 3) return systemClock.sleep(delayMs, signal)
    return new Promise((wake) => {
      renewals.push(wake)
      signal?.addEventListener('abort', () => wake(), { once: true })
    })
  }
  return {
    clock: { ...systemClock, monotonicMs: () => systemClock.monotonicMs() + silentMs, sleep },
    prolong: async () => {
      for (const wake of renewals.splice(0)) wake()
      await eventually(() => renewals.length === 1)
    },
    silence: (ms) => void (silentMs += ms),
  }
}

/** A batch of two whose lease is over as soon as its transaction begins, and which is held up at its projection. */
async function heldUp(fixture: ConsumerFixture, clock: Clock): Promise<{ letGo(): Promise<void>; stop(): Promise<void> }> {
  const locker = await database.pool.connect()
  await locker.query('begin')
  await locker.query(`lock table ${fixture.schema}.video_view in share mode`)
  let isOver = false
  const attempt: Database['attempt'] = async (options, work) => {
    if (!isOver)
      await fixture.query('update $schema.inbox_lane set lock_expires_at = clock_timestamp() where lock_token is not null')
    isOver = true
    return await db.attempt(options, work)
  }
  const options = {
    db: { ...db, attempt },
    clock,
    leaseMs,
    concurrency: 1,
    batchSize: 2,
    lingerMs: 10_000,
    lockTimeoutMs: 60_000,
  }
  const view = { table: `${fixture.schema}.video_view`, key: 'video_id', set: (event: { data: { title: string } }) => event.data }
  const stop = fixture.start(fixture.consumer({ mode: 'stored', streams: [videos], ...options }).project(videos, view))
  await fixture.publish(published('a', 1), published('b', 1))
  const waiting = `select from pg_locks where not granted and relation = '${fixture.schema}.video_view'::regclass`
  await eventually(async () => (await fixture.query(waiting)).length === 1)
  const letGo = async (): Promise<void> => {
    await locker.query('rollback')
    locker.release()
  }
  return { letGo, stop }
}

const overLeases = (fixture: ConsumerFixture): Promise<number> =>
  fixture.count('inbox_lane', 'lock_token is not null and lock_expires_at <= clock_timestamp()')

test('a batch whose statement takes longer than a lease keeps its lanes when that is rolled back, until it is halved', async () => {
  const fixture = await consumerFixture(db)
  await fixture.query(
    `create function $schema.slow() returns trigger language plpgsql as $$ begin
       if (select count(*) from rows) > 1 then raise exception 'canceling statement due to statement timeout' using errcode = '57014'; end if;
       return null; end $$`,
  )
  await fixture.query(
    'create trigger slow after insert on $schema.video_view referencing new table as rows for each statement execute function $schema.slow()',
  )
  const { clock, prolong } = heldClock()
  const { letGo, stop } = await heldUp(fixture, clock)
  expect(await overLeases(fixture)).toBeGreaterThan(0)
  expect(await take(fixture)).toBe(0)
  await prolong()
  expect(await overLeases(fixture)).toBe(0)
  await letGo()
  await eventually(() => fixture.heard('consumer.retried').length > 0)
  expect(await take(fixture)).toBe(0)
  await eventually(async () => (await fixture.count('video_view')) === 2)
  await stop()
  expect(fixture.heard('consumer.retried').map(({ count, error }) => [count, error])).toEqual([
    [2, expect.stringContaining('statement timeout')],
    [2, expect.stringContaining('statement timeout')],
  ])
})

test('a transaction that gives no sign of life for longer than it may does not keep its lanes', async () => {
  const fixture = await consumerFixture(db)
  const { clock, prolong, silence } = heldClock()
  const { letGo, stop } = await heldUp(fixture, clock)
  silence(90_001)
  await prolong()
  expect(await overLeases(fixture)).toBeGreaterThan(0)
  await letGo()
  await fixture.settled(2)
  await stop()
})

/** Lanes of which only one has work. */
async function lanesWithWork(): Promise<{ readonly fixture: ConsumerFixture; readonly scope: Scope }> {
  const fixture = await consumerFixture(db)
  const scope = scopeOf(fixture)
  await execute(db, makeLanes(scope))
  await fixture.query(
    `insert into $schema.inbox_message (key, lane, state, consumer, generation, event_id, aggregate_type, aggregate_id, version, topic, message_id, attributes, body, published_at)
     values (7, 7, 0, 'catalog', 1, gen_random_uuid(), 'video', 'a', 1, 'video.events', 'm', '{}', '', now())`,
  )
  return { fixture, scope }
}

test('a processor whose own lease is short takes no lane of a longer lease, unless that is from a future that it does not reach', async () => {
  const { fixture, scope } = await lanesWithWork()
  const lease = { token: randomUUID(), leaseMs: 60_000 }
  expect(await take(fixture, lease)).toBe(1)
  expect(await take(fixture, { token: randomUUID(), leaseMs: 1_000 })).toBe(0)
  await fixture.query(`update $schema.inbox_lane set locked_at = locked_at - interval '1 day'`)
  await execute(db, renewLanes(scope, { ...lease, lanes: [7] }))
  // What a clock that steps back by an hour makes of it.
  await fixture.query(
    `update $schema.inbox_lane set locked_at = locked_at + interval '1 hour', lock_expires_at = lock_expires_at + interval '1 hour'`,
  )
  expect(await take(fixture, { token: randomUUID(), leaseMs: 1_000 })).toBe(1)
})

test('a lane that another took is not prolonged', async () => {
  const { fixture, scope } = await lanesWithWork()
  const [first, second] = [randomUUID(), randomUUID()]
  expect(await take(fixture, { token: first, leaseMs: 0 })).toBe(1)
  expect(await take(fixture, { token: second, leaseMs })).toBe(1)
  const lane = (): Promise<unknown> => fixture.query('select lock_token, lock_expires_at from $schema.inbox_lane where lane = 7')
  const before = await lane()
  await execute(db, renewLanes(scope, { token: first, leaseMs, lanes: [7] }))
  expect(await lane()).toEqual(before)
  await execute(db, renewLanes(scope, { token: second, leaseMs, lanes: [7] }))
  expect(await lane()).not.toEqual(before)
})
