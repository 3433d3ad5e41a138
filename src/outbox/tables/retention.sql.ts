/**
 * The statements that remove what is old enough from the outbox and its side tables.
 */
import { name, part, sql, type Part, type Statement } from '../../postgres/query/sql.ts'
import type { OutboxTables } from './outbox.sql.ts'

export type Expiring = 'events' | 'receipts' | 'sources'

/** Where a sweep goes on: behind an id in the index, or from a block of the table. */
export type SweepPlace = { readonly after: string } | { readonly block: number }

/**
 * The moment before which rows are old, and, behind a connector, the transaction id below which everything was confirmed by its slot.
 * Milliseconds: a moment as text is read in the DateStyle of whichever session it comes to.
 */
export interface ExpiryLimit {
  readonly olderThanMs: number
  readonly endedBefore: string | null
}

export interface ExpiredRows {
  readonly seen: number
  readonly removed: number
  readonly last: string | null
  readonly done: boolean
}

/** Removes one batch; see the function for how. Indexes: primary keys of outbox and outbox_source, outbox_receipt_event_id_idx. */
export function expireRows(
  tables: OutboxTables,
  what: Expiring,
  { limit, place, batchSize }: { readonly limit: ExpiryLimit; readonly place: SweepPlace; readonly batchSize: number },
): Statement<ExpiredRows> {
  return sql`
    select seen, removed, last::text, done
      from ${name(tables.schema, 'outbox_expire')}(${what}, to_timestamp(${limit.olderThanMs}::float8 / 1000), ${limit.endedBefore}::text::xid8, ${batchSize}::int,
        ${'after' in place ? place.after : null}::text::uuid, ${'block' in place ? String(place.block) : null}::text::bigint)`
}

/** A block in the table to start a walk from, drawn anew each time: walks that are soon over come everywhere in the end. */
export function selectWalkStart(tables: OutboxTables, what: Expiring, blocks: number): Statement<{ block: number }> {
  const table = { events: tables.outbox, receipts: tables.receipt, sources: tables.source }[what]
  return sql`
    select (floor(random() * pg_relation_size(${table.quoted}::text::regclass)
                  / (current_setting('block_size')::bigint * ${blocks}::int)) * ${blocks}::int)::float8 as block`
}

/** The moment before which rows are old, by the database's clock. */
export function selectLimit(ageMs: number): Statement<{ older_than_ms: number }> {
  return sql`select ${momentBefore(ageMs)} as older_than_ms`
}

function momentBefore(ageMs: number): Part {
  return part`(extract(epoch from clock_timestamp()) * 1000)::float8 - ${ageMs}::float8`
}

/**
 * A line in the log: whatever is visible to this statement committed before `lsn`, and every transaction below `ended_before`
 * has ended. Once a slot has confirmed `lsn`, its connector has all of them.
 */
export function selectBarrier(ageMs: number): Statement<{ older_than_ms: number; ended_before: string; lsn: string }> {
  return sql`
    select ${momentBefore(ageMs)} as older_than_ms,
           pg_snapshot_xmin(pg_current_snapshot())::text as ended_before, pg_current_wal_insert_lsn()::text as lsn`
}

export interface SlotRow {
  readonly reached: boolean
  /** The server has removed log that its reader had not read. */
  readonly lost: boolean
  readonly confirmed: string | null
}

/** What a slot of this database has confirmed; no row if there is no such slot. */
export function selectSlot(slot: string, lsn: string): Statement<SlotRow> {
  return sql`
    select coalesce(confirmed_flush_lsn >= ${lsn}::text::pg_lsn, false) as reached, coalesce(wal_status = 'lost', false) as lost,
           confirmed_flush_lsn::text as confirmed
      from pg_replication_slots
     where slot_name = ${slot} and database = current_database()`
}
