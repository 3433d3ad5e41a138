import { expect, test } from 'vitest'
import {
  accounts,
  consumerFixture,
  message,
  published,
  removed,
  videos,
  type ConsumerFixture,
} from '../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../test/setup/test-database.ts'
import type { Consumer } from '../consumer/consumer.ts'
import type { ConsumerOptions } from '../consumer/model/consumer-options.ts'
import type { WaybillError } from '../core/errors.ts'
import { createTokens, type Tokens } from '../core/event/token.ts'
import { maxVersion } from '../core/event/version.ts'
import type { Database } from '../postgres/query/database.ts'
import { fromPg } from '../postgres/adapters/from-pg.ts'
import type { OutgoingMessage } from '../transport/port/transport.ts'
import { eventually } from '../testing/kit/eventually.ts'
import { createFakeClock } from '../testing/kit/fake-clock.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
const names = { service: 'shop', environment: 'test' }
const tokens: Tokens = createTokens({ ...names, secrets: ['q83vASNFZ4mrze8Ay7F/wQhT1mPz0XcE'] })
const token = (aggregateId: string, version: number | bigint): string =>
  tokens.encode({ aggregateType: 'video', aggregateId, version: BigInt(version) })

function catalog(fixture: ConsumerFixture, options: Partial<ConsumerOptions> = {}): Consumer {
  return fixture
    .consumer({ tokens, ...options })
    .project(videos, { table: `${fixture.schema}.video_view`, key: 'video_id', set: (e) => ({ title: e.data.title }) })
}

/** The same database, which counts what is asked of it, and what it has answered. */
function counted(): { readonly db: Database; readonly count: () => number; readonly answers: () => number } {
  let [count, answers] = [0, 0]
  const query: Database['query'] = async (text, values) => {
    count += 1
    return await db.query(text, values).finally(() => (answers += 1))
  }
  return { db: { ...db, query }, count: () => count, answers: () => answers }
}

const everyPositions = ['every', 'needed'] as const

test.each(everyPositions)(
  'with a lag below the wait, reads by token come from the projection, and none is stale (positions: %s)',
  async (positions) => {
    const fixture = await consumerFixture(db)
    const consumer = catalog(fixture, { waitMs: 50_000, positions })
    const stop = fixture.start(consumer)
    let owner = 0
    const reads: Promise<{ version: string } | undefined>[] = []
    for (let i = 0; i < 1_000; i += 1) {
      const [id, version] = [`v${i % 50}`, Math.floor(i / 50) + 1]
      // The reader holds its token before the broker has the event.
      const read = consumer.read<{ version: string }, undefined>(videos, id, {
        atLeast: token(id, version),
        otherwise: () => void (owner += 1),
      })
      reads.push(
        read.then((row) => {
          expect(BigInt(row?.version ?? 0)).toBeGreaterThanOrEqual(BigInt(version))
          return row
        }),
      )
      if (i % 100 === 99)
        await fixture.publish(
          ...Array.from({ length: 100 }, (_, k) => i - 99 + k).map((k) => published(`v${k % 50}`, Math.floor(k / 50) + 1)),
        )
    }
    expect(await Promise.all(reads)).toHaveLength(1_000)
    expect(owner).toBe(0)
    await stop()
  },
)

test.each(everyPositions)(
  'with a lag above the wait, every read falls back to the owner, and none is stale (positions: %s)',
  async (positions) => {
    const fixture = await consumerFixture(db)
    const consumer = catalog(fixture, { positions })
    const stop = fixture.start(consumer)
    await fixture.publish(...Array.from({ length: 50 }, (_, i) => published(`v${i}`, 1)))
    await fixture.settled(50)
    const reasons: string[] = []
    const reads = Array.from({ length: 1_000 }, (_, i) =>
      consumer.read(videos, `v${i % 50}`, {
        atLeast: token(`v${i % 50}`, 2),
        waitMs: 50,
        otherwise: ({ code }) => {
          reasons.push(code)
          return { title: 'the owner says' }
        },
      }),
    )
    expect(new Set((await Promise.all(reads)).map((row) => (row as { title: string }).title))).toEqual(
      new Set(['the owner says']),
    )
    expect([reasons.length, ...new Set(reasons)]).toEqual([1_000, 'NOT_YET'])
    await expect(consumer.read(videos, 'v1', { atLeast: token('v1', 2), waitMs: 0 })).rejects.toMatchObject({
      code: 'NOT_YET',
      details: { aggregateId: 'v1', wanted: '2', seen: '1' },
    })
    await stop()
  },
)

