import { describe, expect, test } from 'vitest'
import { accounts, firstOccurrences, outboxFixture, videos, type OutboxFixture } from '../../../test/setup/outbox-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { WaybillError } from '../../core/errors.ts'
import { tombstone } from '../../core/event/event.ts'
import { stream } from '../../core/event/stream.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { memory, type MemoryTransport } from '../../transport/memory/memory.ts'
import { dropParked, listParked, redriveParked, skipParked } from './parked.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
const actor = 'ada'

interface Parked extends OutboxFixture {
  readonly broker: MemoryTransport
  readonly heal: () => void
}

/** Version 2 of `bad` is refused and parked; 3 and 4 are held behind it. */
async function parkedHead(): Promise<Parked> {
  const fixture = await outboxFixture(db)
  const broker = memory({
    rejects: ({ attributes, body }) =>
      attributes['aggregate_id'] === 'bad' && attributes['version'] === '2' && body.byteLength > 0,
  })
  for (let amount = 1; amount <= 4; amount += 1)
    await transaction(db, (tx) => fixture.outbox.add(tx, accounts.Deposited, 'bad', { amount }))
  await fixture.publish('good', 'a')
  await fixture.relay(broker, { maxAttempts: 1 }).once()
  // A second look moves what came with the head out of the due range.
  await fixture.relay(broker).once()
  expect(await fixture.states()).toMatchObject({
    'bad 1': 'PUBLISHED',
    'bad 2': 'PARKED',
    'bad 4': 'HELD',
    'good 1': 'PUBLISHED',
  })
  return { ...fixture, broker, heal: () => broker.setRejects(() => false) }
}

async function audit(fixture: OutboxFixture): Promise<readonly Record<string, unknown>[]> {
  const { rows } = await db.query(`select actor, action, details from ${fixture.outbox.tables.schema}.audit_log order by id`)
  return rows as Record<string, unknown>[]
}

test('a parked event is listed with its reason and with how many wait behind it', async () => {
  const { outbox } = await parkedHead()
  expect(await listParked(db, outbox)).toEqual([
    {
      eventId: expect.stringMatching(/^[0-9a-f-]{36}$/),
      topic: 'bank.events',
      aggregateType: 'account',
      aggregateId: 'bad',
      version: '2',
      eventType: 'Deposited',
      occurredAt: expect.stringMatching(/Z$/),
      parkedAt: expect.stringMatching(/Z$/),
      attempts: 1,
      error: expect.stringContaining('refuses'),
      void: false,
      held: 2,
    },
  ])
  expect(await listParked(db, outbox, { aggregateType: 'video' })).toEqual([])
  expect(await listParked(db, outbox, { aggregateType: 'account', aggregateId: 'other' })).toEqual([])
  expect(await listParked(db, outbox, { error: 'no such text' })).toEqual([])
  expect(await listParked(db, outbox, { error: 'REFUSES this' })).toHaveLength(1)
})

test.each(['a stream', 'an event of a stream'])(
  '%s that the relay does not know is parked, never passed over',
  async (unknown) => {
    const fixture = await outboxFixture(db)
    const broker = memory({ rejects: () => true })
    await transaction(db, (tx) => fixture.outbox.add(tx, accounts.Deposited, 'a', { amount: 1 }))
    const known = stream('account', { topic: 'bank.events', events: { Opened: tombstone() } })
    const streams = unknown === 'a stream' ? [] : [known]
    await fixture.relay(broker, { streams, onPark: 'pass', maxAttempts: 1 }).once()
    expect(await fixture.states()).toEqual({ 'a 1': 'PARKED' })
    expect((await fixture.dispatch()).map((row) => row['void'])).toEqual([false])
  },
)

describe('redrive', () => {
  test('makes the head due with no attempts counted, and what was held follows in order', async () => {
    const fixture = await parkedHead()
    const { outbox, broker, relay, heal } = fixture
    const [parked] = await listParked(db, outbox)
    const done = await redriveParked({ db, outbox, actor, filter: { eventId: parked?.eventId ?? '' }, reason: 'schema fixed' })
    expect(done).toEqual({ events: [parked?.eventId], refused: [] })
    expect(await fixture.states()).toMatchObject({ 'bad 2': 'RELEASED', 'bad 3': 'HELD', 'bad 4': 'HELD' })
    expect((await fixture.dispatch()).map((row) => row['publish_attempts'])).toEqual([0, 0, 0])
    heal()
    expect(await relay(broker).once()).toBe(3)
    expect(firstOccurrences(broker, 'bad')).toEqual([1, 2, 3, 4])
    expect(await audit(fixture)).toEqual([
      {
        actor,
        action: 'outbox.redrive',
        details: expect.objectContaining({
          reason: 'schema fixed',
          events: [expect.objectContaining({ aggregateId: 'bad', version: '2' })],
        }),
      },
    ])
  })

  test('sends the event itself, even if the empty marker in its place was refused as well', async () => {
    const { outbox, publish, relay } = await outboxFixture(db)
    const broker = memory({ rejects: () => true })
    await publish('v', 'one')
    await relay(broker, { streams: [videos], maxAttempts: 1, onPark: 'pass' }).once()
    expect(await listParked(db, outbox)).toMatchObject([{ aggregateId: 'v', void: true }])
    await redriveParked({ db, outbox, actor, filter: { all: true } })
    broker.setRejects(() => false)
    await relay(broker).once()
    expect(broker.published.map(({ attributes }) => attributes['event_type'])).toEqual(['VideoPublished'])
  })

  test('of everything takes each parked head once, whatever their number', async () => {
    const fixture = await outboxFixture(db)
    const broker = memory({ rejects: () => true })
    await fixture.fill(
      Array.from({ length: 1_201 }, (_, i) => `v${i}`),
      1,
    )
    await fixture.relay(broker, { maxAttempts: 1 }).once()
    const { events } = await redriveParked({ db, outbox: fixture.outbox, actor, filter: { aggregateType: 'video' } })
    expect(new Set(events).size).toBe(1_201)
    expect(await redriveParked({ db, outbox: fixture.outbox, actor, filter: { all: true } })).toEqual({ events: [], refused: [] })
    broker.setRejects(() => false)
    expect(await fixture.relay(broker).once()).toBe(1_201)
  })

  test('and its siblings take no filter that names nothing: what was forgotten or misspelt does not mean all', async () => {
    const fixture = await parkedHead()
    const { outbox } = fixture
    const unsaid = [{}, { eventId: undefined }, { aggregateType: 'account', error: undefined }, { eventid: 'x' }] as {
      all: true
    }[]
    for (const act of [redriveParked, skipParked, dropParked])
      for (const filter of unsaid) {
        const wrong = act({ db, outbox, actor, filter, publishTimeoutMs: 0, leaseMs: 0 })
        await expect(wrong).rejects.toMatchObject({ code: 'INVALID_OPTION' })
      }
    await expect(listParked(db, outbox, { eventid: 'x' } as object)).rejects.toMatchObject({ code: 'INVALID_OPTION' })
    expect(await fixture.states()).toMatchObject({ 'bad 2': 'PARKED' })
  })

  test('that names only the id of an aggregate is refused: ids are unique within a stream', async () => {
    const { outbox } = await outboxFixture(db)
    const wrong = redriveParked({ db, outbox, actor, filter: { aggregateId: 'bad' } })
    await expect(wrong).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  })
})

