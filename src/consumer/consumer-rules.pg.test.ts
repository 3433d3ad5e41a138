import pg from 'pg'
import { expect, test } from 'vitest'
import {
  accounts,
  consumerFixture,
  deposited,
  mails,
  message,
  published,
  removed,
  videos,
  type ConsumerFixture,
} from '../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../test/setup/test-database.ts'
import type { Database, QueryResult } from '../postgres/query/database.ts'
import { fromPg } from '../postgres/adapters/from-pg.ts'
import { eventually } from '../testing/kit/eventually.ts'
import { memory } from '../transport/memory/memory.ts'
import type { Consumer } from './consumer.ts'
import type { ConsumerOptions } from './model/consumer-options.ts'
import { pauseConsumer, resumeConsumer } from './operate/pause.ts'
import { voidEventType } from '../core/event/event.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

/** A consumer that writes every event it is called for into `effect`. */
function recorder(fixture: ConsumerFixture, options?: Partial<ConsumerOptions>): Consumer {
  const note: Parameters<Consumer['on']>[1] = async (event, { tx, late }) => {
    await tx.query(`insert into ${fixture.schema}.effect (event_id, aggregate_id, version, note) values ($1, $2, $3, $4)`, [
      event.id,
      event.aggregateId,
      String(event.version),
      late ? 'late' : '',
    ])
  }
  return fixture.consumer(options).on(videos.VideoPublished, note).on(accounts.Deposited, note).on(accounts.BalanceSet, note)
}

const effects = async (fixture: ConsumerFixture): Promise<readonly string[]> =>
  (await fixture.query<{ name: string }>(`select aggregate_id || ' ' || version as name from $schema.effect order by at`)).map(
    ({ name }) => name,
  )

/** A database that counts what is asked of it. */
function counting(inner: Database): { readonly db: Database; readonly statements: string[] } {
  const statements: string[] = []
  return {
    statements,
    db: {
      query: (text, values) => inner.query(text, values),
      attempt: (options, work) =>
        inner.attempt(options, (tx) =>
          work(
            new Proxy(tx, {
              get: (target, property) =>
                property === 'query'
                  ? (text: string, values?: never): Promise<QueryResult> => {
                      statements.push(text)
                      return target.query(text, values)
                    }
                  : Reflect.get(target, property),
            }),
          ),
        ),
    },
  }
}

test('a handler sees every event once; a state that comes after a newer one is handed over as late', async () => {
  const fixture = await consumerFixture(db)
  const stop = fixture.start(recorder(fixture))
  const [one, two] = [published('a', 1), published('a', 2)]
  await fixture.publish({ ...two, orderingKey: 'p' }, { ...two, orderingKey: 'q' })
  await fixture.settled(1)
  await fixture.publish(one, one, two)
  await fixture.settled(2)
  await stop()
  expect(await fixture.query('select version::int, note from $schema.effect order by at')).toEqual([
    { version: 2, note: '' },
    { version: 1, note: 'late' },
  ])
})

test('two consumers of one database do not swallow each other’s events', async () => {
  const fixture = await consumerFixture(db)
  const stop = fixture.start(recorder(fixture), recorder(fixture, { name: 'billing' }))
  await fixture.publish(published('a', 1))
  await fixture.settled(2)
  await stop()
  expect(await fixture.count('effect')).toBe(2)
})

test('a state that is handled stands for the deltas before it; a void only takes its version', async () => {
  const fixture = await consumerFixture(db)
  const stop = fixture.start(recorder(fixture))
  const set = message({ stream: accounts, type: 'BalanceSet', id: 'x', version: 4 }, { balance: 7 })
  const skipped = message({ stream: accounts, type: voidEventType, id: 'x', version: 5 }, {})
  await fixture.publish(deposited('x', 1, 1), { ...deposited('x', 3, 1), orderingKey: 'gap' })
  await eventually(async () => (await fixture.count('inbox_message')) === 1 && (await fixture.count('inbox')) === 1)
  await fixture.publish({ ...skipped, body: new Uint8Array(0) }, { ...deposited('x', 6, 1), orderingKey: 'gap' })
  await eventually(async () => (await fixture.count('inbox_message')) === 3)
  await fixture.publish({ ...set, orderingKey: 'snapshot' })
  await eventually(async () => (await fixture.count('inbox_message')) === 0)
  await fixture.publish({ ...deposited('x', 2, 1), orderingKey: 'lost' }, deposited('y', 1, 1))
  await eventually(async () => (await effects(fixture)).includes('y 1'))
  await stop()
  expect((await effects(fixture)).filter((name) => name.startsWith('x'))).toEqual(['x 1', 'x 4', 'x 6'])
  expect(await fixture.query(`select version::int, waiting from $schema.consumer_position where aggregate_id = 'x'`)).toEqual([
    { version: 6, waiting: 0 },
  ])
})