test('a forged, foreign or absurd token is refused before anybody waits', async () => {
  const fixture = await consumerFixture(db)
  const asked = counted()
  const consumer = catalog(fixture, { db: asked.db, waitMs: 60_000 })
  const forged = [
    'nonsense',
    '',
    createTokens(names).encode({ aggregateType: 'video', aggregateId: 'a', version: 1n }),
    createTokens({ ...names, environment: 'staging', secrets: ['q83vASNFZ4mrze8Ay7F/wQhT1mPz0XcE'] }).encode({
      aggregateType: 'video',
      aggregateId: 'a',
      version: 1n,
    }),
    createTokens({ ...names, secrets: ['AAECAwQFBgcICQoLDA0ODw8ODQwLCgkI'] }).encode({
      aggregateType: 'video',
      aggregateId: 'a',
      version: 1n,
    }),
    token('a', 1).replace('w2.', 'w2.x'),
    tokens.encode({ aggregateType: 'elsewhere', aggregateId: 'a', version: 1n }),
    tokens.encode({ aggregateType: 'video', aggregateId: 'a\u0000b', version: 1n }),
  ]
  for (const each of forged) {
    await expect(consumer.waitFor(each)).rejects.toMatchObject({ code: 'INVALID_INPUT' })
    await expect(consumer.read(videos, 'a', { atLeast: each, otherwise: () => 'owner' })).rejects.toMatchObject({
      code: 'INVALID_INPUT',
    })
  }
  expect(asked.count()).toBe(0)
  await fixture.query(`insert into $schema.video_view values ('a', 'seen', 4711)`)
  const rows = catalog(fixture, { db: asked.db, waitMs: 60_000, positions: 'needed' })
  const huge = token('a', maxVersion)
  for (const each of [consumer, rows]) {
    const ends = [
      each.waitFor(huge),
      each.waitFor(huge, { waitMs: 0 }),
      each.read(videos, 'a', { atLeast: huge, otherwise: () => 'owner' }),
      each.waitFor(token('a', 4_712), { waitMs: 0 }),
    ].map((end) => end.catch((error: unknown) => error))
    const refused = (await Promise.all(ends)) as WaybillError[]
    expect(refused.map(({ code }) => code)).toEqual(['INVALID_INPUT', 'INVALID_INPUT', 'INVALID_INPUT', 'NOT_YET'])
    // Who made the token up may not be one who reads the aggregate.
    expect(refused.map(({ message }) => message).join()).not.toContain('4711')
  }
})

test.each(everyPositions)(
  'a token of another aggregate of the stream says nothing about the row (positions: %s)',
  async (positions) => {
    const fixture = await consumerFixture(db)
    await fixture.query(`insert into $schema.video_view values ('a', 'here', 1)`)
    const asked = counted()
    const consumer = catalog(fixture, { db: asked.db, positions })
    const answers = [7n, maxVersion].map((version) =>
      consumer.read(videos, 'a', { atLeast: token('b', version), waitMs: 60_000 }),
    )
    for (const row of await Promise.all(answers)) expect(row).toMatchObject({ title: 'here' })
    expect(asked.count()).toBe(2)
  },
)

