import { expect, test } from 'vitest'
import { gate } from '../../../test/outbox/world.ts'
import { accounts, firstOccurrences, log, outboxFixture, videos } from '../../../test/setup/outbox-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { run } from '../../core/service/lifetime.ts'
import type { Database } from '../../postgres/query/database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { migrate } from '../../postgres/schema/migrate.ts'
import { parseMigration, shippedMigrations } from '../../postgres/schema/migration-files.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { memory } from '../../transport/memory/memory.ts'
import type { Publisher } from '../../transport/port/transport.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

test('an event is published with its attributes, and only after its transaction committed', async () => {
  const { outbox, relay } = await outboxFixture(db)
  const broker = memory()
  const added = await transaction(db, async (tx) => {
    const result = await outbox.add(tx, videos.VideoPublished, 'v1', { title: 'one' }, { headers: { traceparent: '00-abc' } })
    expect(await relay(broker).once()).toBe(0)
    return result
  })
  expect(await relay(broker).once()).toBe(1)
  const message = broker.published[0]
  expect(message).toMatchObject({
    topic: 'video.events',
    orderingKey: 'v1',
    attributes: {
      event_id: added.id,
      event_type: 'VideoPublished',
      aggregate_type: 'video',
      aggregate_id: 'v1',
      version: '1',
      schema_version: '1',
      content_type: 'application/json',
      traceparent: '00-abc',
      occurred_at: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/),
    },
  })
  expect(Buffer.from(message?.body ?? []).toString()).toBe('{"title":"one"}')
})

test('an event rolled back with its transaction is never published', async () => {
  const { outbox, relay, states } = await outboxFixture(db)
  const broker = memory()
  const failing = transaction(db, async (tx) => {
    await outbox.add(tx, videos.VideoPublished, 'v1', { title: 'one' })
    throw new Error('card declined')
  })
  await expect(failing).rejects.toThrow('card declined')
  expect(await relay(broker).once()).toBe(0)
  expect(await states()).toEqual({})
})

test('a failing head holds back its own aggregate only, and goes first when it recovers', async () => {
  const { outbox, publish, relay, states } = await outboxFixture(db)
  let poisoned = true
  const broker = memory({
    rejects: ({ attributes }) => poisoned && attributes['aggregate_id'] === 'bad' && attributes['version'] === '2',
  })
  await publish('bad', 'a', 'b', 'c', 'd')
  await publish('good', 'a', 'b')
  expect(await relay(broker, { backoff: { firstMs: 600_000, maxMs: 600_000 } }).once()).toBe(3)
  expect(log(broker).toSorted()).toEqual(['bad 1', 'good 1', 'good 2'])
  expect(await states()).toMatchObject({ 'bad 1': 'PUBLISHED', 'bad 2': 'RELEASED', 'good 2': 'PUBLISHED' })

  await publish('bad', 'e')
  await relay(broker).once()
  expect(firstOccurrences(broker, 'bad')).toEqual([1])
  expect(await states()).toMatchObject({ 'bad 2': 'RELEASED', 'bad 3': 'HELD', 'bad 4': 'HELD', 'bad 5': 'HELD' })

  poisoned = false
  await db.query(`update ${outbox.tables.schema}.outbox_dispatch set next_retry_at = clock_timestamp() where state = 1`)
  expect(await relay(broker).once()).toBe(4)
  expect(firstOccurrences(broker, 'bad')).toEqual([1, 2, 3, 4, 5])
})

test('an outage of the broker charges nobody and parks nothing, and everything arrives in order afterwards', async () => {
  const { fill, relay, states, dispatch } = await outboxFixture(db)
  const broker = memory()
  const ids = Array.from({ length: 50 }, (_, i) => `v${i}`)
  await fill(ids, 20)
  broker.setOutage('refuse')
  await expect(relay(broker, { maxAttempts: 1 }).once()).rejects.toMatchObject({ code: 'UNAVAILABLE' })
  expect(new Set((await dispatch()).map((row) => `${String(row['state'])} ${String(row['publish_attempts'])}`))).toEqual(
    new Set(['0 0']),
  )
  broker.setOutage('none')
  expect(await relay(broker).once()).toBe(1000)
  for (const id of ids) expect(firstOccurrences(broker, id)).toEqual(Array.from({ length: 20 }, (_, i) => i + 1))
  expect(new Set(Object.values(await states()))).toEqual(new Set(['PUBLISHED']))
})

