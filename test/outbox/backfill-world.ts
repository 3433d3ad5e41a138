/**
 * An owner with a table, its stream, and what a consumer makes of the broker's log: the questions that backfill tests ask.
 */
import { z } from 'zod'
import { state, tombstone } from '../../src/core/event/event.ts'
import { stream } from '../../src/core/event/stream.ts'
import { event, type NewEvent, type Outbox } from '../../src/outbox/outbox.ts'
import type { Database, Tx } from '../../src/postgres/query/database.ts'
import { transaction } from '../../src/postgres/transaction/transaction.ts'
import type { MemoryTransport } from '../../src/transport/memory/memory.ts'
import { patience } from './stress/writers.ts'

export const books = stream('book', {
  topic: 'book.events',
  events: { BookKept: state(z.object({ title: z.string() })), BookRemoved: tombstone() },
})

export interface BookRow {
  readonly id: string
  readonly title: string
}

/** What every backfill of books has in common. */
export const bookBackfill = {
  stream: books,
  aggregateId: (row: BookRow): string => row.id,
  toEvent: (row: BookRow): NewEvent => event(books.BookKept, row.id, { title: row.title }),
}

export async function createBookTable(db: Database, table: string, count: number): Promise<void> {
  await db.query(`create table ${table} (id text primary key, title text not null)`)
  await db.query(`insert into ${table} select 'b' || to_char(i, 'FM0000'), 'old ' || i from generate_series(1, $1::int) i`, [
    count,
  ])
}

/** Changes a book and adds its event in one transaction, as every writer does. */
export async function writeBook(
  { db, outbox, table }: { readonly db: Database; readonly outbox: Outbox; readonly table: string },
  { id, title }: BookRow,
): Promise<void> {
  const change = async (tx: Tx): Promise<void> => {
    await tx.query(`insert into ${table} values ($1, $2) on conflict (id) do update set title = excluded.title`, [id, title])
    await outbox.add(tx, books.BookKept, id, { title })
  }
  await transaction(db, change, patience)
}

export async function removeBook(
  { db, outbox, table }: { readonly db: Database; readonly outbox: Outbox; readonly table: string },
  id: string,
): Promise<void> {
  const change = async (tx: Tx): Promise<void> => {
    await tx.query(`delete from ${table} where id = $1`, [id])
    await outbox.add(tx, books.BookRemoved, id)
  }
  await transaction(db, change, patience)
}

export async function ownerState(db: Database, table: string): Promise<Record<string, string>> {
  const { rows } = await db.query(`select id, title from ${table} order by id`)
  return Object.fromEntries((rows as BookRow[]).map((row) => [row.id, row.title]))
}

/** The broker's log as a consumer reads it: an event applies if its version is newer than the one before. */
export function foldLog(broker: MemoryTransport): Record<string, string> {
  const versions = new Map<string, bigint>()
  const titles = new Map<string, string>()
  for (const { attributes, body } of broker.published) {
    const id = attributes['aggregate_id'] ?? ''
    const version = BigInt(attributes['version'] ?? 0)
    if (version <= (versions.get(id) ?? 0n)) continue
    versions.set(id, version)
    if (attributes['event_type'] === 'BookRemoved') titles.delete(id)
    else titles.set(id, (JSON.parse(Buffer.from(body).toString()) as BookRow).title)
  }
  return Object.fromEntries([...titles].toSorted(([a], [b]) => (a < b ? -1 : 1)))
}

/** How often each aggregate's snapshot is in the outbox. */
export async function snapshotCounts(db: Database, outbox: Outbox): Promise<Record<string, number>> {
  const { rows } = await db.query(
    `select aggregate_id, count(*)::int as n from ${outbox.tables.outbox.quoted} where headers ? 'waybill-snapshot' group by 1 order by 1`,
  )
  return Object.fromEntries((rows as { aggregate_id: string; n: number }[]).map((row) => [row.aggregate_id, row.n]))
}