test('the owner is asked for so many readers at once and no more, and again when they are served', async () => {
  const fixture = await consumerFixture(db)
  const consumer = catalog(fixture, { maxFallbacks: 2 })
  const { promise: held, resolve: answer } = Promise.withResolvers<string>()
  let asked = 0
  const otherwise = (): Promise<string> => ((asked += 1), held)
  const read = (id: string): Promise<unknown> => consumer.read(videos, id, { atLeast: token(id, 1), waitMs: 0, otherwise })
  const served = [read('f1'), read('f2')]
  await eventually(() => asked === 2)
  await expect(read('f3')).rejects.toMatchObject({ code: 'OVERLOADED', message: expect.stringContaining('maxFallbacks') })
  expect(asked).toBe(2)
  answer('owner')
  expect(await Promise.all(served)).toEqual(['owner', 'owner'])
  expect(await read('f4')).toBe('owner')
})

test('a flood of readers with tokens asks the database and the owner for a bounded number of them', async () => {
  const fixture = await consumerFixture(db)
  const asked = counted()
  const consumer = catalog(fixture, { db: asked.db, maxWaiters: 5, maxFallbacks: 3 })
  let fallbacks = 0
  const otherwise = async (): Promise<string> => await Promise.resolve(((fallbacks += 1), 'owner'))
  const ends = await Promise.allSettled(
    Array.from({ length: 1_000 }, (_, nth) =>
      consumer.read(videos, `f${nth}`, { atLeast: token(`f${nth}`, 1), waitMs: 0, otherwise }),
    ),
  )
  expect(asked.count()).toBe(5)
  expect(fallbacks).toBeLessThanOrEqual(8)
  const codes = ends.map((end) => (end.status === 'rejected' ? (end.reason as { readonly code: string }).code : end.value))
  expect(codes.filter((code) => code === 'OVERLOADED')).toHaveLength(1_000 - fallbacks)
})

test('10,000 waiters cost the database as many queries as one, and a place more is refused', async () => {
  const fixture = await consumerFixture(db)
  const [waitMs, waitPollMs] = [200, 100]
  let late: unknown
  const wait = async (waiters: number): Promise<number> => {
    const [asked, clock] = [counted(), createFakeClock()]
    const consumer = catalog(fixture, { db: asked.db, waitPollMs, clock })
    const ends = Array.from({ length: waiters }, (_, i) =>
      consumer.waitFor(token(`w${i}`, 1), { waitMs }).catch((error: unknown) => error),
    )
    if (waiters === 10_000) late = await consumer.waitFor(token('late', 1)).catch((error: unknown) => error)
    for (let looks = 1; looks <= waitMs / waitPollMs; looks += 1) {
      await eventually(() => asked.answers() === looks)
      await clock.advance(waitPollMs)
    }
    for (const end of await Promise.all(ends)) expect(end).toMatchObject({ code: 'NOT_YET' })
    return asked.count()
  }
  expect(await wait(1)).toBe(waitMs / waitPollMs)
  expect(await wait(10_000)).toBe(waitMs / waitPollMs)
  expect(late).toMatchObject({ code: 'OVERLOADED' })
})

test('a token is reached by events that the consumer ignores, and 9 is less than 10', async () => {
  const fixture = await consumerFixture(db)
  const consumer = catalog(fixture)
  const stop = fixture.start(consumer)
  const ignored = (version: number): OutgoingMessage =>
    message({ stream: accounts, type: 'BalanceSet', id: 'x', version }, { balance: 1 })
  const of = (version: bigint): string => tokens.encode({ aggregateType: 'account', aggregateId: 'x', version })
  await fixture.publish(ignored(8), ignored(9))
  await consumer.waitFor(of(9n), { waitMs: 60_000 })
  const [asked, clock] = [counted(), createFakeClock()]
  const early = catalog(fixture, { db: asked.db, clock }).waitFor(of(10n), { waitMs: 20 })
  const looked = eventually(() => asked.answers() === 1).then(() => clock.advance(20))
  await expect(early).rejects.toMatchObject({ code: 'NOT_YET', details: { seen: '9' } })
  await looked
  await fixture.publish(ignored(10))
  await consumer.waitFor(of(10n), { waitMs: 60_000 })
  await stop()
})

