import { expect, test } from 'vitest'

import {
  bookBackfill,
  books,
  createBookTable,
  foldLog,
  ownerState,
  removeBook,
  snapshotCounts,
  writeBook,
  type BookRow,
} from '../../test/outbox/backfill-world.ts'
import { outboxFixture } from '../../test/setup/outbox-fixture.ts'
import { testDatabase } from '../../test/setup/test-database.ts'
import { delta } from '../core/event.ts'
import { stream } from '../core/stream.ts'
import { fromPg } from '../postgres/from-pg.ts'
import { transaction } from '../postgres/transaction.ts'
import { createFakeClock, type FakeClock } from '../testing/fake-clock.ts'
import { eventually } from '../testing/eventually.ts'
import { memory } from '../transport/memory.ts'
import type { BackfillSource } from './backfill-source.ts'
import { backfillTable } from './backfill-table.ts'
import { createBackfill, type Backfill, type BackfillOptions } from './backfill.ts'
import { event } from './outbox.ts'
import { z } from 'zod'

const database = await testDatabase()
const db = fromPg(database.pool)
let tables = 0

async function library(count: number) {
  const fixture = await outboxFixture(db)
  const table = `public.book_${(tables += 1)}`
  await createBookTable(db, table, count)
  const owner = { db, outbox: fixture.outbox, table }
  const source = backfillTable<BookRow>({ table, key: 'id' })
  const backfill = (options: Partial<BackfillOptions<BookRow>> = {}): Backfill =>
    createBackfill({
      db,
      outbox: fixture.outbox,
      name: 'books',
      source,
      ...bookBackfill,
      rowsPerSecond: 1_000_000,
      signals: fixture.signals,
      ...options,
    })
  const fold = async (): Promise<Record<string, string>> => {
    const broker = memory()
    await fixture.relay(broker).once()
    return foldLog(broker)
  }
  return { ...fixture, table, owner, source, backfill, fold }
}

/** Resolves when a statement that contains this waits for a lock. */
async function waitsForLock(text: string): Promise<void> {
  const waiting = `select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like $1`
  await eventually(async () => (await db.query(waiting, [`%${text}%`])).rowCount > 0)
}

/** Moves the clock on until the work is done. */
async function passTime<Result>(clock: FakeClock, work: Promise<Result>): Promise<Result> {
  let isDone = false
  const watched = work.finally(() => (isDone = true))
  await eventually(() => clock.advance(250).then(() => isDone))
  return await watched
}

/** Does something between the reading of a page and the locks of its batch, once. */
function between(source: BackfillSource<BookRow>, act: () => Promise<void>): BackfillSource<BookRow> {
  let isDone = false
  return {
    ...source,
    page: async (queryable, options) => {
      const page = await source.page(queryable, options)
      if (!isDone) await act()
      isDone = true
      return page
    },
  }
}

test('every row becomes one state event, marked as a snapshot, with the next version of its aggregate', async () => {
  const { owner, outbox, backfill, fold, signals } = await library(250)
  await writeBook(owner, { id: 'b0007', title: 'written before' })
  const seen: unknown[] = []
  signals.on('backfill.progress', (progress) => void seen.push(progress))
  const report = await backfill().run()
  expect(report).toMatchObject({ state: 'finished', rows: 250, emitted: 250, skipped: 0 })
  expect(await fold()).toEqual(await ownerState(db, owner.table))
  const { rows } = await db.query(
    `select version::int, headers->>'waybill-snapshot' as snapshot from ${outbox.tables.outbox.quoted} where aggregate_id = 'b0007' order by 1`,
  )
  expect(rows).toEqual([
    { version: 1, snapshot: null },
    { version: 2, snapshot: report.operation },
  ])
  expect(seen.at(-1)).toMatchObject({ rows: 250, done: 250, total: 250, unit: 'rows', etaMs: 0 })
})

test('a write between the reading of a row and its lock is not overwritten, and a row deleted then is not emitted', async () => {
  const { owner, source, backfill, fold, outbox } = await library(3)
  const racing = between(source, async () => {
    await writeBook(owner, { id: 'b0001', title: 'newer' })
    await removeBook(owner, 'b0002')
  })
  expect(await backfill({ source: racing }).run()).toMatchObject({ rows: 3, emitted: 2, skipped: 1 })
  expect(await snapshotCounts(db, outbox)).toEqual({ b0001: 1, b0003: 1 })
  expect(await fold()).toEqual({ b0001: 'newer', b0003: 'old 3' })
})

test('a change that is not committed yet gets a later version than the snapshot of the state before it', async () => {
  const { owner, outbox, backfill, fold, table } = await library(1)
  await transaction(db, async (tx) => {
    await tx.query(`update ${table} set title = 'newer' where id = 'b0001'`)
    expect(await backfill().run()).toMatchObject({ emitted: 1 })
    await outbox.add(tx, books.BookKept, 'b0001', { title: 'newer' })
  })
  expect(await fold()).toEqual(await ownerState(db, owner.table))
  expect(await snapshotCounts(db, outbox)).toEqual({ b0001: 1 })
})

