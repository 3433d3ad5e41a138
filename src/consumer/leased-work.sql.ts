/**
 * The statements by which one instance at a time has a redriven letter or a released message in hand.
 *
 * Both lie in `next_attempt_at`, which whoever looks for work respects. So what is taken rests for the others until it is given
 * back or the lease is over, and nobody waits for a lock here.
 */
import { sql, type Statement } from '../postgres/sql.ts'
import type { Scope } from './inbox.sql.ts'
import type { Item } from './item.ts'
import { ids } from './item-arrays.ts'

/** What was taken; `until` is the end of its lease in microseconds, and names it. */
export interface TakenRow {
  readonly id: string
  readonly until: string
}

/** Takes letters that are to be redriven and that nobody else has. Index: the unique one on the event. */
export function takeLetters(scope: Scope, items: readonly Item[], leaseMs: number): Statement<TakenRow> {
  const { tables, consumer, generation } = scope
  return sql`
    with free as materialized (
      select d.id from ${tables.deadLetter} d
       where d.consumer = ${consumer}::text and d.generation = ${generation}::int and d.event_id = any (${ids(items)}::text::uuid[])
         and d.state = 'redriving' and (d.next_attempt_at is null or d.next_attempt_at <= (select clock_timestamp()))
       order by d.id for update skip locked
    )
    update ${tables.deadLetter} d set next_attempt_at = clock_timestamp() + ${leaseMs}::int * interval '1 millisecond'
     where d.id in (select id from free)
    returning d.event_id::text as id, (extract(epoch from d.next_attempt_at) * 1000000)::bigint::text as until`
}

/** The same for messages that wait although their turn has come. Index: the unique one on the event. */
export function takeWaiting(scope: Scope, items: readonly Item[], leaseMs: number): Statement<TakenRow> {
  const { tables, consumer, generation } = scope
  return sql`
    with free as materialized (
      select m.event_id from ${tables.message} m
       where m.consumer = ${consumer}::text and m.generation = ${generation}::int and m.event_id = any (${ids(items)}::text::uuid[])
         and m.state = 4 and (m.next_attempt_at is null or m.next_attempt_at <= (select clock_timestamp()))
       order by m.event_id for update skip locked
    )
    update ${tables.message} m set next_attempt_at = clock_timestamp() + ${leaseMs}::int * interval '1 millisecond'
     where m.consumer = ${consumer}::text and m.generation = ${generation}::int and m.event_id in (select event_id from free)
    returning m.event_id::text as id, (extract(epoch from m.next_attempt_at) * 1000000)::bigint::text as until`
}

/** Prolongs the leases of letters that are still to be redriven. Those that a transaction has locked are left. Index: the unique one on the event. */
export function renewLetters(scope: Scope, taken: readonly TakenRow[], leaseMs: number): Statement<TakenRow> {
  const { tables, consumer, generation } = scope
  return sql`
    with held as materialized (
      select d.id from ${tables.deadLetter} d
        join unnest(${idsOf(taken)}::text::uuid[], ${untilsOf(taken)}::text::bigint[]) as t (event_id, until) on t.event_id = d.event_id
       where d.consumer = ${consumer}::text and d.generation = ${generation}::int and d.state = 'redriving'
         and (extract(epoch from d.next_attempt_at) * 1000000)::bigint = t.until
       order by d.id for update of d skip locked
    )
    update ${tables.deadLetter} d set next_attempt_at = clock_timestamp() + ${leaseMs}::int * interval '1 millisecond'
     where d.id in (select id from held)
    returning d.event_id::text as id, (extract(epoch from d.next_attempt_at) * 1000000)::bigint::text as until`
}

/** The same for messages that wait. Index: the unique one on the event. */
export function renewWaiting(scope: Scope, taken: readonly TakenRow[], leaseMs: number): Statement<TakenRow> {
  const { tables, consumer, generation } = scope
  return sql`
    with held as materialized (
      select m.event_id from ${tables.message} m
        join unnest(${idsOf(taken)}::text::uuid[], ${untilsOf(taken)}::text::bigint[]) as t (event_id, until) on t.event_id = m.event_id
       where m.consumer = ${consumer}::text and m.generation = ${generation}::int and m.state = 4
         and (extract(epoch from m.next_attempt_at) * 1000000)::bigint = t.until
       order by m.event_id for update of m skip locked
    )
    update ${tables.message} m set next_attempt_at = clock_timestamp() + ${leaseMs}::int * interval '1 millisecond'
     where m.consumer = ${consumer}::text and m.generation = ${generation}::int and m.event_id in (select event_id from held)
    returning m.event_id::text as id, (extract(epoch from m.next_attempt_at) * 1000000)::bigint::text as until`
}

/** Gives back letters, whatever became of them. Index: the unique one on the event. */
export function giveLetters({ tables, consumer, generation }: Scope, taken: readonly TakenRow[]): Statement {
  return sql`
    update ${tables.deadLetter} d set next_attempt_at = null
      from unnest(${idsOf(taken)}::text::uuid[], ${untilsOf(taken)}::text::bigint[]) as t (event_id, until)
     where d.consumer = ${consumer}::text and d.generation = ${generation}::int and d.event_id = t.event_id
       and (extract(epoch from d.next_attempt_at) * 1000000)::bigint = t.until`
}

/** Gives back messages that are still there and were not put to rest meanwhile. Index: the unique one on the event. */
export function giveWaiting({ tables, consumer, generation }: Scope, taken: readonly TakenRow[]): Statement {
  return sql`
    update ${tables.message} m set next_attempt_at = null
      from unnest(${idsOf(taken)}::text::uuid[], ${untilsOf(taken)}::text::bigint[]) as t (event_id, until)
     where m.consumer = ${consumer}::text and m.generation = ${generation}::int and m.event_id = t.event_id
       and m.state = 4 and (extract(epoch from m.next_attempt_at) * 1000000)::bigint = t.until`
}

function idsOf(taken: readonly TakenRow[]): string {
  return `{${taken.map(({ id }) => id).join(',')}}`
}

function untilsOf(taken: readonly TakenRow[]): string {
  return `{${taken.map(({ until }) => until).join(',')}}`
}
