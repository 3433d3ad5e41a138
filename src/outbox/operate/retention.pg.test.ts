import { describe, expect, test } from 'vitest'
import { accounts, outboxFixture, videos, type OutboxFixture } from '../../../test/setup/outbox-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { businessKeyId } from '../../core/event/id.ts'
import { run } from '../../core/service/lifetime.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { memory } from '../../transport/memory/memory.ts'
import { createOutboxRetention, type OutboxRetention, type OutboxRetentionOptions } from './retention.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
const never = new AbortController().signal

function retentionOf({ outbox, signals }: OutboxFixture, options: Partial<OutboxRetentionOptions> = {}): OutboxRetention {
  return createOutboxRetention({ db, outbox, signals, eventsMs: 0, receiptsMs: 0, sourcesMs: 0, idleMs: 1, ...options })
}

async function count(fixture: OutboxFixture, table: string): Promise<number> {
  const { rows } = await db.query(`select count(*)::int as n from ${fixture.outbox.tables.schema}.${table}`)
  return (rows as { n: number }[])[0]?.n ?? NaN
}

/** Changes the text of the function that removes, in this fixture's schema only. */
async function rewrite({ outbox }: OutboxFixture, change: (text: string) => string): Promise<void> {
  const name = `${outbox.tables.schema}.outbox_expire`
  const { rows } = await db.query(`select pg_get_functiondef('${name}'::regproc) as text`)
  const { text } = (rows as { text: string }[])[0] ?? { text: '' }
  expect(change(text)).not.toBe(text)
  await db.query(change(text))
}

