import { expect, test } from 'vitest'
import { consumerFixture, deposited, published, videos, type ConsumerFixture } from '../../../test/setup/consumer-fixture.ts'
import { skewedClock } from '../../../test/setup/skewed-clock.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { errorMessage } from '../../core/errors.ts'
import { one } from '../../postgres/query/database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import type { SeekTarget } from '../../transport/port/transport.ts'
import type { Consumer } from '../consumer.ts'
import { selectMoment } from '../tables/retention.sql.ts'
import { discardDeadLetters } from './discard.ts'
import { createInboxRetention, type InboxRetentionOptions } from './retention.ts'
import { replayConsumer } from './replay.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
const dayMs = 86_400_000
const aborting = new AbortController().signal

const catalog = (fixture: ConsumerFixture): Consumer =>
  fixture
    .consumer()
    .project(videos, { table: `${fixture.schema}.video_view`, key: 'video_id', set: (e) => ({ title: e.data.title }) })

/** The moment, by the database's clock. */
const moment = async (): Promise<number> => Number((await one(db, selectMoment())).at_ms)

/** A consumer that has applied three videos, the first of them 40 days ago. */
async function aged(): Promise<ConsumerFixture> {
  const fixture = await consumerFixture(db)
  const stop = fixture.start(catalog(fixture))
  await fixture.publish(published('a', 1), published('b', 1), published('c', 1))
  await fixture.settled(3)
  await stop()
  await fixture.query(
    `update $schema.inbox set processed_at = processed_at - interval '40 days' where event_id = (select min(event_id::text)::uuid from $schema.inbox)`,
  )
  return fixture
}

const retention = (fixture: ConsumerFixture, options?: Partial<InboxRetentionOptions>): ReturnType<typeof createInboxRetention> =>
  createInboxRetention({ db, schema: fixture.schema, signals: fixture.signals, ...options })

test('old inbox rows and attempts go in batches, and the consumer knows how far back it remembers', async () => {
  const fixture = await aged()
  await fixture.query(
    `insert into $schema.delivery_attempt (consumer, generation, event_id, first_at)
     select 'catalog', 1, gen_random_uuid(), clock_timestamp() - n * interval '1 day' from generate_series(34, 37) as n`,
  )
  const { pass } = retention(fixture, { batchSize: 2 })
  expect(await pass(aborting)).toBe('more')
  expect(await pass(aborting)).toBe('idle')
  expect(await pass(aborting)).toBe('idle')
  expect(await fixture.count('inbox')).toBe(2)
  expect(await fixture.count('delivery_attempt')).toBe(1)
  expect(fixture.heard('inbox.retained')).toEqual([
    { inbox: 1, attempts: 2, deadLetters: 0, archive: 0 },
    { inbox: 0, attempts: 1, deadLetters: 0, archive: 0 },
  ])
  const [memory] = await fixture.query<{ days: number }>(
    `select round(extract(epoch from clock_timestamp() - forgotten_before) / 86400)::int as days from $schema.consumer`,
  )
  expect(memory).toEqual({ days: 35 })
})

/** How many rows of a table a statement looks at. What it does is undone. */
async function lookedAt(table: string, text: string, values: Parameters<typeof db.query>[1]): Promise<number> {
  interface Plan {
    readonly 'Relation Name'?: string
    readonly 'Actual Rows': number
    readonly 'Rows Removed by Filter'?: number
    readonly 'Rows Removed by Index Recheck'?: number
    readonly Plans?: readonly Plan[]
  }
  const sum = (plan: Plan): number => {
    const own = plan['Actual Rows'] + (plan['Rows Removed by Filter'] ?? 0) + (plan['Rows Removed by Index Recheck'] ?? 0)
    return (plan.Plans ?? []).reduce((total, each) => total + sum(each), plan['Relation Name'] === table ? own : 0)
  }
  const client = await database.pool.connect()
  try {
    await client.query('begin')
    const { rows } = await client.query(`explain (analyze, format json) ${text}`, [...(values ?? [])])
    await client.query('rollback')
    return sum((rows[0] as { 'QUERY PLAN': { Plan: Plan }[] })['QUERY PLAN'][0]?.Plan as Plan)
  } finally {
    client.release()
  }
}

