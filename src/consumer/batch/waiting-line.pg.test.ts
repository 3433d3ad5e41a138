import { expect, test } from 'vitest'
import {
  accounts,
  consumerFixture,
  deposited,
  message,
  published,
  videos,
  type ConsumerFixture,
} from '../../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { rows, type Database } from '../../postgres/query/database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import type { Statement } from '../../postgres/query/sql.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import type { OutgoingMessage } from '../../transport/port/transport.ts'
import { archiveWaiting } from '../tables/retention.sql.ts'
import type { Consumer } from '../consumer.ts'
import type { ConsumerOptions } from '../model/consumer-options.ts'
import { discardDeadLetters } from '../operate/discard.ts'
import { retryAfter, type ConsumedEvent, type HandlerContext } from '../model/handler.ts'
import { inboxTables, readReleased, readWaiting, removeStored } from '../tables/inbox.sql.ts'
import { pauseConsumer, resumeConsumer } from '../operate/pause.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
const never = 600_000

function recorder(fixture: ConsumerFixture, options: Partial<ConsumerOptions>, before?: (version: number) => void): Consumer {
  const record = async (event: Pick<ConsumedEvent, 'version'>, { tx }: Pick<HandlerContext, 'tx'>): Promise<void> => {
    before?.(Number(event.version))
    await tx.query(`insert into ${fixture.schema}.effect (version) values ($1)`, [String(event.version)])
  }
  const consumer = fixture.consumer({ streams: [videos], ...options })
  return options.streams?.includes(accounts) === true
    ? consumer.on(accounts.Deposited, record).on(accounts.BalanceSet, record)
    : consumer.on(videos.VideoPublished, record)
}

/** Starts it, and waits until it has looked at what waits: after that nobody does, unless something is delivered. */
async function startedAndLooked(fixture: ConsumerFixture, options: Partial<ConsumerOptions> = {}): Promise<() => Promise<void>> {
  const looked = Promise.withResolvers<void>()
  const watched: Database = {
    ...db,
    query: async (text, values) => {
      const result = await db.query(text, values)
      if (text.includes('with line as materialized')) looked.resolve()
      return result
    },
  }
  const stop = fixture.start(recorder(fixture, { db: watched, pollMs: never, ...options }))
  await looked.promise
  return stop
}

const versions = async (fixture: ConsumerFixture): Promise<readonly number[]> =>
  (await fixture.query<{ version: number }>('select version::int from $schema.effect order by at')).map(({ version }) => version)

const balance = (version: number, data: unknown): OutgoingMessage =>
  message({ stream: accounts, type: 'BalanceSet', id: 'x', version }, data)

function action(fixture: ConsumerFixture): Parameters<typeof pauseConsumer>[0] {
  return { db, schema: fixture.schema, consumer: 'catalog', aggregate: { type: 'video', id: 'v' }, actor: 'ada' }
}

/** Version 1 is handled, and the given ones wait because their aggregate is paused. */
async function paused(fixture: ConsumerFixture, ...waiting: readonly number[]): Promise<readonly OutgoingMessage[]> {
  await fixture.publish(published('v', 1))
  await eventually(async () => (await fixture.count('effect')) === 1)
  await pauseConsumer(action(fixture))
  const messages = waiting.map((version) => published('v', version))
  await fixture.publish(...messages)
  await eventually(async () => (await fixture.count('inbox_message')) === waiting.length)
  return messages
}

test('a state that is delivered before anybody looked at what waits is handled behind it', async () => {
  const fixture = await consumerFixture(db)
  const stop = await startedAndLooked(fixture)
  await paused(fixture, 2, 3)
  await resumeConsumer(action(fixture))
  await fixture.publish(published('v', 4))
  await eventually(async () => (await fixture.count('effect')) === 4)
  await stop()
  expect(await versions(fixture)).toEqual([1, 2, 3, 4])
})

test('a state that is delivered while more waits than one batch takes is handled behind all of it', async () => {
  const fixture = await consumerFixture(db)
  const stop = await startedAndLooked(fixture, { batchSize: 2 })
  await paused(fixture, 2, 3, 4, 5)
  await resumeConsumer(action(fixture))
  await fixture.publish(published('v', 6))
  await eventually(async () => (await fixture.count('effect')) === 3)
  expect(await fixture.query('select version::int, waiting from $schema.consumer_position')).toEqual([{ version: 3, waiting: 3 }])
  await fixture.publish(published('v', 7))
  await eventually(async () => (await fixture.count('effect')) === 5)
  await fixture.publish(published('v', 8))
  await eventually(async () => (await fixture.count('effect')) === 8)
  await stop()
  expect(await versions(fixture)).toEqual([1, 2, 3, 4, 5, 6, 7, 8])
  expect(await fixture.query('select version::int, waiting from $schema.consumer_position')).toEqual([{ version: 8, waiting: 0 }])
})

test('one that is delivered again while its stored copy waits is handled once, in its turn', async () => {
  const fixture = await consumerFixture(db)
  const stop = await startedAndLooked(fixture, { batchSize: 2 })
  const [, third, fourth] = await paused(fixture, 2, 3, 4)
  await resumeConsumer(action(fixture))
  await fixture.publish(third!)
  await eventually(async () => (await fixture.count('effect')) === 3)
  await fixture.publish(fourth!)
  await eventually(async () => (await fixture.count('effect')) === 4)
  await stop()
  expect(await versions(fixture)).toEqual([1, 2, 3, 4])
  expect(await fixture.count('inbox_message')).toBe(0)
  expect(await fixture.count('inbox')).toBe(4)
})

