/**
 * The statements that end rests which a database clock that stepped back has made longer than they were meant to be.
 */
import { sql, type Statement } from '../../postgres/query/sql.ts'
import type { Scope } from './inbox.sql.ts'

/**
 * Makes messages due whose rest or lease was set later than now. Rests may be as long as a handler asks for, so their length tells
 * nothing. What somebody has locked is left for the next time. Indexes: inbox_message_retry_idx, inbox_message_waiting_idx.
 */
export function pullBackMessages({ tables, consumer, generation }: Scope): Statement {
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
export function pullBackLetters({ tables, consumer, generation }: Scope, longestMs: number): Statement {
  return sql`
    update ${tables.deadLetter} d set next_attempt_at = clock_timestamp()
     where d.id = any (array(
       select r.id from ${tables.deadLetter} r
        where r.consumer = ${consumer}::text and r.generation = ${generation}::int and r.state = 'redriving'
          and r.next_attempt_at > (select clock_timestamp() + ${longestMs}::float8 * interval '1 millisecond')
        limit 10000 for update skip locked))`
}