const withoutRecheck = (text: string): string => text.replace(/case when is_event then ' and r.id not in .*? else '' end/s, `''`)
const withoutAnyCheck = (text: string): string => withoutRecheck(text.replace('where $5 and', 'where false and $5 and'))

test('published events go when their time is over; those that wait stay, whatever their state', async () => {
  const fixture = await outboxFixture(db)
  const { publish, relay, states } = fixture
  const broker = memory({ rejects: ({ attributes }) => ['parked', 'retry'].includes(attributes['aggregate_id'] ?? '') })
  await publish('parked', '1', '2')
  await relay(broker, { maxAttempts: 1 }).once()
  await publish('retry', '1')
  await publish('done', '1', '2')
  await relay(broker, { backoff: { firstMs: 600_000, maxMs: 600_000 } }).once()
  await publish('due', '1')
  const kept = { 'due 1': 'PENDING', 'parked 1': 'PARKED', 'parked 2': 'HELD', 'retry 1': 'RELEASED' }

  await retentionOf(fixture, { eventsMs: 86_400_000, receiptsMs: 86_400_000 }).pass(never)
  expect(await states()).toEqual({ ...kept, 'done 1': 'PUBLISHED', 'done 2': 'PUBLISHED' })
  const seen: unknown[] = []
  fixture.signals.on('outbox.retained', (event) => seen.push(event))
  expect(await retentionOf(fixture).pass(never)).toBe('idle')
  expect(await states()).toEqual(kept)
  expect(await count(fixture, 'outbox_receipt')).toBe(0)
  expect(seen).toEqual([{ events: 2, receipts: 2, sources: 0 }])
})

test('a full batch goes on at once, and several instances share the work', async () => {
  const fixture = await outboxFixture(db)
  await fixture.fill(['a', 'b', 'c', 'd'], 250)
  await fixture.relay(memory()).once()
  const instances = [retentionOf(fixture, { batchSize: 100 }), retentionOf(fixture, { batchSize: 100 })]
  let removed = 0
  fixture.signals.on('outbox.retained', ({ events }) => void (removed += events))
  expect(await instances[0]?.pass(never)).toBe('more')
  expect(removed).toBe(100)
  await Promise.all(instances.map(async (each) => await untilIdle(each)))
  // What one had locked while the other passed by is found by the next sweep.
  await Promise.all(instances.map(async (each) => await untilIdle(each)))
  expect(removed).toBe(1_000)
  expect(await count(fixture, 'outbox')).toBe(0)
})

test('old events that wait are passed by one batch at a time; what is behind them is found all the same', async () => {
  const fixture = await outboxFixture(db)
  const ids = Array.from({ length: 25 }, (_, nth) => `v${nth}`)
  await fixture.fill(ids, 1)
  await fixture.relay(memory({ rejects: () => true }), { maxAttempts: 1 }).once()
  await fixture.publish('done', '1')
  await fixture.relay(memory()).once()
  const retention = retentionOf(fixture, { batchSize: 10 })
  // Two batches of which nothing can go, and then the rest.
  for (const left of [26, 26, 25]) {
    expect(await retention.pass(never)).toBe('idle')
    expect(await count(fixture, 'outbox')).toBe(left)
  }
})

test('a job comes to the end of its sweep, however many events wait before what can go', async () => {
  const fixture = await outboxFixture(db)
  await fixture.fill(['a'], 25)
  await fixture.relay(memory({ rejects: () => true }), { maxAttempts: 1 }).once()
  await fixture.publish('done', '1')
  await fixture.relay(memory()).once()
  await retentionOf(fixture, { batchSize: 10 }).once(never)
  expect(Object.keys(await fixture.states())).not.toContain('done 1')
  expect(await count(fixture, 'outbox')).toBe(25)
})

async function untilIdle(retention: OutboxRetention): Promise<void> {
  while ((await retention.pass(never)) === 'more');
}

test('ids that do not carry their time are found by walking the table', async () => {
  const fixture = await outboxFixture(db)
  const { outbox } = fixture
  const old = '018f0000-0000-7000-8000-000000000000'
  for (let i = 0; i < 50; i += 1) {
    await transaction(db, (tx) =>
      outbox.add(
        tx,
        videos.VideoPublished,
        `v${i}`,
        { title: 'x' },
        {
          id: businessKeyId('test', i),
          source: { name: 's', eventId: i % 2 === 0 ? businessKeyId('source', i) : old, ordinal: i },
        },
      ),
    )
  }
  await fixture.relay(memory()).once()
  await retentionOf(fixture, { sourcesMs: 86_400_000 }).pass(never)
  expect({ events: await count(fixture, 'outbox'), sources: await count(fixture, 'outbox_source') }).toEqual({
    events: 0,
    sources: 50,
  })
  await retentionOf(fixture).pass(never)
  expect(await count(fixture, 'outbox_source')).toBe(0)
})

test('instances that live for one pass only walk the whole of a large table in the end', async () => {
  const fixture = await outboxFixture(db)
  const { schema } = fixture.outbox.tables
  // Published events under foreign ids, four on a page, so that they are more pages than one step of a walk.
  await db.query(
    `insert into ${schema}.outbox (id, topic, aggregate_type, aggregate_id, version, event_type, schema_version, content_type, payload)
     select gen_random_uuid(), 'video.events', 'video', 'a', n, 'VideoPublished', 1, 'application/json', convert_to(repeat('x', 1700), 'UTF8')
       from generate_series(1, 4000) n`,
  )
  const { rows } = await db.query(`select pg_relation_size('${schema}.outbox') / 8192 as pages`)
  expect(Number((rows as { pages: string }[])[0]?.pages)).toBeGreaterThan(600)
  for (let lives = 0; lives < 60; lives += 1) await retentionOf(fixture).pass(never)
  expect(await count(fixture, 'outbox')).toBe(0)
})

/** Writers, a relay and two retentions at once; returns the events that were lost. */
async function lostUnderLoad(fixture: OutboxFixture): Promise<number> {
  const { outbox, relay, signals } = fixture
  const broker = memory({
    rejects: ({ attributes }) => attributes['version'] === '7' && Math.trunc(Number(attributes['aggregate_id'])) % 3 === 0,
  })
  let missing = 0
  signals.on('relay.event-missing', () => void (missing += 1))
  const stop = new AbortController()
  const services = [relay(broker, { busyMs: 1, idleMs: 5, maxAttempts: 1 }), retentionOf(fixture), retentionOf(fixture)]
  const running = run(services, { signal: stop.signal, signals })
  const writers = Array.from({ length: 4 }, async (_, writer) => {
    for (let i = 0; i < 60; i += 1)
      await transaction(db, async (tx) => {
        for (let n = 0; n < 5; n += 1) await outbox.add(tx, accounts.Deposited, String((writer + i) % 12), { amount: n })
      })
  })
  await Promise.all(writers)
  await eventually(async () => (await count(fixture, 'outbox_dispatch where state in (0, 1)')) === 0)
  stop.abort()
  await running
  const { rows } = await db.query(
    `select count(*)::int as n from ${outbox.tables.schema}.outbox_dispatch d where not exists (select from ${outbox.tables.schema}.outbox o where o.id = d.event_id)`,
  )
  return missing + ((rows as { n: number }[])[0]?.n ?? 0)
}

describe('under load', () => {
  test('nothing unpublished is removed', async () => {
    const fixture = await outboxFixture(db)
    expect(await lostUnderLoad(fixture)).toBe(0)
    await untilIdle(retentionOf(fixture))
    expect(await count(fixture, 'outbox')).toBe(await count(fixture, 'outbox_dispatch'))
  })

  test('a retention that goes by age alone is caught', async () => {
    const fixture = await outboxFixture(db)
    await rewrite(fixture, withoutAnyCheck)
    expect(await lostUnderLoad(fixture)).toBeGreaterThan(0)
  })
})

describe('a replay that puts an old event back in line', () => {
  async function publishedEvent(): Promise<OutboxFixture> {
    const fixture = await outboxFixture(db)
    await fixture.publish('v', '1')
    await fixture.relay(memory()).once()
    return fixture
  }
  const replay = ({ outbox }: OutboxFixture): string => `
    with event as (select id from ${outbox.tables.schema}.outbox for key share)
    insert into ${outbox.tables.schema}.outbox_dispatch (lane, key, event_id) select 1, 1, id from event`

  let gates = 0

  /** The retention stops between finding a row and locking it; meanwhile the replay commits. */
  async function keptWithReplayInBetween(fixture: OutboxFixture): Promise<number> {
    const gate = (gates += 1)
    await rewrite(fixture, (text) =>
      text.replace(
        '-- A place in the table',
        `if is_event then perform pg_advisory_xact_lock(77, ${gate}); end if; -- A place in the table`,
      ),
    )
    const client = await database.pool.connect()
    await client.query('begin')
    await client.query(`select pg_advisory_xact_lock(77, ${gate})`)
    const passing = retentionOf(fixture).pass(never)
    await eventually(async () => {
      const { rows } = await db.query(
        `select from pg_locks where locktype = 'advisory' and classid = 77 and objid = ${gate} and not granted`,
      )
      return rows.length === 1
    })
    await db.query(replay(fixture))
    await client.query('commit')
    client.release()
    await passing
    return await count(fixture, 'outbox')
  }

  test('just before the event is locked is seen, and the event stays', async () => {
    expect(await keptWithReplayInBetween(await publishedEvent())).toBe(1)
  })

  test('is overlooked by a retention that looks before it locks', async () => {
    const fixture = await publishedEvent()
    await rewrite(fixture, withoutRecheck)
    expect(await keptWithReplayInBetween(fixture)).toBe(0)
  })

  test('and has not committed yet keeps the event', async () => {
    const fixture = await publishedEvent()
    const client = await database.pool.connect()
    await client.query('begin')
    await client.query(replay(fixture))
    await retentionOf(fixture).pass(never)
    await client.query('commit')
    client.release()
    await retentionOf(fixture).pass(never)
    expect(await count(fixture, 'outbox')).toBe(1)
  })

  test('and comes while the event is being removed waits, and finds nothing to replay', async () => {
    const fixture = await publishedEvent()
    const client = await database.pool.connect()
    await client.query('begin')
    await client.query(
      `select ${fixture.outbox.tables.schema}.outbox_expire('events', clock_timestamp(), null, 10, '00000000-0000-0000-0000-000000000000', null)`,
    )
    const replaying = db.query(replay(fixture))
    await client.query('commit')
    client.release()
    expect((await replaying).rowCount).toBe(0)
    expect(await count(fixture, 'outbox_dispatch')).toBe(0)
  })
})

test('a backlog is read past a batch of old events, and kept nowhere', async () => {
  const fixture = await outboxFixture(db)
  const { schema, dispatch } = fixture.outbox.tables
  await fixture.publish('v', '1')
  await fixture.relay(memory()).once()
  await db.query(
    `insert into ${dispatch.quoted} (lane, state, key, event_id) select n % 64, 0, n, gen_random_uuid() from generate_series(1, 20000) n`,
  )
  const { rows } = await transaction(db, async (tx) => {
    await tx.query(`set local work_mem = '64kB'`)
    await tx.query(`set local temp_file_limit = '64kB'`)
    return await tx.query(
      `select removed from ${schema}.outbox_expire('events', clock_timestamp(), null, 10, '00000000-0000-0000-0000-000000000000', null)`,
    )
  })
  expect(rows).toEqual([{ removed: 1 }])
})

test('without dispatch and without a slot no event is removed, and that is said', async () => {
  const fixture = await outboxFixture(db)
  await fixture.publish('v', '1')
  await fixture.relay(memory()).once()
  await db.query(`select ${fixture.outbox.tables.schema}.outbox_set_dispatching(false)`)
  await expect(retentionOf(fixture).pass(never)).rejects.toThrow(/option slot/)
  await expect(retentionOf(fixture, { slot: 'nobody' }).pass(never)).rejects.toThrow(/"nobody" is not in this database/)
  expect(await count(fixture, 'outbox')).toBe(1)
})

test('what cannot be removed keeps nothing else from going, and is told; under a publication for all tables everything can', async () => {
  const fixture = await outboxFixture(db)
  const receipts = `${fixture.outbox.tables.schema}.outbox_receipt`
  const seen: unknown[] = []
  fixture.signals.on('outbox.retained', (event) => seen.push(event))
  await fixture.publish('v', '1')
  await fixture.relay(memory()).once()
  await db.query(`create function ${receipts}_kept() returns trigger language plpgsql as $$ begin raise exception 'kept'; end $$`)
  await db.query(`create trigger kept before delete on ${receipts} for each row execute function ${receipts}_kept()`)
  await expect(retentionOf(fixture).pass(never)).rejects.toThrow('kept')
  await fixture.publish('v', '2', '3')
  await fixture.relay(memory()).once()
  await expect(retentionOf(fixture, { batchSize: 1 }).once(never)).rejects.toThrow('kept')
  expect(seen).toEqual([1, 1, 1].map((events) => ({ events, receipts: 0, sources: 0 })))
  await db.query(`drop trigger kept on ${receipts}`)
  await db.query('create publication everything for all tables')
  try {
    await retentionOf(fixture).once(never)
  } finally {
    await db.query('drop publication everything')
  }
  expect(await count(fixture, 'outbox_receipt')).toBe(0)
})
