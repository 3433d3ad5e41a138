import { describe, expect, test } from 'vitest'
import { openWorld } from '../../../test/outbox/world.ts'
import { accounts, firstOccurrences, log, outboxFixture } from '../../../test/setup/outbox-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { run } from '../../core/service/lifetime.ts'
import { connect } from '../../postgres/connect.ts'
import type { Queryable, Tx } from '../../postgres/query/database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { memory } from '../../transport/memory/memory.ts'
import { postgresTransport } from '../../transport/postgres/postgres-transport.ts'
import { shutError } from '../tables/dispatch.sql.ts'
import { relaySteps } from './steps.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

test('a topic that is missing keeps its own events and no others, however many are before them', async () => {
  const fixture = await outboxFixture(db)
  const broker = memory()
  broker.setMissing(['video.events'])
  // So many that some of them are before the account in its lane, more than a pass reads.
  const ids = Array.from({ length: 640 }, (_, nth) => `v${nth}`)
  await fixture.fill(ids, 2)
  await transaction(db, (tx) => fixture.outbox.add(tx, accounts.Deposited, 'a1', { amount: 1 }))
  const stop = new AbortController()
  const running = run([fixture.relay(broker, { maxAttempts: 1, batchSize: 10, drainSize: 20 })], { signal: stop.signal })
  await eventually(() => expect(log(broker)).toEqual(['a1 1']))
  // What was not tried is left alone for minutes.
  const resting = `select count(*)::int as events from ${fixture.outbox.tables.dispatch.quoted} where next_retry_at > now() + interval '2 minutes'`
  await eventually(async () =>
    expect((await database.pool.query<{ events: number }>(resting)).rows[0]?.events).toBeGreaterThan(300),
  )
  broker.setMissing([])
  await eventually(async () => expect(await fixture.dispatch()).toEqual([]), { intervalMs: 100 })
  stop.abort()
  await running
  for (const id of ids) expect(firstOccurrences(broker, id)).toEqual([1, 2])
  expect(broker.publishedCount).toBe(1_281)
})

test('a relay that runs once publishes what it can, and names the topic that takes nothing', async () => {
  const fixture = await outboxFixture(db)
  const broker = memory()
  broker.setMissing(['video.events'])
  await fixture.publish('v1', 'one', 'two')
  await transaction(db, (tx) => fixture.outbox.add(tx, accounts.Deposited, 'a1', { amount: 1 }))
  await expect(fixture.relay(broker).once()).rejects.toMatchObject({
    code: 'UNAVAILABLE',
    message: expect.stringContaining('There is no topic video.events.'),
  })
  expect(log(broker)).toEqual(['a1 1'])
  broker.setMissing([])
  await eventually(async () => expect(await fixture.relay(broker).once()).toBe(2))
  expect(log(broker)).toEqual(['a1 1', 'v1 1', 'v1 2'])
})

test('a topic that somebody has alone in Postgres keeps its own events only, and nobody gathers to wait for it', async () => {
  const fixture = await outboxFixture(db)
  const { schema } = fixture.outbox.tables
  const small = connect({ url: database.url, max: 5 })
  const relay = fixture.relay(postgresTransport({ db: small, schema }), { db: small })
  const stop = new AbortController()
  let running = Promise.resolve()
  await fixture.publish('v1', 'one', 'two')
  const subscribing = async (tx: Tx): Promise<void> => {
    await tx.query(`select ${schema}.transport_subscribe('video.events', 'new', 4::smallint)`)
    running = run([relay], { signal: stop.signal })
    // More often than there are connections.
    for (let amount = 1; amount <= 6; amount += 1) {
      await transaction(db, (other) => fixture.outbox.add(other, accounts.Deposited, 'a1', { amount }))
      await eventually(async () => expect(await fixture.dispatch()).toHaveLength(2))
    }
    const waiting = `select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`
    expect((await db.query(waiting)).rows.length).toBeLessThanOrEqual(1)
  }
  await transaction(db, subscribing, { idleInTransactionTimeoutMs: 0 })
  await eventually(async () => expect(await fixture.dispatch()).toEqual([]))
  stop.abort()
  await running
  await small.close()
  const stored = `select (attributes->>'aggregate_id') || ' ' || (attributes->>'version') as event from ${schema}.transport_message order by seq`
  const { rows } = await db.query(stored)
  expect((rows as { event: string }[]).map(({ event }) => event)).toEqual([
    'a1 1',
    'a1 2',
    'a1 3',
    'a1 4',
    'a1 5',
    'a1 6',
    'v1 1',
    'v1 2',
  ])
})

describe('waking what waits for a topic', () => {
  /** One lane with as many aggregates that wait; `afterwards` happens after each statement. */
  async function waking(count: number, afterwards: (putOff: () => Promise<unknown>) => Promise<unknown>) {
    const world = await openWorld(db)
    const { tables } = world.outbox
    await world.fill(
      Array.from({ length: count }, (_, nth) => `v${nth}`),
      1,
    )
    const putOff = (): Promise<unknown> =>
      db.query(
        `update ${tables.dispatch.quoted} set state = 1, next_retry_at = clock_timestamp() + interval '4 minutes', last_error = $1`,
        [shutError('video.events', 'There is no such topic.')],
      )
    await putOff()
    let statements = 0
    const watched: Queryable = {
      query: async (...statement) => {
        statements += 1
        const answer = await db.query(...statement)
        if (statements < 10) await afterwards(putOff)
        return answer
      },
    }
    const context = { db: watched, tables, relay: 'a', keep: { receipts: true, events: true } }
    await relaySteps.wake(context, ['video.events'])
    const late = `select count(*)::int as late from ${tables.dispatch.quoted} where next_retry_at > clock_timestamp()`
    const { rows } = await db.query(late)
    return { statements, late: (rows as { late: number }[])[0]?.late }
  }

  test('goes on until all are woken, however many wait in a lane', async () => {
    expect(await waking(2_500, () => Promise.resolve())).toEqual({ statements: 3, late: 0 })
  })

  test('does not chase a relay that puts them off again', async () => {
    expect(await waking(5, (putOff) => putOff())).toEqual({ statements: 1, late: 5 })
  })
})

test('a relay that starts when the topic is there wakes what another one has put off', async () => {
  const fixture = await outboxFixture(db)
  await fixture.publish('v1', 'one', 'two')
  const { dispatch, outbox } = fixture.outbox.tables
  await db.query(
    `update ${dispatch.quoted} d set state = 1, next_retry_at = clock_timestamp() + interval '4 minutes', last_error = $1
       from ${outbox.quoted} o where o.id = d.event_id and o.version = 1`,
    [shutError('video.events', 'There is no such topic.')],
  )
  await fixture.publish('v2', 'one')
  const broker = memory()
  expect(await fixture.relay(broker).once()).toBe(3)
  expect(log(broker)).toEqual(['v2 1', 'v1 1', 'v1 2'])
})