test.each(everyPositions)('another process waits and reads without running the consumer (positions: %s)', async (positions) => {
  const fixture = await consumerFixture(db)
  const stop = fixture.start(catalog(fixture, { positions }))
  const reader = catalog(fixture, { positions })
  const read = reader.read(videos, 'a', { atLeast: token('a', 2), waitMs: 60_000 })
  await fixture.publish(published('a', 1), published('a', 2))
  expect(await read).toMatchObject({ video_id: 'a', title: 'a 2' })
  await fixture.publish(removed('a', 3))
  expect(await reader.read(videos, 'a', { atLeast: token('a', 3), waitMs: 60_000 })).toBeUndefined()
  expect(await reader.read(videos, 'unknown')).toBeUndefined()
  await stop()
})

test('without positions, rows vouch for tokens: deleted ones, keys of several columns, and none that was made up', async () => {
  const fixture = await consumerFixture(db)
  await fixture.query(
    `create table $schema.part_view (part int, video_id uuid, title text, version bigint not null, deleted_at timestamptz, primary key (part, video_id))`,
  )
  const consumer = fixture.consumer({ tokens, positions: 'needed' }).project(videos, {
    table: `${fixture.schema}.part_view`,
    key: ['part', 'video_id'],
    keyOf: (id) => id.split('/'),
    set: (e) => ({ title: e.data.title }),
  })
  const id = '7/0198c2f0-0000-7000-8000-000000000001'
  const stop = fixture.start(consumer)
  const made = [token('x/not a uuid', 1), token(`${'9'.repeat(30)}/0198c2f0-0000-7000-8000-000000000001`, 1)]
  const refused = made.map((each) => consumer.waitFor(each, { waitMs: 300 }).catch((error: unknown) => error))
  const waits = [1, 2].map((version) => consumer.waitFor(token(id, version), { waitMs: 60_000 }))
  await fixture.publish(published(id, 1), published(id, 2))
  await Promise.all(waits)
  expect(await consumer.read(videos, id, { atLeast: token(id, 2) })).toMatchObject({ part: 7, title: `${id} 2` })
  await fixture.publish(removed(id, 3))
  expect(await consumer.read(videos, id, { atLeast: token(id, 3), waitMs: 60_000 })).toBeUndefined()
  await expect(consumer.waitFor(token(id, 4), { waitMs: 0 })).rejects.toMatchObject({ code: 'NOT_YET', details: { seen: '3' } })
  for (const end of await Promise.all(refused)) expect(end).toMatchObject({ code: 'NOT_YET' })
  await stop()
  expect(await fixture.count('consumer_position')).toBe(0)
})

test('a token of which keyOf can make no key is refused before anybody waits, and disturbs nobody who does', async () => {
  const fixture = await consumerFixture(db)
  const consumer = fixture.consumer({ tokens, positions: 'needed' }).project(videos, {
    table: `${fixture.schema}.video_view`,
    key: 'video_id',
    keyOf: (id) => [decodeURIComponent(id)],
    set: (e) => ({ title: e.data.title }),
  })
  const stop = fixture.start(consumer)
  const leave = new AbortController()
  const forged = consumer.waitFor(token('%', 1), { waitMs: 60_000, signal: leave.signal }).catch((error: unknown) => error)
  const wait = consumer.waitFor(token('a', 1), { waitMs: 60_000 })
  await fixture.publish(published('a', 1))
  await wait
  leave.abort()
  expect(await forged).toMatchObject({ code: 'INVALID_INPUT', cause: expect.any(URIError) })
  await stop()
})