test('a backfill gives way to a writer that holds one of its aggregates and wants another, and comes back', async () => {
  const { owner, outbox, backfill, fold, signals, table } = await library(4)
  const gaveWay = Promise.withResolvers<void>()
  signals.on('backfill.waiting', ({ reason }) => reason === 'lock' && gaveWay.resolve())
  let running: Promise<unknown> | undefined
  await transaction(
    db,
    async (tx) => {
      await tx.query(`update ${table} set title = 'newer'`)
      await outbox.add(tx, books.BookKept, 'b0003', { title: 'newer' })
      running = backfill({ lockTimeoutMs: 400 }).run()
      await waitsForLock('lock_aggregates')
      // The backfill holds b0001 and waits for b0003: the opposite order would be a deadlock if it stayed.
      await outbox.add(tx, books.BookKept, 'b0001', { title: 'newer' })
      await gaveWay.promise
      for (const id of ['b0002', 'b0004']) await outbox.add(tx, books.BookKept, id, { title: 'newer' })
    },
    { retries: 0 },
  )
  expect(await running).toMatchObject({ state: 'finished', emitted: 4 })
  expect(await fold()).toEqual(await ownerState(db, owner.table))
})

test('keys of several columns and numbers beyond those of JavaScript are walked exactly, and views too', async () => {
  const { outbox } = await outboxFixture(db)
  await db.query(`create table public.shelf (place bigint, slot timestamptz, label text, primary key (place, slot))`)
  await db.query(`
    insert into public.shelf
    select 9007199254740992 + i, timestamptz '2025-01-01 00:00:00.000001+00' + j * interval '1 microsecond', i || ' ' || j
      from generate_series(1, 5) i, generate_series(1, 7) j`)
  await db.query(`create view public.shelf_view as select * from public.shelf where label <> '3 3'`)
  const walked = async (table: string): Promise<string[]> => {
    const labels: string[] = []
    const report = await createBackfill<{ label: string }>({
      db,
      outbox,
      name: table,
      source: backfillTable({ table: `public.${table}`, key: ['place', 'slot'] }),
      stream: books,
      aggregateId: ({ label }) => label,
      toEvent: ({ label }) => (labels.push(label), event(books.BookKept, label, { title: label })),
      batchSize: 3,
      rowsPerSecond: 1_000_000,
    }).run()
    expect(report.rows).toBe(labels.length)
    return labels
  }
  const all = Array.from({ length: 35 }, (_, i) => `${Math.floor(i / 7) + 1} ${(i % 7) + 1}`)
  expect(await walked('shelf')).toEqual(all)
  expect(await walked('shelf_view')).toEqual(all.filter((label) => label !== '3 3'))
})

test('what belongs to the state is read under the same lock, and rows without an event are left out', async () => {
  const { backfill, fold, table } = await library(3)
  const report = await backfill({
    toEvent: async (row, tx) => {
      if (row.id === 'b0002') return undefined
      const { rows } = await tx.query(`select count(*)::int as n from ${table}`)
      return event(books.BookKept, row.id, { title: `one of ${(rows[0] as { n: number }).n}` })
    },
  }).run()
  expect(report).toMatchObject({ rows: 3, emitted: 2, skipped: 1 })
  expect(await fold()).toEqual({ b0001: 'one of 3', b0003: 'one of 3' })
})

test('an unfinished backfill is not begun a second time; resumed, it goes on where it was', async () => {
  const { backfill, outbox } = await library(30)
  const stop = new AbortController()
  const stopped = await backfill({
    batchSize: 10,
    toEvent: (row) => (row.id === 'b0012' && stop.abort(), bookBackfill.toEvent(row)),
  }).run({ signal: stop.signal })
  expect(stopped).toMatchObject({ state: 'stopped', rows: 20 })
  await expect(backfill().run()).rejects.toMatchObject({ code: 'REFUSED', details: { operation: stopped.operation } })

  const resumed = await backfill().run({ mode: 'resume' })
  expect(resumed).toMatchObject({ operation: stopped.operation, state: 'finished', rows: 30, emitted: 30 })
  expect(Object.values(await snapshotCounts(db, outbox)).every((count) => count === 1)).toBe(true)
  expect(await backfill().run({ mode: 'resume' })).toEqual(resumed)
  const again = await backfill().run()
  expect(again).toMatchObject({ state: 'finished', rows: 30 })
  expect(again.operation).not.toBe(stopped.operation)
})

