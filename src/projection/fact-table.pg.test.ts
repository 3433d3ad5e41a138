import { expect, test } from 'vitest'
import { z } from 'zod'
import { accounts, consumerFixture, videos, type ConsumerFixture } from '../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../test/setup/test-database.ts'
import type { Consumer } from '../consumer/consumer.ts'
import type { ConsumerOptions } from '../consumer/model/consumer-options.ts'
import { state } from '../core/event/event.ts'
import { businessKeyId } from '../core/event/id.ts'
import { stream } from '../core/event/stream.ts'
import type { Database } from '../postgres/query/database.ts'
import { fromPg } from '../postgres/adapters/from-pg.ts'
import { eventually } from '../testing/kit/eventually.ts'
import type { ColumnValue } from './projection.ts'
import { memory } from '../transport/memory/memory.ts'
import { seededRandom } from '../core/service/random.ts'
import type { OutgoingMessage } from '../transport/port/transport.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

const readings = stream('reading', {
  topic: 'reading.events',
  events: { ReadingTaken: state(z.object({ device: z.string(), at: z.string(), value: z.string() })) },
})

/** The same fact always has the same id. */
function reading(device: string, at: string, value: string): OutgoingMessage {
  const id = businessKeyId('reading', [device, at])
  return {
    topic: readings.topic,
    orderingKey: undefined,
    attributes: {
      event_id: id,
      event_type: 'ReadingTaken',
      aggregate_type: 'reading',
      aggregate_id: `${device}/${at}`,
      version: '1',
      schema_version: '1',
    },
    body: Buffer.from(JSON.stringify({ device, at, value })),
  }
}

async function sink(
  fixture: ConsumerFixture,
  options: Partial<ConsumerOptions> = {},
): Promise<{ readonly consumer: Consumer; readonly rows: () => Promise<readonly unknown[]> }> {
  await fixture.query(
    `create table if not exists $schema.reading (device text, at timestamptz, value numeric, raw bytea, tags jsonb, seen bigint, primary key (device, at))`,
  )
  const consumer = fixture.consumer({ streams: [readings], ...options }).insert(readings, {
    table: `${fixture.schema}.reading`,
    key: ['device', 'at'],
    keyOf: ({ data }) => [data.device, data.at],
    set: ({ data, version }) => ({
      value: data.value,
      raw: Buffer.from('ab'),
      tags: { note: `"quoted" \\ ${data.device}`, big: 12n },
      seen: version,
    }),
  })
  return {
    consumer,
    rows: () => fixture.query('select device, value::text, raw, tags, seen::int from $schema.reading order by 1, at'),
  }
}

test('each fact is one row by its business key; what comes again changes nothing, whatever it says', async () => {
  const fixture = await consumerFixture(db)
  const { consumer, rows } = await sink(fixture)
  const stop = fixture.start(consumer)
  await fixture.publish(reading('a', '2026-01-01T00:00:00Z', '1.50'), reading('b', '2026-01-01T00:00:00Z', '2'))
  await fixture.settled(2)
  // Another event of the same key: by another writer, or after the inbox forgot it.
  const again = reading('a', '2026-01-01T00:00:00Z', '9')
  await fixture.publish(again, { ...again, attributes: { ...again.attributes, event_id: businessKeyId('other', 'a') } })
  await fixture.settled(3)
  await stop()
  expect(await rows()).toEqual([
    { device: 'a', value: '1.50', raw: Buffer.from('ab'), tags: { note: '"quoted" \\ a', big: '12' }, seen: 1 },
    { device: 'b', value: '2', raw: Buffer.from('ab'), tags: { note: '"quoted" \\ b', big: '12' }, seen: 1 },
  ])
})

