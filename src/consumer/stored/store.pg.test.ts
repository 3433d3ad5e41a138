import { expect, test } from 'vitest'
import { consumerFixture, published, videos, type ConsumerFixture } from '../../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import type { Database } from '../../postgres/query/database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import type { Consumer } from '../consumer.ts'
import type { ConsumerOptions } from '../model/consumer-options.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

/**
 * A consumer whose statements that store a batch run out of time while `isSlow` says so of the number of their messages. The first one
 * is sent twice: alone, and with a time-out that is not the session's.
 */
function slowStore(
  fixture: ConsumerFixture,
  isSlow: (messages: number) => boolean,
  more: Partial<ConsumerOptions> = {},
): { consumer: Consumer; tried: number[] } {
  const tried: number[] = []
  const slow =
    (query: Database['query']): Database['query'] =>
    async (text, values) => {
      if (/^\s*insert into \S*"inbox_message"/.test(text)) {
        const messages = String(values?.[3]).split(',').length
        tried.push(messages)
        if (isSlow(messages)) throw Object.assign(new Error('canceling statement due to statement timeout'), { code: '57014' })
      }
      return await query(text, values)
    }
  const attempt: Database['attempt'] = (begin, work) =>
    db.attempt(begin, (tx) => {
      tx.query = slow(tx.query)
      return work(tx)
    })
  const options = { db: { ...db, query: slow(db.query), attempt }, batchSize: 32, lingerMs: 10_000, concurrency: 1, ...more }
  const consumer = fixture.consumer({ mode: 'stored', streams: [videos], ...options }).on(videos.VideoPublished, () => undefined)
  return { consumer, tried }
}

const batch = Array.from({ length: 32 }, (_, nth) => published(`v${nth}`, 1))

test('a batch that nobody can store in time waits in hand; only the first that ran out of time alone is given back', async () => {
  const fixture = await consumerFixture(db)
  let isLocked = true
  const { consumer, tried } = slowStore(fixture, () => isLocked)
  fixture.signals.on('consumer.retried', () => void (isLocked = tried.length < 10))
  const stop = fixture.start(consumer)
  await fixture.publish(...batch)
  await fixture.settled(31)
  // As many as fill a batch with the one that comes again.
  await fixture.publish(...Array.from({ length: 31 }, (_, nth) => published(`w${nth}`, 1)))
  await fixture.settled(63)
  await stop()
  expect(tried).toEqual([32, 32, 16, 8, 4, 2, 1, 1, 1, 1, 1, 2, 4, 8, 16, 32])
  expect(fixture.broker.deliveries.length).toBe(64)
})

test('an outage of the database gives nothing back, however long it lasts: what waits in hand is stored after it', async () => {
  const fixture = await consumerFixture(db)
  const { consumer, tried } = slowStore(fixture, () => {
    if (tried.length < 25) throw Object.assign(new Error('the database system is shutting down'), { code: '57P03' })
    return false
  })
  const stop = fixture.start(consumer)
  await fixture.publish(...batch)
  await fixture.settled(32)
  await stop()
  expect(tried).toEqual(Array.from({ length: 25 }, () => 32))
  expect(fixture.broker.deliveries.length).toBe(32)
})

test('a batch that is too much for one statement is stored in parts', async () => {
  const fixture = await consumerFixture(db)
  const { consumer, tried } = slowStore(fixture, (messages) => messages > 8)
  const stop = fixture.start(consumer)
  await fixture.publish(...batch)
  await fixture.settled(32)
  await stop()
  expect(tried).toEqual([32, 32, 16, 8, 8, 16, 8, 8])
  expect(fixture.heard('consumer.disturbed')).toEqual([])
})

test('a stop does not wait for the parts of a batch that cannot be stored in time', async () => {
  const fixture = await consumerFixture(db)
  const stopping = new AbortController()
  const isSlow = (): boolean => {
    if (tried.length === 3) stopping.abort()
    return true
  }
  // What is given back does not come again before the end.
  const { consumer, tried } = slowStore(fixture, isSlow, { backoff: { firstMs: 60_000, maxMs: 60_000 } })
  const running = consumer.run({ stopping: stopping.signal, aborting: new AbortController().signal })
  await fixture.publish(...batch)
  await running
  expect(tried).toEqual([32, 32, 16])
  expect(fixture.broker.deliveries.length).toBe(32)
})

test('what is in hand when the process gives up its work is given back without a statement', async () => {
  const fixture = await consumerFixture(db)
  const [stopping, aborting] = [new AbortController(), new AbortController()]
  const { consumer, tried } = slowStore(fixture, () => {
    stopping.abort()
    aborting.abort()
    return false
  })
  const running = consumer.run({ stopping: stopping.signal, aborting: aborting.signal })
  await fixture.publish(...batch, ...Array.from({ length: 32 }, (_, nth) => published(`w${nth}`, 1)))
  await eventually(() => tried.length > 0)
  await running
  expect(tried).toEqual([32])
  expect(await fixture.count('inbox_message')).toBe(32)
})