test.each(['once', 'run'] as const)(
  'a relay that ends its %s in an outage does not leave its breaker open, although its farewell fails',
  async (how) => {
    const { publish, relay, signals, outbox } = await outboxFixture(db)
    const told: string[] = []
    signals.on('relay.breaker', ({ state }) => void told.push(state))
    const query: Database['query'] = async (text, values) => {
      if (text.includes(`delete from ${outbox.tables.worker.quoted}`)) throw new Error('The connection broke.')
      return await db.query(text, values)
    }
    const broker = memory()
    broker.setOutage('refuse')
    await publish('v1', 'one')
    const stopping = new AbortController()
    const failing = relay(broker, { db: { ...db, query } })
    const ending =
      how === 'once' ? failing.once() : failing.run({ stopping: stopping.signal, aborting: new AbortController().signal })
    await Promise.all([
      expect(ending).rejects.toThrow('The connection broke.'),
      eventually(() => told.includes('open')).then(() => stopping.abort()),
    ])
    expect(told.at(-1)).toBe('closed')
  },
)

test('a running relay is woken by the commit and stops when told', async () => {
  const { outbox, publish, relay } = await outboxFixture(db)
  const broker = memory()
  const stop = new AbortController()
  const running = run([relay(broker, { idleMs: 60_000, busyMs: 60_000 })], { signal: stop.signal })
  await eventually(async () => {
    await publish('v1', 'again')
    expect(broker.publishedCount).toBeGreaterThan(0)
  })
  stop.abort()
  await running
  const { rows } = await db.query(
    `select count(*)::int as held from ${outbox.tables.schema}.outbox_lane where lock_token is not null`,
  )
  expect(rows).toEqual([{ held: 0 }])
})

test('a drain that is told to stop finishes the batch in hand; told to abort it gives that up; it blames the broker for neither', async () => {
  const fixture = await outboxFixture(db)
  const broker = memory()
  const drainUntil = async (signal: 'stopping' | 'aborting'): Promise<number> => {
    const [underWay, onward] = [gate(), gate()]
    const slow: Publisher = {
      maxBytes: broker.maxBytes,
      publish: async (messages, options) => {
        underWay.open()
        await onward.passed
        if (!options.signal.aborted) return await broker.publish(messages, options)
        return messages.map(() => ({ status: 'unavailable', error: new Error('the request was aborted') }))
      },
    }
    const life = { stopping: new AbortController(), aborting: new AbortController() }
    const draining = fixture.relay(slow).once(life.stopping.signal, life.aborting.signal)
    await underWay.passed
    life[signal].abort()
    onward.open()
    return await draining
  }
  await fixture.publish('v1', 'one')
  expect(await drainUntil('aborting')).toBe(0)
  expect(await fixture.states()).toEqual({ 'v1 1': 'PENDING' })
  expect(await drainUntil('stopping')).toBe(1)
  expect(await fixture.states()).toEqual({ 'v1 1': 'PUBLISHED' })
})

test('an event with a date waits for it, and so does its aggregate', async () => {
  const { outbox, relay, states } = await outboxFixture(db)
  const broker = memory()
  const tomorrow = new Date(Date.now() + 86_400_000)
  await transaction(db, async (tx) => {
    await outbox.add(tx, accounts.Deposited, 'a', { amount: 1 })
    await outbox.add(tx, accounts.Deposited, 'a', { amount: 2 }, { notBefore: tomorrow })
    await outbox.add(tx, accounts.Deposited, 'a', { amount: 3 })
    await outbox.add(tx, accounts.Deposited, 'b', { amount: 1 })
  })
  await relay(broker).once()
  expect(log(broker).toSorted()).toEqual(['a 1', 'b 1'])
  expect(await states()).toMatchObject({ 'a 2': 'RELEASED', 'a 3': 'HELD' })
})

test('on the schema of a newer package producer and relay go on while its migrations add, and a breaking one stops the relay', async () => {
  const { outbox, publish, relay } = await outboxFixture(db)
  const migrateAsNewer = async (...texts: readonly string[]): Promise<void> => {
    const first = shippedMigrations().length + 1
    const added = texts.map((text, index) => parseMigration(`${String(first + index).padStart(4, '0')}_add_more.sql`, text))
    await migrate(db, { schema: outbox.tables.schema, service: 'test', migrations: [...shippedMigrations(), ...added] })
  }
  const adds = 'alter table :schema.outbox add column note text; create table :schema.more (id int);'
  await migrateAsNewer(adds)
  const broker = memory()
  await publish('v1', 'one')
  expect(await relay(broker).once()).toBe(1)
  expect(log(broker)).toEqual(['v1 1'])

  await migrateAsNewer(adds, '-- breaking\nalter table :schema.outbox rename column topic to destination;')
  await expect(relay(broker).once()).rejects.toMatchObject({
    code: 'SCHEMA_MISMATCH',
    message: expect.stringMatching(/newer than this process .* is a breaking change\. Upgrade this process/),
  })
})
