import { afterAll, describe, expect, test } from 'vitest'
import { opened, untilBlocked } from '../../../test/outbox/world.ts'
import { outboxFixture, videos, type OutboxFixture } from '../../../test/setup/outbox-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { run } from '../../core/service/lifetime.ts'
import { connect } from '../../postgres/connect.ts'
import type { Database } from '../../postgres/query/database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { checkHistory } from '../../testing/history/checker.ts'
import { logEntry } from '../../testing/history/message-entries.ts'
import { readHistory } from '../../testing/history/read-history.ts'
import { memory } from '../../transport/memory/memory.ts'
import { createOutbox, event } from '../outbox.ts'
import { createRelay } from './relay.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
// One session each, so that plans made before a change are there after it.
const sessions = [1, 2].map(() => connect({ url: database.directUrl, max: 1 }))
afterAll(() => Promise.all(sessions.map((session) => session.close())))

async function changeLanes({ outbox }: OutboxFixture, lanes: number): Promise<void> {
  await db.query(`select ${outbox.tables.changeLanes.quoted}($1)`, [lanes])
}

/** Rows that are not in the lane of their key. */
async function misplaced({ outbox }: OutboxFixture, lanes: number): Promise<number> {
  const { rows } = await db.query(
    `select count(*)::int as rows from ${outbox.tables.dispatch.quoted} where lane <> (key & $1::int - 1)::smallint`,
    [lanes],
  )
  return (rows[0] as { rows: number }).rows
}

test('sessions with plans from before a change of lanes write into the new lanes, at every isolation', async () => {
  const fixture = await outboxFixture(db)
  const { outbox } = fixture
  let ids = 0
  const add = async (
    session: (typeof sessions)[number],
    isolation: 'read committed' | 'repeatable read' | 'serializable',
  ): Promise<void> => {
    const id = (): string => `v${(ids += 1)}`
    await transaction(session, (tx) => outbox.add(tx, videos.VideoPublished, id(), { title: 'one' }), { isolation })
    const many = [id(), id()].map((each) => event(videos.VideoPublished, each, { title: 'many' }))
    await transaction(session, (tx) => outbox.addMany(tx, many), { isolation })
  }
  for (const session of sessions) for (let time = 0; time < 8; time += 1) await add(session, 'read committed')
  // Its snapshot is from before the change; it writes after it.
  const snapshotTaken = Promise.withResolvers<void>()
  const changed = Promise.withResolvers<void>()
  const early = transaction(
    db,
    async (tx) => {
      await tx.query('select 1')
      snapshotTaken.resolve()
      await changed.promise
      await outbox.add(tx, videos.VideoPublished, 'early', { title: 'one' })
    },
    { isolation: 'repeatable read' },
  )
  await snapshotTaken.promise
  await changeLanes(fixture, 4)
  changed.resolve()
  await early
  for (const session of sessions)
    for (const isolation of ['read committed', 'repeatable read', 'serializable'] as const) await add(session, isolation)
  expect(await misplaced(fixture, 4)).toBe(0)
  await changeLanes(fixture, 64)
  for (const session of sessions) await add(session, 'serializable')
  expect(await misplaced(fixture, 64)).toBe(0)
})

test('lanes change from 4 to 64 and back under load: nothing is lost or overtaken', async () => {
  const fixture = await outboxFixture(db)
  await changeLanes(fixture, 4)
  const broker = memory({ nasty: { failPublish: 0.05, lieOnPublish: 0.05 } })
  const stop = new AbortController()
  const relays = [1, 2].map(() => fixture.relay(broker, { leaseMs: 400, renewMs: 100, idleMs: 5 }))
  const running = run(relays, { signal: stop.signal })
  const ids = Array.from({ length: 10 }, (_, nth) => `v${nth}`)
  const writing = Promise.all(
    [1, 2, 3].map(async () => {
      for (let round = 0; round < 40; round += 1) await fixture.fill(ids, 1)
    }),
  )
  for (const lanes of [64, 4, 64, 1, 64]) {
    const before = broker.publishedCount
    await changeLanes(fixture, lanes)
    await eventually(() => broker.publishedCount > before + 50 || broker.publishedCount >= 1_200)
  }
  await writing
  await eventually(async () => expect(await fixture.dispatch()).toEqual([]), { timeoutMs: 60_000 })
  stop.abort()
  await running
  const committed = await readHistory({ owner: { db, schema: fixture.outbox.tables.schema, log: 'recorded' } })
  const { violations, counts } = checkHistory([...broker.published.map((message) => logEntry(message)), ...committed])
  expect(violations).toEqual([])
  expect(counts.ops.commit).toBe(1_200)
})

