import { expect, test } from 'vitest'
import { outboxFixture, videos } from '../../../test/setup/outbox-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { run } from '../../core/service/lifetime.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { createFakeClock } from '../../testing/kit/fake-clock.ts'
import type { Queryable } from '../../postgres/query/database.ts'
import { memory } from '../../transport/memory/memory.ts'
import { createOutbox } from '../outbox.ts'
import { notifyAfterCommit } from './notify.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

/** Counts announcements instead of sending them. */
function counted(): Queryable & { sent: number } {
  return {
    sent: 0,
    query() {
      this.sent += 1
      return Promise.resolve({ rows: [], rowCount: 0 })
    },
  }
}

test('the first commit is announced at once, and those that follow soon share the next announcement', async () => {
  const { outbox, publish } = await outboxFixture(db)
  const clock = createFakeClock()
  const side = counted()
  const { announce, stop } = notifyAfterCommit({ db: side, outbox, intervalMs: 5, clock })
  await publish('v', '1')
  expect(side.sent).toBe(1)
  await publish('v', '2', '3', '4')
  expect(side.sent).toBe(1)
  await clock.advance(5)
  expect(side.sent).toBe(2)
  await clock.advance(100)
  expect(side.sent).toBe(2)
  announce()
  expect(side.sent).toBe(3)
  await stop()
  await publish('v', '5')
  announce()
  expect(side.sent).toBe(3)
})

test('an announcement that is never answered is given up, and the next one goes out', async () => {
  const { outbox, signals, publish } = await outboxFixture(db)
  const clock = createFakeClock()
  const failures: unknown[] = []
  signals.on('outbox.notify-failed', ({ error }) => failures.push(error))
  let sent = 0
  const mute: Queryable = {
    query: async () => {
      sent += 1
      return await (sent === 2 ? Promise.resolve({ rows: [], rowCount: 0 }) : new Promise<never>(() => undefined))
    },
  }
  const { announce, stop } = notifyAfterCommit({ db: mute, outbox, signals, clock })
  await publish('v', '1')
  announce()
  await clock.advance(9_999)
  expect([sent, failures.length]).toEqual([1, 0])
  await clock.advance(6)
  expect([sent, failures]).toEqual([2, [expect.objectContaining({ code: 'UNAVAILABLE' })]])
  await clock.advance(5)
  announce()
  const stopped = stop()
  await clock.advance(10_000)
  await stopped
  expect([sent, failures.length]).toEqual([3, 2])
})

test('a transaction that is rolled back announces nothing, and one that announces in vain is committed all the same', async () => {
  const { outbox, signals, publish, states } = await outboxFixture(db)
  const broken: Queryable = { query: () => Promise.reject(new Error('no connection left')) }
  const failures: unknown[] = []
  signals.on('outbox.notify-failed', ({ error }) => failures.push(error))
  const { stop } = notifyAfterCommit({ db: broken, outbox, signals })
  const failing = transaction(db, async (tx) => {
    await outbox.add(tx, videos.VideoPublished, 'v', { title: 'x' })
    throw new Error('card declined')
  })
  await expect(failing).rejects.toThrow('card declined')
  expect(failures).toEqual([])
  await publish('v', '1')
  await eventually(() => failures.length === 1)
  await stop()
  expect(await states()).toEqual({ 'v 1': 'PENDING' })
})

test('a relay that hardly polls is woken by a commit of another process', async () => {
  const { outbox, relay, signals } = await outboxFixture(db)
  // Another outbox object on the same schema: what another process has.
  const elsewhere = createOutbox({ schema: outbox.tables.schema })
  const notifying = notifyAfterCommit({ db, outbox: elsewhere })
  const broker = memory()
  const stop = new AbortController()
  let ready = false
  signals.on('listen.ready', () => void (ready = true))
  const sleepy = relay(broker, { idleMs: 60_000, busyMs: 60_000, listen: database.directUrl })
  const running = run([sleepy], { signal: stop.signal })
  await eventually(() => ready)
  await eventually(async () => {
    await transaction(db, (tx) => elsewhere.add(tx, videos.VideoPublished, 'v', { title: 'x' }))
    expect(broker.publishedCount).toBeGreaterThan(0)
  })
  stop.abort()
  await running
  await notifying.stop()
})