test('readers who wait for several rows at once, in whatever order, are each served by their own', async () => {
  const fixture = await consumerFixture(db)
  await fixture.query(`insert into $schema.video_view values ('b', 'behind', 1), ('a', 'ahead', 7), ('c', 'ahead', 7)`)
  const consumer = catalog(fixture, { positions: 'needed' })
  const leave = new AbortController()
  const behind = consumer.waitFor(token('b', 5), { waitMs: 60_000, signal: leave.signal })
  await Promise.all(['c', 'a'].map((id) => consumer.waitFor(token(id, 5), { waitMs: 60_000 })))
  leave.abort()
  await expect(behind).rejects.toMatchObject({ code: 'ABORTED' })
})

test.each(everyPositions)(
  'a row from before its table had versions takes the first event, and readers wait for it (positions: %s)',
  async (positions) => {
    const fixture = await consumerFixture(db)
    await fixture.query('alter table $schema.video_view alter column version drop not null')
    await fixture.query(`insert into $schema.video_view values ('a', 'from before', null), ('b', 'from before', null)`)
    const consumer = catalog(fixture, { positions })
    await expect(consumer.waitFor(token('a', 1), { waitMs: 0 })).rejects.toMatchObject({
      code: 'NOT_YET',
      details: { seen: '0' },
    })
    expect(await consumer.read(videos, 'a')).toMatchObject({ title: 'from before' })
    const stop = fixture.start(consumer)
    const wait = consumer.waitFor(token('a', 1), { waitMs: 60_000 })
    await fixture.publish(published('a', 1), removed('b', 1))
    await fixture.settled(2)
    await stop()
    expect(
      await fixture.query('select video_id, title, version, deleted_at is null as there from $schema.video_view order by 1'),
    ).toEqual([
      { video_id: 'a', title: 'a 1', version: '1', there: true },
      { video_id: 'b', title: 'from before', version: '1', there: false },
    ])
    await wait
  },
)

test('a read says which projection it cannot find, or cannot choose', async () => {
  const fixture = await consumerFixture(db)
  await db.query(`create table ${fixture.schema}.other_view (like ${fixture.schema}.video_view including all)`)
  const consumer = catalog(fixture).project(videos, { table: `${fixture.schema}.other_view`, key: 'video_id', set: () => ({}) })
  await expect(consumer.read(accounts, 'a')).rejects.toMatchObject({ code: 'UNKNOWN_NAME' })
  await expect(consumer.read(videos, 'a')).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  expect(await consumer.read(videos, 'a', { table: `${fixture.schema}.other_view` })).toBeUndefined()
  await expect(consumer.read(videos, 'a', { atleast: 'x' } as never)).rejects.toThrow(/Did you mean "atLeast"/)
})

test('a consumer is ready when it has caught up, and says why it is not', async () => {
  const fixture = await consumerFixture(db)
  const consumer = catalog(fixture, { readyLagMs: 60_000 })
  expect(await consumer.readiness()).toMatchObject({ ready: false, reasons: [{ code: 'unknown' }] })
  const old = { occurred_at: new Date(Date.now() - 3_600_000).toISOString() }
  await fixture.publish(published('a', 1, 'old', old))
  const stop = fixture.start(consumer)
  await fixture.settled(1)
  expect(await consumer.readiness()).toMatchObject({ ready: false, reasons: [{ code: 'incomplete' }] })
  expect(await catalog(fixture).readiness()).toMatchObject({ ready: false, reasons: [{ code: 'incomplete' }] })
  await fixture.publish(published('a', 2))
  await eventually(async () => (await consumer.readiness()).ready)
  expect(await catalog(fixture).readiness()).toEqual({ ready: true, reasons: [], notes: [] })
  await fixture.publish(published('a', 3, 'late', old))
  await fixture.settled(3)
  await eventually(async () => (await consumer.readiness()).reasons[0]?.code === 'lagging')
  await db.query(`update ${fixture.schema}.consumer set paused = true`)
  await eventually(async () => (await consumer.readiness()).reasons[0]?.code === 'paused')
  await stop()
})
