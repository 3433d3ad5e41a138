/**
 * A library whose books are backfilled, and ways to meet a backfill at a given moment.
 */
import type { BackfillSource } from '../../src/outbox/backfill/sources.ts'
import { backfillTable } from '../../src/outbox/backfill/table-source.ts'
import { createBackfill, type Backfill, type BackfillOptions } from '../../src/outbox/backfill/backfill.ts'
import type { Outbox } from '../../src/outbox/outbox.ts'
import type { Database } from '../../src/postgres/query/database.ts'
import { eventually } from '../../src/testing/kit/eventually.ts'
import type { FakeClock } from '../../src/testing/kit/fake-clock.ts'
import { memory } from '../../src/transport/memory/memory.ts'
import { outboxFixture, type OutboxFixture } from '../setup/outbox-fixture.ts'
import { bookBackfill, createBookTable, foldLog, type BookRow } from './backfill-world.ts'

export interface Library extends OutboxFixture {
  readonly table: string
  readonly owner: { readonly db: Database; readonly outbox: Outbox; readonly table: string }
  readonly source: BackfillSource<BookRow>
  backfill(options?: Partial<BackfillOptions<BookRow>>): Backfill
  /** Relays what is due, and folds what the broker has then. */
  fold(): Promise<Record<string, string>>
}

let tables = 0

/** An owner with `count` books and a backfill of them that goes as fast as it can. */
export async function library(db: Database, count: number): Promise<Library> {
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
export async function waitsForLock(db: Database, text: string): Promise<void> {
  const waiting = `select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like $1`
  await eventually(async () => (await db.query(waiting, [`%${text}%`])).rowCount > 0)
}

/** Moves the clock on until the work is done. */
export async function passTime<Result>(clock: FakeClock, work: Promise<Result>): Promise<Result> {
  let isDone = false
  const watched = work.finally(() => (isDone = true))
  await eventually(() => clock.advance(250).then(() => isDone))
  return await watched
}

/** Does something between the reading of a page and the locks of its batch, once. */
export function between(source: BackfillSource<BookRow>, act: () => Promise<void>): BackfillSource<BookRow> {
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