describe('a change of lanes', () => {
  test('waits for writers under way, and moves what they wrote', async () => {
    const fixture = await outboxFixture(db)
    const writer = await opened(db, (tx) =>
      fixture.outbox.addMany(
        tx,
        Array.from({ length: 20 }, (_, nth) => event(videos.VideoPublished, `v${nth}`, { title: 'one' })),
      ),
    )
    const change = changeLanes(fixture, 4)
    await untilBlocked(db, change)
    await writer.commit()
    await change
    expect(await misplaced(fixture, 4)).toBe(0)
    expect(await fixture.dispatch()).toHaveLength(20)
  })

  test('never waits for a relay that waits for it', async () => {
    const fixture = await outboxFixture(db)
    const { lane, outbox } = fixture.outbox.tables
    await fixture.publish('v1', 'one')
    const settling = await opened(db, (tx) => tx.query(`select from ${lane.quoted} order by lane for update`))
    const change = changeLanes(fixture, 4)
    await untilBlocked(db, change)
    // What a relay that keeps no events does next, with its lanes locked.
    await transaction(db, (tx) => tx.query(`delete from ${outbox.quoted}`), { lockTimeoutMs: 5_000 })
    await settling.commit()
    await change
  })

  test('takes all leases away, so that nobody works by the old division', async () => {
    const fixture = await outboxFixture(db)
    const { lane } = fixture.outbox.tables
    await db.query(
      `update ${lane.quoted} set lock_token = gen_random_uuid(), lock_expires_at = clock_timestamp() + interval '1 hour'`,
    )
    await changeLanes(fixture, 128)
    const { rows } = await db.query(`select count(*)::int as lanes, count(lock_token)::int as leased from ${lane.quoted}`)
    expect(rows).toEqual([{ lanes: 128, leased: 0 }])
  })

  test('is refused for numbers that are no power of two, and in a transaction that could not see what it waited for', async () => {
    const fixture = await outboxFixture(db)
    for (const lanes of [0, 3, 8192]) await expect(changeLanes(fixture, lanes)).rejects.toMatchObject({ code: '22023' })
    const change = `select ${fixture.outbox.tables.changeLanes.quoted}(4)`
    for (const isolation of ['repeatable read', 'serializable'] as const)
      await expect(transaction(db, (tx) => tx.query(change), { isolation })).rejects.toMatchObject({ code: '25001' })
  })
})

test('a hint names the lane that the database chose, whatever the name of the aggregate', async () => {
  const fixture = await outboxFixture(db)
  const ids = ['v', 'ümlaut', '視頻', 'a b', '🙂', ...Array.from({ length: 40 }, (_, n) => `video-${n}`)]
  const hinted = new Map<string, number | undefined>()
  for (const id of ids) {
    const unsubscribe = fixture.outbox.onCommitted((hint) => void hinted.set(id, hint?.[0]))
    await fixture.publish(id, 'one')
    unsubscribe()
  }
  const { rows } = await db.query(
    `select o.aggregate_id as id, d.lane from ${fixture.outbox.tables.outbox.quoted} o join ${fixture.outbox.tables.dispatch.quoted} d on d.event_id = o.id`,
  )
  const lanes = new Map((rows as { id: string; lane: number }[]).map(({ id, lane }) => [id, lane]))
  expect(ids.map((id) => (hinted.get(id) ?? -1) & 63)).toEqual(ids.map((id) => lanes.get(id)))
})

test('a relay that rests reads the lane that it is told of alone; what nobody tells it, it finds by itself', async () => {
  const { outbox, publish, signals } = await outboxFixture(db)
  const broker = memory()
  const read: number[] = []
  const watched: Database = {
    ...db,
    query: (text, values) => {
      if (text.includes(outbox.tables.read.quoted))
        read.push(String(values?.find((value) => String(value).startsWith('{'))).split(',').length)
      return db.query(text, values)
    },
  }
  const idleMs = 100
  const relay = createRelay({ db: watched, outbox, transport: broker, signals, idleMs, busyMs: idleMs })
  const stop = new AbortController()
  const running = run([relay], { signal: stop.signal })
  await eventually(() => read.length > 1)
  let published = 0
  await eventually(async () => {
    await publish('v', 'told')
    published += 1
    await eventually(() => broker.publishedCount === published)
    expect(read).toContain(1)
  })
  expect(read).toContain(64)
  // By another outbox object, as by another process that sends no notification.
  const elsewhere = createOutbox({ schema: outbox.tables.schema })
  await transaction(db, (tx) => elsewhere.add(tx, videos.VideoPublished, 'untold', { title: 'x' }))
  await eventually(() => broker.publishedCount === published + 1)
  stop.abort()
  await running
})