test('a pass over a large inbox whose space was used again looks at a part of it', async () => {
  const fixture = await consumerFixture(db)
  // Four rows in a block, a thousand blocks.
  const fill = (days: number): Promise<unknown> =>
    fixture.query(
      `insert into $schema.inbox (consumer, generation, event_id, source, processed_at)
       select 'catalog', 1, gen_random_uuid(), repeat('x', 1800), clock_timestamp() - ${days} * interval '1 day' from generate_series(1, 4000)`,
    )
  await fixture.query('alter table $schema.inbox set (autovacuum_enabled = off)')
  await fill(40)
  await fixture.query('vacuum $schema.inbox')
  await fixture.query('delete from $schema.inbox where ctid <> (select max(ctid) from $schema.inbox)')
  await fixture.query('vacuum $schema.inbox')
  await fill(0)
  await fixture.query('vacuum analyze $schema.inbox')
  const asked: Parameters<typeof db.query>[] = []
  const { pass } = retention(fixture, {
    db: { query: (text, values) => (asked.push([text, values]), db.query(text, values)) },
  })
  for (let i = 0; i < 3; i += 1) expect(await pass(aborting)).toBe('idle')
  expect(await fixture.count('inbox')).toBe(4_000)
  const looks = asked.filter(([text]) => text.includes('noted as'))
  expect(looks).toHaveLength(3)
  for (const look of looks) expect(await lookedAt('inbox', ...look)).toBeLessThanOrEqual(4 * 512)
})

test('as long as nothing was removed the inbox remembers everything', async () => {
  const fixture = await aged()
  expect(await retention(fixture, { inboxMs: 50 * dayMs }).pass(aborting)).toBe('idle')
  expect(await fixture.count('consumer', 'forgotten_before is null')).toBe(1)
})

test('settled dead letters go after their time; one that nobody settled stays', async () => {
  const fixture = await consumerFixture(db)
  await fixture.query(
    `insert into $schema.dead_letter (consumer, generation, event_id, event_type, topic, reason, error, attempts, state, message_id, attributes, body, published_at, first_failed_at, dead_at)
     select 'catalog', 1, gen_random_uuid(), 'Deposited', 'bank.events', 'failed', 'broken', 1, s, 'm', '{}', '', clock_timestamp(), clock_timestamp(), clock_timestamp() - age * interval '1 day'
       from unnest(array['dead', 'redriving', 'redriven', 'discarded']) as s, unnest(array[10, 100]) as age`,
  )
  await retention(fixture).pass(aborting)
  expect(await fixture.query(`select state, count(*)::int from $schema.dead_letter group by 1 order by 1`)).toEqual([
    { state: 'dead', count: 2 },
    { state: 'discarded', count: 1 },
    { state: 'redriven', count: 1 },
    { state: 'redriving', count: 2 },
  ])
})

test('a letter that was dead for long is kept for its whole time from when it was discarded: a rebuild asks what was', async () => {
  const fixture = await consumerFixture(db)
  await fixture.query(
    `insert into $schema.dead_letter (consumer, generation, event_id, event_type, topic, reason, error, attempts, message_id, attributes, body, published_at, first_failed_at, dead_at)
     values ('catalog', 1, gen_random_uuid(), 'Deposited', 'bank.events', 'failed', 'broken', 1, 'm', '{}', '', clock_timestamp(), clock_timestamp(), clock_timestamp() - interval '100 days')`,
  )
  await discardDeadLetters({ db, schema: fixture.schema, filter: { all: true }, actor: 'ada' })
  await retention(fixture).pass(aborting)
  expect(await fixture.query('select state from $schema.dead_letter')).toEqual([{ state: 'discarded' }])
  await retention(fixture, { deadLettersMs: 0 }).pass(aborting)
  expect(await fixture.count('dead_letter')).toBe(0)
})

test('an inbox that forgets before the broker does is refused at the start, or reported by choice', async () => {
  const fixture = await aged()
  const life = { stopping: AbortSignal.abort(), aborting }
  await expect(retention(fixture, { inboxMs: 7 * dayMs }).run(life)).rejects.toThrow(
    /forgets after 7 days, but the broker can deliver a message again for 31 days: such a message would be applied twice/,
  )
  await retention(fixture, { inboxMs: 7 * dayMs, onShortMemory: 'warn' }).run(life)
  expect(fixture.heard('inbox.memory-short')).toEqual([{ inboxMs: 7 * dayMs, brokerMs: 31 * dayMs }])
  await retention(fixture, { inboxMs: 7 * dayMs, brokerMs: 7 * dayMs }).run(life)
})

test('a step of the database’s clock removes nothing from the inbox, and nothing is called forgotten', async () => {
  const fixture = await consumerFixture(db)
  const insert = (): Promise<unknown> =>
    fixture.query(
      `insert into $schema.inbox (consumer, generation, event_id, source) select 'catalog', 1, gen_random_uuid(), 'video' from generate_series(1, 10)`,
    )
  const { db: skewed, step } = skewedClock(db)
  await insert()
  await retention(fixture, { db: skewed }).pass(aborting)
  step(365 * dayMs)
  for (let i = 0; i < 2; i += 1) await retention(fixture, { db: skewed }).pass(aborting)
  expect(await fixture.count('inbox')).toBe(10)
  expect(await fixture.count('consumer', 'forgotten_before is not null')).toBe(0)
  expect(fixture.heard('inbox.retained')).toEqual([])
  expect(fixture.heard('retention.clock-leapt').map(({ byMs }) => Math.round(byMs / dayMs))).toEqual([365])
})

