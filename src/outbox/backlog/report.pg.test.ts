import { expect, test } from 'vitest'
import { useOneLane } from '../../../test/outbox/relay-by-hand.ts'
import { muteOnce } from '../../../test/setup/mute-once.ts'
import { outboxFixture, videos } from '../../../test/setup/outbox-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import type { Signals } from '../../core/signals.ts'
import { one } from '../../postgres/query/database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { createFakeClock } from '../../testing/kit/fake-clock.ts'
import { memory } from '../../transport/memory/memory.ts'
import { createBacklogReport } from './report.ts'
import { readBacklog, type Backlog } from '../tables/backlog.sql.ts'
import { datedError } from '../tables/dispatch.sql.ts'
import { pauseOutbox } from '../operate/pause.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

test('what waits is reported although no relay has ever run', async () => {
  const fixture = await outboxFixture(db)
  const heard: Signals['relay.backlog'][] = []
  fixture.signals.on('relay.backlog', (event) => void heard.push(event))
  const stop = new AbortController()
  const report = createBacklogReport({ db, outbox: fixture.outbox, signals: fixture.signals, everyMs: 100 })
  const running = report.run({ stopping: stop.signal, aborting: new AbortController().signal })

  await fixture.publish('v1', 'one', 'two')
  await eventually(() => expect(heard.at(-1)).toMatchObject({ due: 2, unownedLanes: 64 }))
  expect(heard.at(-1)?.oldestDueAgeMs).toBeGreaterThan(0)
  await fixture.relay(memory()).once()
  await eventually(() => expect(heard.at(-1)).toMatchObject({ due: 0, oldestAgeMs: 0, oldestDueAgeMs: 0 }))
  stop.abort()
  await running
})

test('a count that is never answered, on a dead connection, is given up and made again', async () => {
  const { outbox, signals, publish } = await outboxFixture(db)
  await publish('v1', 'one')
  const [clock, stop] = [createFakeClock(), new AbortController()]
  const mute = muteOnce(db, () => true)
  const heard: Signals['relay.backlog'][] = []
  signals.on('relay.backlog', (event) => void heard.push(event))
  const report = createBacklogReport({ db: mute.db, outbox, signals, clock })
  const running = report.run({ stopping: stop.signal, aborting: new AbortController().signal })
  await mute.asked
  await clock.advance(70_000)
  await eventually(() => expect(heard.at(0)).toMatchObject({ due: 1 }))
  stop.abort()
  await running
})

test('an event that must not go out yet is not late; one that failed is, although it waits for its next attempt', async () => {
  const fixture = await outboxFixture(db)
  const backlog = async (): Promise<Backlog> => await one(db, readBacklog(fixture.outbox.tables))
  const notBefore = new Date(Date.now() + 3_600_000)
  await transaction(db, (tx) => fixture.outbox.add(tx, videos.VideoPublished, 'later', { title: 'x' }, { notBefore }))
  expect(await backlog()).toMatchObject({ due: 1, oldestDueAgeMs: 0 })
  await fixture.relay(memory()).once()
  expect(await backlog()).toMatchObject({ retrying: 1, oldestDueAgeMs: 0 })
  expect((await backlog()).oldestAgeMs).toBeGreaterThan(0)

  await fixture.publish('failing', 'one')
  const refusing = memory()
  const publish: typeof refusing.publish = async (messages) =>
    messages.map(() => ({ status: 'rejected', error: new Error('no') }) as const)
  await fixture.relay({ ...refusing, publish }, { backoff: { firstMs: 3_600_000, maxMs: 3_600_000 } }).once()
  expect(await backlog()).toMatchObject({ retrying: 2 })
  expect((await backlog()).oldestDueAgeMs).toBeGreaterThan(0)
})

