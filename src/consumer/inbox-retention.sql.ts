/** The statements that remove what is old enough from the inbox and beside it, and those that say how far back it remembers. */
import { sql, type Statement } from '../postgres/sql.ts'
import type { InboxTables } from './inbox.sql.ts'

interface Expiry {
  readonly ageMs: number
  readonly batchSize: number
}

/**
 * Removes old inbox rows, and writes down in the same transaction that they may be missing from now on. Rows that another
 * instance removes are left to it. Index: inbox_processed_at_idx.
 */
export function expireInbox(tables: InboxTables, { ageMs, batchSize }: Expiry): Statement<{ removed: number }> {
  return sql`
    with edge as materialized (
      select clock_timestamp() - ${ageMs}::float8 * interval '1 millisecond' as at
    ), old as materialized (
      select i.ctid from ${tables.inbox} i where i.processed_at < (select at from edge) limit ${batchSize}::int for update skip locked
    ), noted as (
      update ${tables.consumer} c set forgotten_before = (select at from edge)
       where exists (select from old) and (c.forgotten_before is null or c.forgotten_before < (select at from edge))
    ), gone as (
      delete from ${tables.inbox} i where i.ctid = any (array(select ctid from old)) returning 1
    )
    select count(*)::int as removed from gone`
}

/** Removes what is known of attempts that nobody ever finished. Index: delivery_attempt_first_at_idx. */
export function expireAttempts(tables: InboxTables, { ageMs, batchSize }: Expiry): Statement<{ removed: number }> {
  return sql`
    with old as materialized (
      select a.ctid from ${tables.attempt} a
       where a.first_at < (select clock_timestamp() - ${ageMs}::float8 * interval '1 millisecond')
       limit ${batchSize}::int for update skip locked
    ), gone as (
      delete from ${tables.attempt} a where a.ctid = any (array(select ctid from old)) returning 1
    )
    select count(*)::int as removed from gone`
}

/** Removes letters that were redriven or discarded. One that is dead still waits for somebody. Index: dead_letter_dead_at_idx. */
export function expireDeadLetters(tables: InboxTables, { ageMs, batchSize }: Expiry): Statement<{ removed: number }> {
  return sql`
    with old as materialized (
      select d.id from ${tables.deadLetter} d
       where d.dead_at < (select clock_timestamp() - ${ageMs}::float8 * interval '1 millisecond') and d.state in ('redriven', 'discarded')
       limit ${batchSize}::int for update skip locked
    ), gone as (
      delete from ${tables.deadLetter} d where d.id in (select id from old) returning 1
    )
    select count(*)::int as removed from gone`
}

/** How far back a consumer's inbox remembers; null if nothing was ever removed from it. */
export function selectMemory(tables: InboxTables, consumer: string): Statement<{ forgotten_before_ms: string | null }> {
  return sql`
    select (extract(epoch from c.forgotten_before) * 1000)::bigint::text as forgotten_before_ms from ${tables.consumer} c where c.name = ${consumer}::text`
}