test('skip publishes an empty marker with the id and version of the event, so that no version is missing', async () => {
  const fixture = await parkedHead()
  const { outbox, broker, relay } = fixture
  const [parked] = await listParked(db, outbox)
  expect((await skipParked({ db, outbox, actor, filter: { aggregateType: 'account' } })).events).toEqual([parked?.eventId])
  expect(await relay(broker).once()).toBe(3)
  expect(firstOccurrences(broker, 'bad')).toEqual([1, 2, 3, 4])
  const marker = broker.published.find(({ attributes }) => attributes['event_id'] === parked?.eventId)
  expect(marker).toMatchObject({ orderingKey: 'bad', attributes: { event_type: 'waybill.void', version: '2' } })
  expect(marker?.body.byteLength).toBe(0)
  expect(await fixture.states()).toMatchObject({ 'bad 2': 'PUBLISHED', 'bad 4': 'PUBLISHED' })
  expect(await audit(fixture)).toMatchObject([{ action: 'outbox.skip' }])
})

describe('drop', () => {
  test('waits until no attempt can be under way any more', async () => {
    const fixture = await parkedHead()
    const { outbox } = fixture
    const done = await dropParked({ db, outbox, actor, filter: { all: true } })
    expect(done).toEqual({ events: [], refused: [{ eventId: expect.any(String), reason: expect.stringContaining('15 s') }] })
    expect(await fixture.states()).toMatchObject({ 'bad 2': 'PARKED' })
    expect(await audit(fixture)).toEqual([])
  })

  test('removes event and dispatch row, and the next one goes on at once', async () => {
    const fixture = await parkedHead()
    const { outbox, broker, relay } = fixture
    await db.query(
      `update ${outbox.tables.schema}.outbox_dispatch set parked_at = parked_at - interval '16 seconds' where state = 3`,
    )
    expect((await dropParked({ db, outbox, actor, filter: { all: true }, reason: 'test data' })).events).toHaveLength(1)
    expect(await relay(broker).once()).toBe(2)
    expect(firstOccurrences(broker, 'bad')).toEqual([1, 3, 4])
    expect(Object.keys(await fixture.states())).toEqual(['bad 1', 'bad 3', 'bad 4', 'good 1'])
    expect(await audit(fixture)).toMatchObject([{ action: 'outbox.drop', details: { reason: 'test data' } }])
  })
})

test('a head whose event is missing cannot be skipped, only dropped', async () => {
  const fixture = await parkedHead()
  const { outbox, broker, relay } = fixture
  const [parked] = await listParked(db, outbox)
  await db.query(`delete from ${outbox.tables.schema}.outbox where id = $1`, [parked?.eventId ?? ''])
  expect(await listParked(db, outbox)).toMatchObject([{ aggregateType: undefined, held: 2 }])
  const skipped = await skipParked({ db, outbox, actor, filter: { all: true } })
  expect(skipped).toEqual({ events: [], refused: [{ eventId: parked?.eventId, reason: expect.stringContaining('dropped') }] })
  const dropped = await dropParked({ db, outbox, actor, filter: { all: true }, publishTimeoutMs: 0, leaseMs: 0 })
  expect(dropped.events).toEqual([parked?.eventId])
  expect(await relay(broker).once()).toBe(2)
})

test('a parked event keeps no secret that the broker’s refusal quoted', async () => {
  const fixture = await outboxFixture(db)
  const broker = memory()
  const refusing = {
    ...broker,
    publish: async (messages: readonly unknown[]) =>
      messages.map(() => ({
        status: 'rejected' as const,
        error: new WaybillError('REJECTED', 'amqp://ada:hunter2@mq refused this'),
      })),
  }
  await fixture.publish('a', 'a')
  await fixture.relay(refusing, { maxAttempts: 1 }).once()
  expect((await listParked(db, fixture.outbox)).map(({ error }) => error)).toEqual(['amqp://***@mq refused this'])
})