test('a type without a handler advances the position, and in turn where deltas are handled', async () => {
  const fixture = await consumerFixture(db)
  const stop = fixture.start(recorder(fixture))
  const renamed = message({ stream: accounts, type: 'Renamed', id: 'x', version: 2 }, { name: 'n' })
  await fixture.publish({ ...renamed, orderingKey: 'early' }, removed('v', 9))
  await eventually(async () => (await fixture.count('inbox_message')) === 1)
  await fixture.publish(deposited('x', 1, 1), deposited('x', 3, 1))
  await eventually(async () => (await fixture.count('inbox')) === 4)
  await stop()
  expect(await effects(fixture)).toEqual(['x 1', 'x 3'])
  expect(await fixture.query('select aggregate_id as id, version::int from $schema.consumer_position order by 1')).toEqual([
    { id: 'v', version: 9 },
    { id: 'x', version: 3 },
  ])
})

test('a consumer that joins late may begin with the first delta that it sees', async () => {
  const fixture = await consumerFixture(db)
  const stop = fixture.start(recorder(fixture, { deltaStart: 'any' }))
  await fixture.publish(deposited('x', 41, 1), deposited('x', 42, 1))
  await fixture.settled(2)
  await fixture.publish(deposited('x', 44, 1))
  await eventually(async () => (await fixture.count('inbox_message')) === 1)
  await stop()
  expect(await effects(fixture)).toEqual(['x 41', 'x 42'])
})

test('a gap that nobody closes is reported with its age, unless the consumer is paused', async () => {
  const fixture = await consumerFixture(db)
  const stop = fixture.start(recorder(fixture, { gapAlertMs: 5 }))
  await fixture.publish(deposited('x', 2, 1))
  const alarm = await eventually(() => fixture.heard('consumer.backlog').find(({ alert }) => alert) ?? false)
  expect(alarm).toMatchObject({ consumer: 'catalog', messages: 1, aggregates: 1, held: 0 })
  expect(fixture.heard('consumer.waiting')).toMatchObject([{ aggregateId: 'x', version: '2' }])
  // What closes it may be with the broker, which a paused consumer does not ask.
  const whole = { db, schema: fixture.schema, consumer: 'catalog', actor: 'ada' }
  await pauseConsumer(whole)
  await eventually(() =>
    expect(fixture.heard('consumer.backlog').at(-1)).toMatchObject({ messages: 1, oldestMs: 0, alert: false }),
  )
  await resumeConsumer(whole)
  await eventually(() => fixture.heard('consumer.backlog').at(-1)?.alert === true)
  await fixture.publish(deposited('x', 1, 1))
  await eventually(() => fixture.heard('consumer.backlog').at(-1)?.messages === 0)
  await stop()
})

test('emitted events commit with their handler and exist once, however often the source is handled', async () => {
  const fixture = await consumerFixture(db)
  let failing = true
  const consumer = fixture.consumer().on(videos.VideoPublished, (event, { emit }) => {
    emit(mails.MailRequested, `mail-${event.aggregateId}`, { to: 'a' })
    emit(mails.MailRequested, `mail-${event.aggregateId}`, { to: 'b' })
    if (failing) {
      failing = false
      throw new Error('once')
    }
  })
  const stop = fixture.start(consumer)
  const event = published('a', 1)
  await fixture.publish(event)
  await fixture.settled(1)
  const ids = await fixture.query('select id::text, version::int from $schema.outbox order by version')
  expect(ids).toHaveLength(2)
  // The inbox has forgotten it: the outbox has not.
  await fixture.query('delete from $schema.inbox')
  await fixture.publish(event)
  await fixture.settled(1)
  await stop()
  expect(await fixture.query('select id::text, version::int from $schema.outbox order by version')).toEqual(ids)
})

test('an error that a handler swallows is no success: nothing is acknowledged that the database rolled back', async () => {
  const fixture = await consumerFixture(db)
  const consumer = fixture.consumer({ maxAttempts: 2 }).on(videos.VideoPublished, async (event, { tx }) => {
    if (event.aggregateId === 'bad') await tx.query('select 1 / 0').catch(() => undefined)
  })
  const stop = fixture.start(consumer)
  await fixture.publish(published('good', 1), published('bad', 1), published('fine', 1))
  await fixture.settled(2)
  await eventually(async () => (await fixture.count('dead_letter', `error like '%swallowed%'`)) === 1)
  await stop()
  expect(await fixture.count('inbox')).toBe(2)
})

test('a handler that does not return is given up after its time', async () => {
  const fixture = await consumerFixture(db)
  const aborted: string[] = []
  const consumer = fixture
    .consumer({ maxAttempts: 1, handlerTimeoutMs: 30 })
    .on(videos.VideoPublished, async (event, { signal }) => {
      if (event.aggregateId !== 'slow') return
      signal.addEventListener('abort', () => aborted.push(event.aggregateId))
      await new Promise<never>(() => {})
    })
  const stop = fixture.start(consumer)
  await fixture.publish(published('slow', 1), published('quick', 1))
  await fixture.settled(1)
  await eventually(async () => (await fixture.count('dead_letter', `error like '%30 ms%'`)) === 1)
  await stop()
  expect(aborted.length).toBeGreaterThan(0)
})

