/**
 * The statements by which one instance at a time has a redriven letter or a released message in hand.
 *
 * Both lie in `next_attempt_at`, which whoever looks for work respects. So what is taken rests for the others until it is given
 * back or the lease is over, and nobody waits for a lock here. Index of all: the unique one on the event, of either table.
 *
 * A database clock that steps back makes rests and leases longer than they were meant to be. The last two statements end those.
 */
import { part, sql, sqlArray, type Name, type Part, type Statement } from '../../postgres/query/sql.ts'
import type { Scope } from './inbox.sql.ts'
import type { UnreadItem } from '../model/batch-item.ts'
import { ids } from './item-arrays.ts'

/** What was taken; `until` is the end of its lease in microseconds, and names it. */
export interface TakenRow {
  readonly id: string
  readonly until: string
}

export interface LeasedWorkStatements {
  /** Takes those of the items that are still to be worked and that nobody else has. */
  readonly take: (scope: Scope, items: readonly UnreadItem[], leaseMs: number) => Statement<TakenRow>
  /** Prolongs leases. Rows that a transaction has locked are left as they are. */
  readonly renew: (scope: Scope, taken: readonly TakenRow[], leaseMs: number) => Statement<TakenRow>
  /** Gives back what is still there under these leases, whatever became of it. */
  readonly give: (scope: Scope, taken: readonly TakenRow[]) => Statement
}

/** Dead letters that are to be redriven. */
export const leasedLetters: LeasedWorkStatements = statements(({ deadLetter }) => deadLetter, {
  isOpen: part`r.state = 'redriving'`,
  stamp: part``,
})

/** Messages that wait although their turn has come. */
export const leasedWaiting: LeasedWorkStatements = statements(({ message }) => message, {
  isOpen: part`r.state = 4`,
  stamp: part`, started_at = clock_timestamp()`,
})

/** `stamp` notes when a lease was set, where there is a place for it. */
function statements(
  tableOf: (tables: Scope['tables']) => Name,
  { isOpen, stamp }: { readonly isOpen: Part; readonly stamp: Part },
): LeasedWorkStatements {
  return {
    take: ({ tables, consumer, generation }, items, leaseMs) => sql`
      with free as materialized (
        select r.event_id from ${tableOf(tables)} r
         where r.consumer = ${consumer}::text and r.generation = ${generation}::int and r.event_id = any (${ids(items)}::text::uuid[])
           and ${isOpen} and (r.next_attempt_at is null or r.next_attempt_at <= (select clock_timestamp()))
         order by r.event_id for update skip locked
      )
      update ${tableOf(tables)} r set next_attempt_at = clock_timestamp() + ${leaseMs}::int * interval '1 millisecond'${stamp}
       where r.consumer = ${consumer}::text and r.generation = ${generation}::int and r.event_id in (select event_id from free)
      returning r.event_id::text as id, ${until} as until`,
    renew: ({ tables, consumer, generation }, taken, leaseMs) => sql`
      with held as materialized (
        select r.event_id from ${tableOf(tables)} r
          join unnest(${idsOf(taken)}::text::uuid[], ${untilsOf(taken)}::text::text[]) as t (event_id, until) on t.event_id = r.event_id
         where r.consumer = ${consumer}::text and r.generation = ${generation}::int and ${isOpen} and ${until} = t.until
         order by r.event_id for update of r skip locked
      )
      update ${tableOf(tables)} r set next_attempt_at = clock_timestamp() + ${leaseMs}::int * interval '1 millisecond'${stamp}
       where r.consumer = ${consumer}::text and r.generation = ${generation}::int and r.event_id in (select event_id from held)
      returning r.event_id::text as id, ${until} as until`,
    give: ({ tables, consumer, generation }, taken) => sql`
      update ${tableOf(tables)} r set next_attempt_at = null
        from unnest(${idsOf(taken)}::text::uuid[], ${untilsOf(taken)}::text::text[]) as t (event_id, until)
       where r.consumer = ${consumer}::text and r.generation = ${generation}::int and r.event_id = t.event_id and ${until} = t.until`,
  }
}

const until: Part = part`(extract(epoch from r.next_attempt_at) * 1000000)::bigint::text`

function idsOf(taken: readonly TakenRow[]): string {
  return sqlArray(taken.map(({ id }) => id))
}

function untilsOf(taken: readonly TakenRow[]): string {
  return sqlArray(taken.map((row) => row.until))
}

/**
 * Makes messages due whose rest or lease was set later than now. Rests may be as long as a handler asks for, so their length tells
 * nothing. What somebody has locked is left for the next time. Indexes: inbox_message_retry_idx, inbox_message_waiting_idx.
 */
export function clampMessageRetries({ tables, consumer, generation }: Scope): Statement {
  return sql`
    update ${tables.message} m set next_attempt_at = clock_timestamp(), started_at = null
     where m.ctid = any (array(
       select r.ctid from ${tables.message} r
        where r.consumer = ${consumer}::text and r.generation = ${generation}::int and r.state = 1
          and r.next_attempt_at > (select clock_timestamp()) and r.started_at > (select clock_timestamp() + interval '1 second')
        limit 10000 for update skip locked) || array(
       select w.ctid from ${tables.message} w
        where w.consumer = ${consumer}::text and w.generation = ${generation}::int and w.state = 4
          and w.next_attempt_at > (select clock_timestamp()) and w.started_at > (select clock_timestamp() + interval '1 second')
        limit 10000 for update skip locked))`
}

/** Makes letters due that rest for longer than any does. Index: dead_letter_redriving_idx. */
export function clampLetterRetries({ tables, consumer, generation }: Scope, longestMs: number): Statement {
  return sql`
    update ${tables.deadLetter} d set next_attempt_at = clock_timestamp()
     where d.id = any (array(
       select r.id from ${tables.deadLetter} r
        where r.consumer = ${consumer}::text and r.generation = ${generation}::int and r.state = 'redriving'
          and r.next_attempt_at > (select clock_timestamp() + ${longestMs}::float8 * interval '1 millisecond')
        limit 10000 for update skip locked))`
}