test('what waits and rests after a failure is not called again by a delivery of its aggregate, which comes behind it', async () => {
  const fixture = await consumerFixture(db)
  const calls: number[] = []
  const consumer = recorder(fixture, {}, (version) => {
    calls.push(version)
    if (version === 2) throw retryAfter(never)
  })
  const stop = fixture.start(consumer)
  await paused(fixture, 2)
  await resumeConsumer(action(fixture))
  await eventually(() => fixture.heard('consumer.failed').length === 1)
  await fixture.publish(published('v', 3), { ...published('v', 4), orderingKey: undefined })
  await eventually(async () => (await fixture.count('effect')) === 2 && (await fixture.count('inbox_message')) === 2)
  await stop()
  // Whoever publishes without an ordering key asks for no order.
  expect(calls).toEqual([1, 2, 4])
})

test('a state that waited behind a discarded one closes the gap before it', async () => {
  const fixture = await consumerFixture(db)
  const stop = fixture.start(recorder(fixture, { streams: [accounts] }))
  await fixture.publish(balance(10, 'no balance'), balance(11, { balance: 5 }), deposited('x', 12, 1))
  await eventually(async () => (await fixture.count('dead_letter')) === 1 && (await fixture.count('inbox_message')) === 2)
  await discardDeadLetters({ db, schema: fixture.schema, filter: { all: true }, actor: 'ada' })
  await eventually(async () => (await fixture.count('effect')) === 2)
  await stop()
  expect(await versions(fixture)).toEqual([11, 12])
  expect(await fixture.count('inbox_message')).toBe(0)
})

test('what waits of a stream that the consumer does not read any more keeps nobody from their turn', async () => {
  const fixture = await consumerFixture(db)
  const first = fixture.start(recorder(fixture, { streams: [accounts, videos] }).on(videos.VideoPublished, () => undefined))
  await eventually(async () => (await fixture.count('consumer')) === 1)
  await pauseConsumer(action(fixture))
  await fixture.publish(...Array.from({ length: 500 }, (_, i) => deposited('x', i + 2, 1)), published('v', 1))
  await eventually(async () => (await fixture.count('inbox_message')) === 501)
  await first()
  await resumeConsumer(action(fixture))
  const second = fixture.start(recorder(fixture, {}))
  await eventually(async () => (await fixture.count('effect')) === 1)
  await second()
  expect(await fixture.count('inbox_message')).toBe(500)
})

/** Rows of what waits that statements fetch. */
async function fetched(fixture: ConsumerFixture, ...asked: readonly Statement<unknown>[]): Promise<readonly number[]> {
  const fetches = `select seq_tup_read + idx_tup_fetch as fetched from pg_stat_xact_user_tables where schemaname = $1 and relname = 'inbox_message'`
  return await transaction(db, async (tx) => {
    const read = async (): Promise<number> =>
      Number(Object.values((await tx.query(fetches, [fixture.schema])).rows[0] as Record<string, unknown>)[0])
    const counts: number[] = []
    for (const statement of asked) {
      const before = await read()
      await rows(tx, statement)
      counts.push((await read()) - before)
    }
    return counts
  })
}

test('what waits behind a gap costs a bounded look, however much it is', async () => {
  const fixture = await consumerFixture(db)
  await fixture.query(
    `insert into $schema.inbox_message (key, lane, state, consumer, generation, event_id, aggregate_type, aggregate_id, version, topic, message_id, attributes, body, published_at)
     select 1, 1, 4, 'catalog', 1, gen_random_uuid(), 'account', a, v, 't', v::text, '{"event_type": "Deposited"}', '', clock_timestamp()
       from unnest(array['x', 'y']) as a, generate_series(2, 5001) as v`,
  )
  await fixture.query(
    `insert into $schema.consumer_position (consumer, generation, aggregate_type, aggregate_id, version, waiting)
     select 'catalog', 1, 'account', a, 0, 5000 from unnest(array['x', 'y']) as a`,
  )
  await fixture.query('analyze $schema.inbox_message')
  const scope = { tables: inboxTables(fixture.schema), consumer: 'catalog', generation: 1 }
  const line = { types: ['account'], sequentialTypes: ['account'], known: [], deltaStart: 'first' } as const
  const standing = [{ aggregateType: 'account', eventType: 'BalanceSet' }]
  const [limit, bounds] = [500, { batchSize: 100, batchBytes: 1_000_000 }]
  const [first] = await fixture.query<{ id: string }>('select event_id::text as id from $schema.inbox_message limit 1')
  const applied = [first?.id ?? '']
  const [deltasOnly, withStates, drained, kept, removed] = await fetched(
    fixture,
    readReleased(scope, { ...line, standing: [] }, bounds),
    readReleased(scope, { ...line, standing }, bounds),
    readWaiting(scope, [{ aggregateType: 'account', aggregateId: 'x' }], bounds),
    archiveWaiting(scope, applied),
    removeStored(scope, applied),
  )
  expect(deltasOnly).toBeLessThanOrEqual(2)
  // A few more than the limit: those of one version are sorted.
  expect(withStates).toBeLessThan(2 * 2 * limit)
  expect(drained).toBeLessThan(2 * limit)
  expect([kept, removed]).toEqual([1, 1])
})