test('without inbox and positions a nasty broker still leaves one row a fact, in two statements a batch', async () => {
  const nasty = { duplicatePublish: 0.2, dropAck: 0.2, duplicateDelivery: 0.3, reorderKeys: 0.3 }
  const fixture = await consumerFixture(db, memory({ nasty, random: seededRandom(5) }))
  const texts: string[] = []
  const heard: Database = {
    query: (text, values) => db.query(text, values),
    attempt: (options, work) =>
      db.attempt(options, (tx) =>
        work(new Proxy(tx, { get: (of, key) => (key === 'query' ? hear(of.query.bind(of)) : Reflect.get(of, key)) })),
      ),
  }
  const hear =
    (query: Database['query']): Database['query'] =>
    (text, values) => {
      texts.push(text)
      return query(text, values)
    }
  const { consumer, rows } = await sink(fixture, { inbox: false, positions: 'needed', db: heard })
  const stop = fixture.start(consumer)
  const facts = Array.from({ length: 400 }, (_, i) =>
    reading(`d${i % 40}`, `2026-01-01T00:00:${String(i % 10).padStart(2, '0')}Z`, '1'),
  )
  await fixture.publish(...facts)
  await eventually(async () => (await fixture.count('reading')) === 40)
  await eventually(() => fixture.heard('consumer.applied').reduce((sum, { count }) => sum + count, 0) >= 400)
  await stop()
  expect(await rows()).toHaveLength(40)
  expect(await fixture.count('inbox')).toBe(0)
  expect(await fixture.count('consumer_position')).toBe(0)
  expect(texts.filter((text) => !/"consumer_position"|insert into "\w+"\."reading"|delivery_attempt/.test(text))).toEqual([])
})

test('a table that cannot hold facts, and a stream of changes, are refused', async () => {
  const fixture = await consumerFixture(db)
  const life = { stopping: new AbortController().signal, aborting: new AbortController().signal }
  const into = (table: string): Consumer =>
    fixture
      .consumer({ streams: [readings] })
      .insert(readings, { table: `${fixture.schema}.${table}`, key: 'reading_id', set: () => ({}) })
  await expect(into('missing').run(life)).rejects.toThrow(/does not exist\. Run:\ncreate table/)
  await fixture.query('create table $schema.unkeyed (reading_id text)')
  await expect(into('unkeyed').run(life)).rejects.toThrow(/no unique index on reading_id\. Run:\ncreate unique index/)
  await fixture.query('create table $schema.other (id text primary key)')
  await expect(into('other').run(life)).rejects.toThrow(/lacks reading_id/)
  const consumer = fixture.consumer()
  expect(() => consumer.insert(accounts, { table: 'x', key: 'id', set: () => ({}) })).toThrow(/Deposited is a delta/)
  expect(() => consumer.insert(videos, { table: 'x', key: 'id', set: () => ({}) })).toThrow(/VideoRemoved is a tombstone/)
  expect(() => consumer.insert(readings, { table: 'x', key: ['a', 'b'], set: () => ({}) })).toThrow(/needs keyOf/)
  expect(() => consumer.insert(readings, { table: 'x', key: 'a', set: () => ({}) })).toThrow(/not among its streams/)
})

test('a fact whose columns are wrong is a dead letter, and its neighbours are rows', async () => {
  const fixture = await consumerFixture(db)
  const { consumer } = await sink(fixture, { maxAttempts: 1 })
  const stop = fixture.start(consumer)
  await fixture.publish(...['1', 'not a number', '3'].map((value, i) => reading(`d${i}`, '2026-01-01T00:00:00Z', value)))
  await eventually(async () => (await fixture.count('dead_letter')) === 1 && (await fixture.count('reading')) === 2)
  await stop()
})

test('a fact without its whole key is a dead letter that names the column, also where the table would take it', async () => {
  const fixture = await consumerFixture(db)
  await fixture.query('create table $schema.loose (device text, at timestamptz, unique (device, at))')
  const dates: Readonly<Record<string, ColumnValue>> = { d0: null, d1: new Date('never'), d2: Number.NaN, d3: '2026-01-01' }
  const consumer = fixture.consumer({ streams: [readings], inbox: false, maxAttempts: 1 }).insert(readings, {
    table: `${fixture.schema}.loose`,
    key: ['device', 'at'],
    keyOf: ({ data }) => [data.device, dates[data.device] ?? null],
    set: () => ({}),
  })
  const stop = fixture.start(consumer)
  const facts = Object.keys(dates).map((device) => reading(device, '2026-01-01T00:00:00Z', '1'))
  await fixture.publish(...facts)
  await eventually(async () => (await fixture.count('dead_letter')) === 3 && (await fixture.count('loose')) === 1)
  await stop()
  const letters = await fixture.query<{ event_id: string; error: string }>(
    'select event_id::text, error from $schema.dead_letter',
  )
  for (const { event_id, error } of letters) expect(error).toContain(`nothing for "at" of event ${event_id}`)
  expect(await fixture.query('select device from $schema.loose')).toEqual([{ device: 'd3' }])
})
