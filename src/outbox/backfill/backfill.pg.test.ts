import { expect, test } from 'vitest'

import {
  bookBackfill,
  books,
  ownerState,
  removeBook,
  snapshotCounts,
  writeBook,
  type BookRow,
} from '../../../test/outbox/backfill-world.ts'
import { between, library, waitsForLock } from '../../../test/outbox/backfill-library.ts'
import { outboxFixture } from '../../../test/setup/outbox-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { delta } from '../../core/event/event.ts'
import { stream } from '../../core/event/stream.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { name } from '../../postgres/query/sql.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import type { BackfillSource } from './sources.ts'
import { backfillTable } from './table-source.ts'
import { createBackfill } from './backfill.ts'
import { selectKeyed, selectPage } from '../tables/backfill.sql.ts'
import { event, type NewEvent } from '../outbox.ts'
import { z } from 'zod'

const database = await testDatabase()
const db = fromPg(database.pool)

test('every row becomes one state event, marked as a snapshot, with the next version of its aggregate', async () => {
  const { owner, outbox, backfill, fold, signals } = await library(db, 250)
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
  const { owner, source, backfill, fold, outbox } = await library(db, 3)
  const racing = between(source, async () => {
    await writeBook(owner, { id: 'b0001', title: 'newer' })
    await removeBook(owner, 'b0002')
  })
  expect(await backfill({ source: racing }).run()).toMatchObject({ rows: 3, emitted: 2, skipped: 1 })
  expect(await snapshotCounts(db, outbox)).toEqual({ b0001: 1, b0003: 1 })
  expect(await fold()).toEqual({ b0001: 'newer', b0003: 'old 3' })
})

test('a change that is not committed yet gets a later version than the snapshot of the state before it', async () => {
  const { owner, outbox, backfill, fold, table } = await library(db, 1)
  await transaction(db, async (tx) => {
    await tx.query(`update ${table} set title = 'newer' where id = 'b0001'`)
    expect(await backfill().run()).toMatchObject({ emitted: 1 })
    await outbox.add(tx, books.BookKept, 'b0001', { title: 'newer' })
  })
  expect(await fold()).toEqual(await ownerState(db, owner.table))
  expect(await snapshotCounts(db, outbox)).toEqual({ b0001: 1 })
})

test('a writer waits for a snapshot that is being made, and its change comes after it', async () => {
  const { owner, backfill, fold } = await library(db, 1)
  let writing: Promise<void> | undefined
  const toEvent = async (row: BookRow): Promise<NewEvent> => {
    let hasWritten = false
    writing = writeBook(owner, { id: row.id, title: 'newer' }).then(() => void (hasWritten = true))
    await Promise.race([writing, waitsForLock(db, 'add_event')])
    expect(hasWritten).toBe(false)
    return bookBackfill.toEvent(row)
  }
  expect(await backfill({ toEvent }).run()).toMatchObject({ emitted: 1 })
  await writing
  expect(await fold()).toEqual({ b0001: 'newer' })
})

test('a page and the rows of its keys are found by the index of the key, however many there are', async () => {
  await db.query(`create table public.many (place int, slot int, primary key (place, slot))`)
  await db.query(`insert into public.many select i / 100, i % 100 from generate_series(1, 50000) i`)
  await db.query(`analyze public.many`)
  const keyed = { table: name('public', 'many'), key: [name('place'), name('slot')] }
  const keys = Array.from({ length: 100 }, (_, i) => JSON.stringify({ place: 400, slot: i }))
  for (const { text, values } of [selectPage(keyed, keys[0], 100), selectKeyed(keyed, keys)]) {
    const { rows } = await db.query(`explain ${text}`, values)
    const plan = (rows as { 'QUERY PLAN': string }[]).map((row) => row['QUERY PLAN']).join('\n')
    expect(plan).toMatch(/Index Cond: .*place.*slot/)
    expect(plan).not.toContain('Sort')
  }
})

test('a backfill gives way to a writer that holds one of its aggregates and wants another, and comes back', async () => {
  const { owner, outbox, backfill, fold, signals, table } = await library(db, 4)
  const gaveWay = Promise.withResolvers<void>()
  signals.on('backfill.waiting', ({ reason }) => reason === 'lock' && gaveWay.resolve())
  let running: Promise<unknown> | undefined
  await transaction(
    db,
    async (tx) => {
      // The writer never breaks the circle itself, however late the backfill gives way.
      await tx.query(`set local deadlock_timeout = '1h'`)
      await tx.query(`update ${table} set title = 'newer'`)
      await outbox.add(tx, books.BookKept, 'b0003', { title: 'newer' })
      running = backfill({ lockTimeoutMs: 400 }).run()
      await waitsForLock(db, 'lock_aggregates')
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
  const { backfill, fold, table } = await library(db, 3)
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
  const { backfill, outbox } = await library(db, 30)
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
  const { backfill, source, outbox } = await library(db, 30)
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
  const { backfill, outbox } = await library(db, 30)
  let taking: Promise<unknown> | undefined
  const first = backfill({
    batchSize: 10,
    toEvent: async (row) => {
      if (row.id === 'b0020') {
        taking = backfill().run({ mode: 'resume' })
        await waitsForLock(db, 'update%operation')
      }
      return bookBackfill.toEvent(row)
    },
  })
  await Promise.allSettled([first.run()])
  expect(await taking).toMatchObject({ state: 'finished', rows: 30, emitted: 30 })
  expect(Object.values(await snapshotCounts(db, outbox))).toEqual(Array.from({ length: 30 }, () => 1))
})

test('a restart gives an unfinished one up and begins; another source is not gone on with', async () => {
  const { backfill } = await library(db, 20)
  const stop = new AbortController()
  const early = { batchSize: 5, toEvent: (row: BookRow) => (stop.abort(), bookBackfill.toEvent(row)) }
  const stopped = await backfill(early).run({ signal: stop.signal })
  const other = await library(db, 1)
  await expect(backfill({ source: other.source }).run({ mode: 'resume' })).rejects.toMatchObject({ code: 'REFUSED' })
  const restarted = await backfill().run({ mode: 'restart' })
  expect(restarted).toMatchObject({ state: 'finished', rows: 20 })
  expect(restarted.operation).not.toBe(stopped.operation)
})

test('a row that cannot be an event stops the backfill by name, after all before it; repaired, it goes on', async () => {
  const { backfill, table, fold } = await library(db, 20)
  await db.query(`alter table ${table} alter title drop not null`)
  await db.query(`update ${table} set title = null where id = 'b0013'`)
  await expect(backfill().run()).rejects.toThrow(/"b0013" cannot be emitted: The data does not fit its schema/)
  expect(Object.keys(await fold())).toHaveLength(12)
  await db.query(`update ${table} set title = 'mended' where id = 'b0013'`)
  expect(await backfill().run({ mode: 'resume' })).toMatchObject({ state: 'finished', rows: 20, emitted: 20 })
})

test('events that could not repair a consumer are refused: deltas, other streams, other aggregates', async () => {
  const { backfill } = await library(db, 1)
  const loans = stream('loan', { topic: 'loan.events', events: { Lent: delta(z.object({})) } })
  const lent = { stream: loans, toEvent: (row: BookRow) => event(loans.Lent, row.id, {}) }
  await expect(backfill(lent).run()).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  await expect(backfill({ stream: loans }).run({ mode: 'restart' })).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  const other = { toEvent: () => event(books.BookKept, 'b9999', { title: 'x' }) }
  await expect(backfill(other).run({ mode: 'restart' })).rejects.toMatchObject({ code: 'INVALID_OPTION' })
})