test('the number of statements does not grow with the batch', async () => {
  const counts: number[] = []
  for (const size of [1, 400]) {
    const fixture = await consumerFixture(db)
    const counted = counting(db)
    const consumer = fixture
      .consumer({ db: counted.db, lingerMs: 100 })
      .project(videos, { table: `${fixture.schema}.video_view`, key: 'video_id', set: (e) => ({ title: e.data.title }) })
    await fixture.publish(...Array.from({ length: size }, (_, i) => published(`v${i % 100}`, Math.floor(i / 100) + 1)))
    const stop = fixture.start(consumer)
    await fixture.settled(size)
    await stop()
    counts.push(counted.statements.length)
  }
  // Inbox and positions, the projection, and the marks of the first messages after a start, which end with the first statement.
  expect(counts).toEqual([3, 3])
})

test('connections that break charge nobody: everything is applied once in the end', async () => {
  const fixture = await consumerFixture(db)
  let kills = 0
  const consumer = fixture.consumer({ lingerMs: 20 }).on(videos.VideoPublished, async (event, { tx }) => {
    await tx.query(`insert into ${fixture.schema}.effect (aggregate_id, version) values ($1, $2)`, [
      event.aggregateId,
      String(event.version),
    ])
    if (event.aggregateId === 'v7' && (kills += 1) <= 2) await tx.query('select pg_terminate_backend(pg_backend_pid())')
  })
  const stop = fixture.start(consumer)
  await fixture.publish(...Array.from({ length: 20 }, (_, i) => published(`v${i}`, 1)))
  await fixture.settled(20)
  await stop()
  expect(await fixture.count('effect')).toBe(20)
  expect(fixture.heard('consumer.failed')).toEqual([])
  expect(fixture.heard('consumer.retried').length).toBeGreaterThan(0)
})

test('a pool of two, a slow handler and five duplicates in flight do not deadlock', async () => {
  const pool = new pg.Pool({ connectionString: database.url, max: 2 })
  try {
    const fixture = await consumerFixture(db)
    let release = (): void => undefined
    const slow = new Promise<void>((resolve) => (release = resolve))
    let calls = 0
    let receivers = 0
    const transport = {
      receive: async (options: Parameters<typeof fixture.broker.receive>[0]) => {
        const receiver = await fixture.broker.receive(options)
        receivers += 1
        return receiver
      },
    }
    const build = (): Consumer =>
      fixture
        .consumer({ db: fromPg(pool), transport, streams: [videos], lockTimeoutMs: 50, concurrency: 4 })
        .on(videos.VideoPublished, async (event, { tx }) => {
          calls += 1
          await slow
          await tx.query(`insert into ${fixture.schema}.effect (aggregate_id) values ($1)`, [event.aggregateId])
        })
    const event = published('a', 1)
    const stop = fixture.start(build(), build(), build())
    await eventually(() => receivers === 3)
    await fixture.publish(...Array.from({ length: 6 }, (_, i) => ({ ...event, orderingKey: `way ${i}` })))
    await eventually(() => calls > 0 && fixture.heard('consumer.retried').length > 0)
    release()
    await eventually(async () => (await fixture.count('effect')) === 1)
    await fixture.publish(published('b', 1))
    await fixture.settled(2)
    await stop()
    expect(await fixture.count('effect')).toBe(2)
  } finally {
    await pool.end()
  }
})

test('without an inbox versions alone decide, and no inbox row is written', async () => {
  const fixture = await consumerFixture(db, memory({ nasty: true }))
  const consumer = fixture
    .consumer({ inbox: false })
    .project(videos, { table: `${fixture.schema}.video_view`, key: 'video_id', set: (e) => ({ title: e.data.title }) })
  const stop = fixture.start(consumer)
  for (let version = 1; version <= 20; version += 1) {
    for (const id of ['a', 'b', 'c']) {
      const each = version === 20 && id === 'c' ? removed(id, version) : published(id, version)
      await eventually(() => fixture.publish(each).then(() => true))
    }
  }
  await eventually(async () => (await fixture.count('video_view', 'version = 20')) === 3)
  await fixture.broker.quiet()
  await stop()
  expect(
    await fixture.query(
      'select video_id as id, case when deleted_at is null then title end as title, deleted_at is null as here from $schema.video_view order by 1',
    ),
  ).toEqual([
    { id: 'a', title: 'a 20', here: true },
    { id: 'b', title: 'b 20', here: true },
    { id: 'c', title: null, here: false },
  ])
  expect(await fixture.count('inbox')).toBe(0)
})