test('whoever resumes takes over: the process that worked before stops at its next batch and emits nothing more', async () => {
  const { backfill, source, outbox } = await library(30)
  let taken: unknown
  const racing: BackfillSource<BookRow> = {
    ...source,
    page: async (queryable, options) => {
      const page = await source.page(queryable, options)
      if (options.cursor !== undefined) taken ??= await backfill().run({ mode: 'resume' })
      return page
    },
  }
  await expect(backfill({ source: racing, batchSize: 10 }).run()).rejects.toMatchObject({ code: 'REFUSED' })
  expect(taken).toMatchObject({ state: 'finished', rows: 30, emitted: 30 })
  expect(Object.values(await snapshotCounts(db, outbox))).toEqual(Array.from({ length: 30 }, () => 1))
})

test('who takes over while a batch is being committed goes on behind that batch', async () => {
  const { backfill, outbox } = await library(30)
  let taking: Promise<unknown> | undefined
  const first = backfill({
    batchSize: 10,
    toEvent: async (row) => {
      if (row.id === 'b0020') {
        taking = backfill().run({ mode: 'resume' })
        await waitsForLock('update%operation')
      }
      return bookBackfill.toEvent(row)
    },
  })
  await Promise.allSettled([first.run()])
  expect(await taking).toMatchObject({ state: 'finished', rows: 30, emitted: 30 })
  expect(Object.values(await snapshotCounts(db, outbox))).toEqual(Array.from({ length: 30 }, () => 1))
})

test('a restart gives an unfinished one up and begins; another source is not gone on with', async () => {
  const { backfill } = await library(20)
  const stop = new AbortController()
  const early = { batchSize: 5, toEvent: (row: BookRow) => (stop.abort(), bookBackfill.toEvent(row)) }
  const stopped = await backfill(early).run({ signal: stop.signal })
  const other = await library(1)
  await expect(backfill({ source: other.source }).run({ mode: 'resume' })).rejects.toMatchObject({ code: 'REFUSED' })
  const restarted = await backfill().run({ mode: 'restart' })
  expect(restarted).toMatchObject({ state: 'finished', rows: 20 })
  expect(restarted.operation).not.toBe(stopped.operation)
})

test('a row that cannot be an event stops the backfill by name, after all before it; repaired, it goes on', async () => {
  const { backfill, table, fold } = await library(20)
  await db.query(`alter table ${table} alter title drop not null`)
  await db.query(`update ${table} set title = null where id = 'b0013'`)
  await expect(backfill().run()).rejects.toThrow(/"b0013" cannot be emitted: The data does not fit its schema/)
  expect(Object.keys(await fold())).toHaveLength(12)
  await db.query(`update ${table} set title = 'mended' where id = 'b0013'`)
  expect(await backfill().run({ mode: 'resume' })).toMatchObject({ state: 'finished', rows: 20, emitted: 20 })
})

test('events that could not repair a consumer are refused: deltas, other streams, other aggregates', async () => {
  const { backfill } = await library(1)
  const loans = stream('loan', { topic: 'loan.events', events: { Lent: delta(z.object({})) } })
  const lent = { stream: loans, toEvent: (row: BookRow) => event(loans.Lent, row.id, {}) }
  await expect(backfill(lent).run()).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  await expect(backfill({ stream: loans }).run({ mode: 'restart' })).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  const other = { toEvent: () => event(books.BookKept, 'b9999', { title: 'x' }) }
  await expect(backfill(other).run({ mode: 'restart' })).rejects.toMatchObject({ code: 'INVALID_OPTION' })
})

test('the rate is kept: after n seconds no more than n times the rate is emitted', async () => {
  const { backfill, signals } = await library(100)
  const clock = createFakeClock()
  let rows = 0
  signals.on('backfill.progress', (progress) => void (rows = progress.rows))
  const running = backfill({ rowsPerSecond: 40, clock }).run()
  for (const expected of [10, 20, 30, 40]) {
    await eventually(() => rows === expected && clock.sleepers() === 1)
    await clock.advance(249)
    expect(clock.sleepers()).toBe(1)
    await clock.advance(1)
  }
  await eventually(async () => {
    await clock.advance(250)
    return rows === 100
  })
  expect(await passTime(clock, running)).toMatchObject({ rows: 100 })
})

test('while the relay has more to send than the limit the backfill waits, and goes on when there is room', async () => {
  const { backfill, fill, relay, signals, outbox } = await library(5)
  await fill(['v1', 'v2'], 10)
  const clock = createFakeClock()
  let waits = 0
  signals.on('backfill.waiting', ({ reason }) => void (waits += Number(reason === 'backlog')))
  const running = backfill({ maxBacklog: 19, clock, rowsPerSecond: 1_000_000 }).run()
  await eventually(() => waits === 1 && clock.sleepers() === 1)
  await clock.advance(500)
  await eventually(() => clock.sleepers() === 1)
  expect(await snapshotCounts(db, outbox)).toEqual({})
  await relay(memory()).once()
  expect(await passTime(clock, running)).toMatchObject({ state: 'finished', emitted: 5 })
  expect(waits).toBe(1)
})