test('an event that failed is late, although more wait for a date before it than are looked through', async () => {
  const fixture = await outboxFixture(db)
  const { dispatch, schema } = fixture.outbox.tables
  await useOneLane(fixture)
  const ids = Array.from({ length: 250 }, (_, nth) => `dated ${nth}`)
  await fixture.fill(ids, 1)
  await fixture.publish('failing', 'one')
  const failing = `event_id = (select id from ${schema}.outbox where aggregate_id = 'failing')`
  await db.query(
    `update ${dispatch.quoted} set state = 1, next_retry_at = clock_timestamp() + interval '1 day', last_error = $1`,
    [datedError],
  )
  await db.query(`update ${dispatch.quoted} set publish_attempts = 3, last_error = 'refused',
                         next_retry_at = clock_timestamp() + interval '20 minutes' where ${failing}`)
  await db.query(`alter table ${schema}.outbox disable trigger user;
                  update ${schema}.outbox set occurred_at = occurred_at - interval '10 minutes' where aggregate_id = 'failing'`)
  const { retrying, oldestDueAgeMs } = await one(db, readBacklog(fixture.outbox.tables))
  expect(retrying).toBe(251)
  expect(oldestDueAgeMs).toBeGreaterThanOrEqual(600_000)
  expect(oldestDueAgeMs).toBeLessThan(1_200_000)
})

test('an event whose topic is missing is late, although no attempt was charged', async () => {
  const fixture = await outboxFixture(db)
  const broker = memory()
  broker.setMissing(['video.events'])
  await fixture.publish('v1', 'one')
  await expect(fixture.relay(broker).once()).rejects.toMatchObject({ code: 'UNAVAILABLE' })
  await db.query(`update ${fixture.outbox.tables.dispatch.quoted} set next_retry_at = clock_timestamp() + interval '1 hour'`)
  const backlog = await one(db, readBacklog(fixture.outbox.tables))
  expect(backlog).toMatchObject({ retrying: 1, highestAttempts: 0 })
  expect(backlog.oldestDueAgeMs).toBeGreaterThan(0)
})

test('an event that failed is not late while an operator has it paused; one that was delayed ages from its date on', async () => {
  const fixture = await outboxFixture(db)
  const { outbox } = fixture
  const { schema } = outbox.tables
  const dueAgeMs = async (): Promise<number> => (await one(db, readBacklog(outbox.tables))).oldestDueAgeMs
  await fixture.publish('v1', 'one')
  await fixture.relay(memory({ rejects: () => true }), { backoff: { firstMs: 3_600_000, maxMs: 3_600_000 } }).once()
  expect(await dueAgeMs()).toBeGreaterThan(0)
  await pauseOutbox({ db, outbox, aggregateType: 'video', actor: 'ada' })
  await db.query(`update ${schema}.outbox_dispatch set next_retry_at = clock_timestamp()`)
  await fixture.relay(memory()).once()
  expect(await dueAgeMs()).toBe(0)

  const notBefore = new Date(Date.now() + 3_600_000)
  await transaction(db, (tx) => outbox.add(tx, videos.VideoPublished, 'later', { title: 'x' }, { notBefore }))
  await db.query(`alter table ${schema}.outbox disable trigger user; update ${schema}.outbox set occurred_at = occurred_at - interval '1 day';
                  update ${schema}.outbox_dispatch set next_retry_at = clock_timestamp() - interval '1 minute' where state = 0`)
  expect(await dueAgeMs()).toBeGreaterThanOrEqual(60_000)
  expect(await dueAgeMs()).toBeLessThan(3_600_000)
})

test('a parked event, and what it holds, are waiting but not due', async () => {
  const fixture = await outboxFixture(db)
  const heard: Signals['relay.backlog'][] = []
  fixture.signals.on('relay.backlog', (event) => void heard.push(event))
  await fixture.publish('v1', 'one', 'two')
  const refusing = memory({ maxBytes: 1_000_000 })
  const publish: typeof refusing.publish = async (messages) =>
    messages.map(() => ({ status: 'rejected', error: new Error('no') }) as const)
  await fixture.relay({ ...refusing, publish }, { maxAttempts: 1 }).once()
  const report = createBacklogReport({ db, outbox: fixture.outbox, signals: fixture.signals, everyMs: 100 })
  const stop = new AbortController()
  const running = report.run({ stopping: stop.signal, aborting: new AbortController().signal })
  await eventually(() => expect(heard.at(-1)).toMatchObject({ due: 0, held: 1, parked: 1, oldestDueAgeMs: 0 }))
  expect(heard.at(-1)?.oldestAgeMs).toBeGreaterThan(0)
  stop.abort()
  await running
})