test('what was written of an event after its effect had committed goes with the next round, however young', async () => {
  const fixture = await consumerFixture(db)
  await fixture.query(
    `insert into $schema.delivery_attempt (consumer, generation, event_id) select 'catalog', 1, gen_random_uuid() from generate_series(1, 2)`,
  )
  await fixture.query(
    `insert into $schema.inbox (consumer, generation, event_id, source) select consumer, generation, event_id, 'video' from $schema.delivery_attempt limit 1`,
  )
  await retention(fixture).pass(aborting)
  expect(await fixture.count('delivery_attempt')).toBe(1)
})

test('a replay beyond the memory of the inbox is refused and says why; within it, it changes nothing', async () => {
  const fixture = await aged()
  const options = { db, schema: fixture.schema, transport: fixture.broker, consumer: 'catalog', topics: ['video.events'] }
  await retention(fixture).pass(aborting)
  await expect(replayConsumer({ ...options, to: 'earliest' })).rejects.toThrow(
    /reaches beyond the memory of the inbox: consumer catalog has forgotten what it processed before .* and would apply it again/,
  )
  await expect(replayConsumer({ ...options, to: { sinceMs: Date.now() - 36 * dayMs } })).rejects.toMatchObject({
    code: 'REFUSED',
  })
  await expect(replayConsumer({ ...options, consumer: 'nobody', to: 'earliest' })).rejects.toMatchObject({ code: 'NOT_FOUND' })
  const future = { sinceMs: (await moment()) + dayMs }
  await expect(replayConsumer({ ...options, to: future, beyondMemory: true, skipOlder: true })).rejects.toThrow(
    /begins in the future: by the clock of the database it is /,
  )
  expect(fixture.broker.deliveries).toHaveLength(3)

  const stop = fixture.start(catalog(fixture))
  await eventually(async () => {
    await replayConsumer({ ...options, to: { sinceMs: Date.now() - dayMs } })
    return fixture.broker.deliveries.length >= 6
  })
  await replayConsumer({ ...options, to: 'earliest', beyondMemory: true })
  await eventually(() => fixture.broker.deliveries.length >= 9)
  await fixture.publish(deposited('x', 1, 1))
  await stop()
  expect(await fixture.count('video_view')).toBe(3)
})

test('a replay skips nothing that was not applied; over a broker that cannot tell what that is, only by choice', async () => {
  const fixture = await aged()
  const { schema, broker: transport } = fixture
  const options = { db, schema, transport, consumer: 'catalog', topics: ['video.events'] }
  await fixture.publish(published('d', 1))
  const to = { sinceMs: await moment() }
  const sought: unknown[] = []
  const blind = { ...options, transport: { seek: async (target: unknown) => void sought.push(target) } }
  await expect(replayConsumer({ ...blind, to })).rejects.toThrow(
    /cannot tell what consumer catalog has not settled.*Replay from earliest.*let its backlog come to zero.*--skip-older/,
  )
  await replayConsumer({ ...blind, to: 'earliest' })
  await replayConsumer({ ...blind, to, skipOlder: true })
  expect(sought).toEqual(['earliest', to].map((each) => ({ topic: 'video.events', consumer: 'catalog', to: each })))

  await replayConsumer({ ...options, to })
  const stop = fixture.start(catalog(fixture))
  await eventually(async () => (await fixture.count('video_view')) === 4)
  await stop()
})

test('over a broker that cannot tell what was not applied, a refused replay names one that the inbox remembers and that is not refused', async () => {
  const fixture = await aged()
  await retention(fixture).pass(aborting)
  const advised = /Replay from (\S+) with skipOlder \(--skip-older\)/
  const sought: SeekTarget[] = []
  const transport = { seek: async ({ to }: { readonly to: SeekTarget }) => void sought.push(to) }
  const options = { db, schema: fixture.schema, transport, consumer: 'catalog', topics: ['video.events'] }
  for (const to of ['earliest', { sinceMs: (await moment()) - dayMs }] as const) {
    const refusal = await replayConsumer({ ...options, to }).catch(errorMessage)
    expect(refusal).not.toContain('from earliest')
    expect(refusal).toMatch(advised)
    const [, from = ''] = advised.exec(refusal ?? '') ?? []
    // Until somebody has read it, the inbox forgets more.
    await fixture.query(`update $schema.consumer set forgotten_before = forgotten_before + interval '10 minutes'`)
    await replayConsumer({ ...options, to: { sinceMs: Date.parse(from) }, skipOlder: true })
  }
  expect(sought).toHaveLength(2)
})
