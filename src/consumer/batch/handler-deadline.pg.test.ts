/** A handler that hangs costs its neighbours nothing: it is given up at its deadline, charged at once, and tried alone from then on. */
import { expect, test } from 'vitest'
import { consumerFixture, published, videos, type ConsumerFixture } from '../../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import type { Tx } from '../../postgres/query/database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import type { Consumer } from '../consumer.ts'
import type { ConsumerOptions } from '../model/consumer-options.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

const hour = 3_600_000

/** How a handler hangs: in the server, or in the process until its signal aborts, or for good. */
const ways: Readonly<Record<string, (tx: Tx, signal: AbortSignal) => Promise<unknown>>> = {
  'in a statement': (tx) => tx.query('select pg_sleep(3600)::text'),
  'in the process': () => new Promise<never>(() => undefined),
  'in a lock': (tx) => tx.query('select pg_advisory_xact_lock(4711)::text'),
}

/** Writes down what it handles; `bad…` hangs while `hangs` says so. */
function hanging(
  fixture: ConsumerFixture,
  options: Partial<ConsumerOptions>,
  hang: (tx: Tx, signal: AbortSignal) => Promise<unknown>,
): { readonly consumer: Consumer; readonly calls: string[] } {
  const calls: string[] = []
  const consumer = fixture
    .consumer({ handlerTimeoutMs: 500, maxAttempts: 2, ...options })
    .on(videos.VideoPublished, async (event, { tx, signal }) => {
      calls.push(event.aggregateId)
      if (event.aggregateId.startsWith('bad')) await hang(tx, signal)
      await tx.query(`insert into ${fixture.schema}.effect (aggregate_id) values ($1)`, [event.aggregateId])
    })
  return { consumer, calls }
}

test.each(Object.entries(ways))(
  'a handler that hangs %s is given up at its deadline, and its neighbours go on without it',
  async (_, hang) => {
    const locker = await database.pool.connect()
    await locker.query('select pg_advisory_lock(4711)')
    const fixture = await consumerFixture(db)
    const { consumer, calls } = hanging(fixture, { statementTimeoutMs: hour, lockTimeoutMs: hour, lingerMs: 50 }, hang)
    await fixture.publish(...['a', 'b', 'bad', 'y', 'z'].map((id) => published(id, 1)))
    const stop = fixture.start(consumer)
    await eventually(async () => (await fixture.count('effect')) === 4)
    await eventually(async () => (await fixture.count('dead_letter')) === 1)
    await stop()
    await locker.query('select pg_advisory_unlock_all()')
    locker.release()
    // Once in company and once alone: a try of its own in between would have taken another deadline from its neighbours.
    expect(calls.filter((id) => id === 'bad')).toHaveLength(2)
    expect(fixture.heard('consumer.failed').map(({ attempts }) => attempts)).toEqual([1])
    expect(await fixture.count('delivery_attempt')).toBe(0)
  },
)

test('while a handler may take less time than a statement, so may its statements, and only its', async () => {
  const fixture = await consumerFixture(db)
  const limits: unknown[] = []
  const limit = async (tx: Tx): Promise<void> => {
    limits.push((await tx.query(`select current_setting('statement_timeout') as ms`)).rows[0])
  }
  const attempt: typeof db.attempt = (options, work) =>
    db.attempt(options, async (tx) => {
      const result = await work(tx)
      await limit(tx)
      return result
    })
  for (const [handlerTimeoutMs, statementTimeoutMs] of [
    [7_000, 9_000],
    [60_000, 30_000],
  ] as const) {
    const options = { db: { ...db, attempt }, handlerTimeoutMs, statementTimeoutMs }
    const consumer = fixture
      .consumer({ ...options, name: `catalog${handlerTimeoutMs}` })
      .on(videos.VideoPublished, (_event, { tx }) => limit(tx))
    const stop = fixture.start(consumer)
    await fixture.publish(published(`v${handlerTimeoutMs}`, 1))
    await eventually(() => limits.length >= 2)
    await stop()
    const seconds = limits.splice(0).map((each) => (each as { ms: string }).ms)
    expect([handlerTimeoutMs, seconds.slice(-2)]).toEqual([
      handlerTimeoutMs,
      handlerTimeoutMs < statementTimeoutMs ? ['7s', '9s'] : ['30s', '30s'],
    ])
  }
})

test.each(['direct', 'stored'] as const)(
  'in %s mode four events that hang never take more than half of four places again',
  async (mode) => {
    const fixture = await consumerFixture(db)
    const ids = ['bad1', 'bad2', 'bad3', 'bad4']
    const tries = new Map<string, number>()
    let underWay = 0
    let most = 0
    const consumer = fixture
      .consumer({ mode, concurrency: 4, batchSize: 1, processBatchSize: 10, handlerTimeoutMs: 100, onPoison: 'stop' })
      .on(videos.VideoPublished, async (event, { tx, signal }) => {
        if (event.aggregateId.startsWith('bad')) {
          const nth = (tries.get(event.aggregateId) ?? 0) + 1
          tries.set(event.aggregateId, nth)
          // The first time nobody can know.
          const isKnown = nth > 1 && ids.every((id) => (tries.get(id) ?? 0) > 1)
          underWay += 1
          if (isKnown) most = Math.max(most, underWay)
          await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()))
          underWay -= 1
          throw new Error('given up')
        }
        await tx.query(`insert into ${fixture.schema}.effect (aggregate_id) values ($1)`, [event.aggregateId])
      })
    const stop = fixture.start(consumer)
    await fixture.publish(...ids.map((id) => published(id, 1)))
    await eventually(() => ids.every((id) => (tries.get(id) ?? 0) > 2))
    await fixture.publish(...Array.from({ length: 20 }, (_, n) => published(`good${n}`, 1)))
    await eventually(async () => (await fixture.count('effect')) === 20)
    await eventually(() => ids.every((id) => (tries.get(id) ?? 0) > 4))
    await stop()
    expect(most).toBeLessThanOrEqual(2)
  },
)

test('an event that ran out of time is tried apart from neighbours, which are handled once', async () => {
  const fixture = await consumerFixture(db)
  const again = Promise.withResolvers<void>()
  const { consumer, calls } = hanging(fixture, { handlerTimeoutMs: 1_000, lingerMs: 30, concurrency: 1 }, async (_tx, signal) => {
    if (calls.filter((id) => id === 'bad').length > 1) again.resolve()
    await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()))
    throw new Error('given up')
  })
  const stop = fixture.start(consumer)
  await fixture.publish(published('bad', 1))
  await eventually(() => fixture.heard('consumer.failed').length === 1)
  // They are in line with it, or while it hangs.
  await fixture.publish(published('aaa', 1), published('bbb', 1))
  await again.promise
  await eventually(async () => (await fixture.count('effect')) === 2)
  await eventually(async () => (await fixture.count('dead_letter')) === 1)
  await stop()
  expect(calls.filter((id) => id !== 'bad').toSorted()).toEqual(['aaa', 'bbb'])
})
