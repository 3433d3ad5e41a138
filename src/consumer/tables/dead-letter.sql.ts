/**
 * Every statement on attempts and dead letters that the consumer itself makes. Operators' statements are elsewhere.
 */
import { aggregateKey } from '../../postgres/lanes/lanes.sql.ts'
import { sql, sqlArray, type Statement } from '../../postgres/query/sql.ts'
import { storableMoment, storableText } from '../../postgres/query/storable.ts'
import type { AggregateName } from '../../projection/reads.sql.ts'
import { attributesJson, foundInLine, pauseId, positionOf, storableKey, type BatchBounds, type Scope } from './inbox.sql.ts'
import type { Item } from '../model/batch-item.ts'
import type { DeadReason, RawMessage, StoredRow } from '../model/received-event.ts'

/** What is known of earlier attempts. */
export interface AttemptRow {
  readonly id: string
  readonly attempts: number
  /** Starts that were not finished. */
  readonly unfinished: number
}

/** Marks that attempts begin, before their transaction. A mark that outlives its process tells of its death. */
export function startAttempts({ tables, consumer, generation }: Scope, eventIds: readonly string[]): Statement {
  return sql`
    insert into ${tables.attempt} as a (consumer, generation, event_id, unfinished, started_at)
    select ${consumer}::text, ${generation}::int, e, 1, clock_timestamp() from unnest(${sqlArray(eventIds)}::text::uuid[]) as e order by e
    on conflict (consumer, generation, event_id) do update set unfinished = a.unfinished + 1, started_at = clock_timestamp()`
}

/** What is known of earlier attempts; most events have none. */
export function readAttempts({ tables, consumer, generation }: Scope, eventIds: readonly string[]): Statement<AttemptRow> {
  return sql`
    select a.event_id::text as id, a.attempts, a.unfinished from ${tables.attempt} a
     where a.consumer = ${consumer}::text and a.generation = ${generation}::int and a.event_id = any (${sqlArray(eventIds)}::text::uuid[])`
}

/** How long ago an event was tried last, in milliseconds. Index: primary key. */
export function readRest({ tables, consumer, generation }: Scope, eventId: string): Statement<{ ms: number }> {
  return sql`
    select (extract(epoch from clock_timestamp() - coalesce(a.started_at, a.first_at)) * 1000)::float8 as ms from ${tables.attempt} a
     where a.consumer = ${consumer}::text and a.generation = ${generation}::int and a.event_id = ${eventId}::text::uuid`
}

/** Counts a failure; returns how many there were. */
export function chargeAttempt(
  { tables, consumer, generation }: Scope,
  eventId: string,
  error: string,
): Statement<{ attempts: number }> {
  return sql`
    insert into ${tables.attempt} as a (consumer, generation, event_id, attempts, first_error, last_error, started_at, finished_at)
    values (${consumer}::text, ${generation}::int, ${eventId}::text::uuid, 1, ${error}::text, ${error}::text, clock_timestamp(), clock_timestamp())
    on conflict (consumer, generation, event_id) do update
      set attempts = a.attempts + 1, unfinished = 0, first_error = coalesce(a.first_error, excluded.first_error), last_error = excluded.last_error,
          finished_at = clock_timestamp()
    returning a.attempts`
}

/**
 * Attempts that ended without a verdict: they were given back to the broker untried. Of an event that never failed nothing is left
 * to know: who applies it may be another, or nobody, if it was applied already.
 */
export function releaseAttempts({ tables, consumer, generation }: Scope, eventIds: readonly string[]): Statement {
  return sql`
    with mine as materialized (
      select a.event_id, a.attempts from ${tables.attempt} a
       where a.consumer = ${consumer}::text and a.generation = ${generation}::int and a.event_id = any (${sqlArray(eventIds)}::text::uuid[])
       order by a.event_id for update
    ), gone as (
      delete from ${tables.attempt} a
       where a.consumer = ${consumer}::text and a.generation = ${generation}::int and a.event_id = any (array(select event_id from mine where attempts = 0))
    )
    update ${tables.attempt} a set unfinished = 0, finished_at = clock_timestamp()
     where a.consumer = ${consumer}::text and a.generation = ${generation}::int and a.event_id = any (array(select event_id from mine where attempts > 0))`
}

/** Forgets attempts, in the transaction that makes them unimportant. */
export function forgetAttempts({ tables, consumer, generation }: Scope, eventIds: readonly string[]): Statement {
  return sql`
    delete from ${tables.attempt}
     where consumer = ${consumer}::text and generation = ${generation}::int and event_id = any (${sqlArray(eventIds)}::text::uuid[])`
}

/** A message that is given up. */
export interface NewDeadLetter {
  readonly eventId: string
  readonly eventType: string
  /** `undefined` for a message that is not ours, or not believed to be. */
  readonly aggregate: { readonly type: string; readonly id: string; readonly version: bigint } | undefined
  readonly message: RawMessage
  readonly reason: DeadReason
  readonly error: string
  readonly attempts: number
  /** Later versions of its aggregate wait until it is settled. */
  readonly holds: boolean
}

/**
 * Of each of these aggregates the first letter that is being redriven, has an ordering key and is not among the given ones.
 * Index: dead_letter_aggregate_idx.
 */
export function selectNextHolders(
  { tables, consumer, generation }: Scope,
  aggregates: readonly AggregateName[],
  letterIds: readonly string[],
): Statement<{ aggregate_type: string; aggregate_id: string; event_id: string; version: string }> {
  return sql`
    select a.aggregate_type, a.aggregate_id, d.event_id::text, d.version::text
      from unnest(${sqlArray(aggregates.map((a) => a.aggregateType))}::text::text[], ${sqlArray(aggregates.map((a) => a.aggregateId))}::text::text[])
             as a (aggregate_type, aggregate_id)
     cross join lateral (
       select d.event_id, d.version from ${tables.deadLetter} d
        where d.consumer = ${consumer}::text and d.generation = ${generation}::int and d.aggregate_type = a.aggregate_type and d.aggregate_id = a.aggregate_id
          and d.state = 'redriving' and d.ordering_key is not null and d.id <> all (${sqlArray(letterIds)}::text::bigint[])
        order by d.version, d.id limit 1) d`
}

/** Lets aggregates that were released in this transaction be held by the next letter. Index: primary key. */
export function transferHolds(scope: Scope, held: readonly (AggregateName & { readonly heldBy: string })[]): Statement {
  return sql`
    update ${scope.tables.position} p set held_by = h.held_by, updated_at = clock_timestamp()
      from (select h.held_by, p.place from unnest(${sqlArray(held.map((h) => h.aggregateType))}::text::text[], ${sqlArray(held.map((h) => h.aggregateId))}::text::text[],
                  ${sqlArray(held.map((h) => h.heldBy))}::text::uuid[]) as h (aggregate_type, aggregate_id, held_by) cross join ${positionOf(scope, 'h')} p) h
     where p.ctid = h.place`
}

/** Locks the letter of an event, if it has one. Letters are locked before inbox rows, everywhere. Index: the unique one on the event. */
export function lockLetter({ tables, consumer, generation }: Scope, eventId: string): Statement {
  return sql`
    select from ${tables.deadLetter} d
     where d.consumer = ${consumer}::text and d.generation = ${generation}::int and d.event_id = ${eventId}::text::uuid for update`
}

/**
 * Records a dead letter. One that died before is dead again, with its history, which also says whether it holds its aggregate:
 * while that is paused, its row does not. Returns the letter's id, or nothing if it was discarded.
 */
export function bury({ tables, consumer, generation }: Scope, letter: NewDeadLetter): Statement<{ id: string }> {
  const { eventId, eventType, aggregate, message, reason, error, attempts, holds } = letter
  const state = reason === 'discarded' ? 'discarded' : 'dead'
  return sql`
    insert into ${tables.deadLetter} as d (consumer, generation, event_id, event_type, topic, aggregate_type, aggregate_id, version,
      reason, error, attempts, state, ordering_key, message_id, attributes, body, published_at, first_failed_at, history)
    select ${consumer}::text, ${generation}::int, ${eventId}::text::uuid, ${storableText(eventType)}::text, ${message.topic}::text,
           ${aggregate?.type ?? null}::text, ${aggregate?.id ?? null}::text, ${aggregate?.version.toString() ?? null}::text::bigint,
           ${reason}::text, ${error}::text, ${attempts}::int, ${state}::text, ${storableKey(message.orderingKey)}::text, ${message.messageId}::text,
           ${attributesJson(message.attributes)}::text::jsonb, ${message.body}::bytea, ${storableMoment(message.publishedAtMs)}::text::timestamptz,
           coalesce((select a.first_at from ${tables.attempt} a where a.consumer = ${consumer}::text and a.generation = ${generation}::int and a.event_id = ${eventId}::text::uuid), clock_timestamp()),
           jsonb_build_array(jsonb_build_object('at', clock_timestamp(), 'state', ${state}::text, 'error', ${error}::text, 'attempts', ${attempts}::int,
                                                'holds', ${holds}::boolean))
    on conflict (consumer, generation, event_id) do update
      set state = excluded.state, reason = excluded.reason, error = excluded.error, attempts = d.attempts + excluded.attempts, dead_at = clock_timestamp(),
          redrives = d.redrives + (d.state = 'redriving')::int, history = d.history || excluded.history
      where d.state <> 'discarded'
    returning d.id::text`
}

/** Holds an aggregate back until its dead letter is settled. The first one that died holds; a pause holds while it lasts. */
export function holdAggregate({ tables, consumer, generation }: Scope, { event }: Pick<Item, 'event'>): Statement {
  return sql`
    insert into ${tables.position} as p (consumer, generation, aggregate_type, aggregate_id, version, held_by)
    values (${consumer}::text, ${generation}::int, ${event.aggregateType}::text, ${event.aggregateId}::text, 0, ${event.id}::text::uuid)
    on conflict (consumer, generation, aggregate_type, aggregate_id) do update set held_by = coalesce(p.held_by, excluded.held_by), updated_at = clock_timestamp()`
}

/**
 * Moves an aggregate over an event without its effect, and lets go of what waited for it. A sequential one stays where it is
 * if versions before the event are missing. Returns whether the aggregate is past it. Index: primary key.
 */
export function moveOverEvent(
  { tables, consumer, generation }: Scope,
  { event, sequential }: Pick<Item, 'event' | 'sequential'>,
): Statement<{ passed: boolean }> {
  const version = event.version.toString()
  return sql`
    insert into ${tables.position} as p (consumer, generation, aggregate_type, aggregate_id, version)
    select ${consumer}::text, ${generation}::int, ${event.aggregateType}::text, ${event.aggregateId}::text,
           case when ${sequential}::boolean and e.version > 1 then 0 else e.version end
      from (select ${version}::text::bigint as version) e
    on conflict (consumer, generation, aggregate_type, aggregate_id) do update
      set version = case when ${sequential}::boolean and ${version}::text::bigint > p.version + 1 then p.version
                         else greatest(p.version, ${version}::text::bigint) end,
          held_by = nullif(p.held_by, ${event.id}::text::uuid), updated_at = clock_timestamp()
    returning p.version >= ${version}::text::bigint as passed`
}

/**
 * Moves an aggregate over an event and the versions before it that are missing, unless some of them have come: they wait, or
 * are stored and were not looked at. `moveOverEvent` has locked it: nobody puts anything in line meanwhile.
 * Indexes: primary keys, inbox_message_waiting_idx; of what is stored, all of its lane that is due.
 */
export function moveOverGap(
  { tables, consumer, generation }: Scope,
  { event }: Pick<Item, 'event'>,
): Statement<{ version: string }> {
  const version = event.version.toString()
  return sql`
    update ${tables.position} p set version = ${version}::text::bigint, updated_at = clock_timestamp()
     where p.consumer = ${consumer}::text and p.generation = ${generation}::int
       and p.aggregate_type = ${event.aggregateType}::text and p.aggregate_id = ${event.aggregateId}::text
       and not exists (
         select from ${tables.message} m
          where m.consumer = p.consumer and m.generation = p.generation and m.state = 4 and m.aggregate_type = p.aggregate_type
            and m.aggregate_id = p.aggregate_id and m.version < ${version}::text::bigint)
       and not exists (
         select from (select ${aggregateKey('p')} as key) k
           join ${tables.message} m on m.consumer = p.consumer and m.generation = p.generation and m.lane = (k.key & 63)::smallint and m.state in (0, 1, 2)
            and m.aggregate_type = p.aggregate_type and m.aggregate_id = p.aggregate_id and m.version < ${version}::text::bigint)
    returning p.version::text`
}

/** Records an event in the inbox; returns it if it is new. Waits for a transaction that is recording it. Index: primary key. */
export function recordSeen(
  { tables, consumer, generation }: Scope,
  { eventId, source }: { readonly eventId: string; readonly source: string },
): Statement<{ id: string }> {
  return sql`
    insert into ${tables.inbox} (consumer, generation, event_id, source)
    values (${consumer}::text, ${generation}::int, ${eventId}::text::uuid, ${source}::text)
    on conflict do nothing
    returning event_id::text as id`
}

/** Takes back what `recordSeen` recorded in this same transaction. Index: primary key. */
export function forgetSeen({ tables, consumer, generation }: Scope, eventId: string): Statement {
  return sql`
    delete from ${tables.inbox}
     where consumer = ${consumer}::text and generation = ${generation}::int and event_id = ${eventId}::text::uuid`
}

/**
 * How many dead letters of the consumer nobody has settled, in whichever of its lives they died, counted up to `bound`. In order
 * and up to a bound that the planner cannot see, they are read from the index. Index: dead_letter_group_idx.
 */
export function countDead({ tables, consumer }: Scope, bound: number): Statement<{ dead: number }> {
  return sql`
    select count(*)::int as dead from (
      select from ${tables.deadLetter} d where d.consumer = ${consumer}::text and d.state = 'dead'
       order by d.reason, d.event_type, d.id limit (select ${bound}::int)) d`
}

/**
 * Dead letters that an operator gave another life. None that rests or is in somebody's hand, nor what is behind one in its
 * aggregate, nor any whose aggregate is paused. Indexes: dead_letter_redriving_idx, dead_letter_aggregate_idx, primary key.
 */
export function readRedriving({ tables, consumer, generation }: Scope, bounds: BatchBounds): Statement<StoredRow> {
  return sql`
    with found as (
      select d.aggregate_type, d.aggregate_id, d.version, d.id as seq, d.topic, d.ordering_key, d.message_id, d.attributes, d.body, d.published_at
        from ${tables.deadLetter} d
       where d.consumer = ${consumer}::text and d.generation = ${generation}::int and d.state = 'redriving'
         and (d.next_attempt_at is null or d.next_attempt_at <= (select clock_timestamp()))
         and not exists (select from ${tables.deadLetter} f
                          where f.consumer = d.consumer and f.generation = d.generation and f.aggregate_type = d.aggregate_type and f.aggregate_id = d.aggregate_id
                            and f.version < d.version and f.state = 'redriving' and f.next_attempt_at > (select clock_timestamp()))
         and not exists (select from ${tables.position} p
                          where p.consumer = d.consumer and p.generation = d.generation and p.aggregate_type = d.aggregate_type and p.aggregate_id = d.aggregate_id
                            and p.held_by = ${pauseId}::text::uuid)
       order by d.aggregate_type, d.aggregate_id, d.version, d.id desc limit ${bounds.batchSize}::int
    )
    ${foundInLine}
     where f.bytes_before < ${bounds.batchBytes}::int
     order by f.aggregate_type, f.aggregate_id, f.version, f.seq desc`
}

/**
 * Locks letters that are about to be applied; returns those that are still to be. What another instance or an operator has
 * settled meanwhile is missing. Index: primary key.
 */
export function lockRedriving({ tables }: Scope, letterIds: readonly string[]): Statement<{ id: string }> {
  return sql`
    select d.id::text as id from ${tables.deadLetter} d
     where d.id = any (${sqlArray(letterIds)}::text::bigint[]) and d.state = 'redriving'
     order by d.id for update`
}

/** The dead letters were applied, in this transaction or before, or are stored now until their turn comes. */
export function markRedriven({ tables }: Scope, letterIds: readonly string[]): Statement {
  return sql`
    update ${tables.deadLetter} d
       set state = 'redriven', redrives = d.redrives + 1, history = d.history || jsonb_build_object('at', clock_timestamp(), 'state', 'redriven')
     where d.id = any (${sqlArray(letterIds)}::text::bigint[]) and d.state <> 'redriven'`
}

/** What the history of a letter says of one whose event was applied without a redrive. */
export const appliedMeanwhile = 'Its event was delivered again, and applied.'

/**
 * Settles the letters of events whose effect is committed, or is with this transaction, by another way than a redrive. Index: the
 * unique one on the event.
 */
export function settleApplied({ tables, consumer, generation }: Scope, eventIds: readonly string[]): Statement {
  return sql`
    update ${tables.deadLetter} d
       set state = 'redriven', next_attempt_at = null,
           history = d.history || jsonb_build_object('at', clock_timestamp(), 'state', 'redriven', 'reason', ${appliedMeanwhile}::text)
     where d.consumer = ${consumer}::text and d.generation = ${generation}::int and d.event_id = any (${sqlArray(eventIds)}::text::uuid[])
       and d.state in ('dead', 'redriving')`
}

/** A redrive met an outage: the letter rests, and is tried again. Index: primary key. */
export function restLetter({ tables }: Scope, letterId: string, delayMs: number): Statement {
  return sql`
    update ${tables.deadLetter} d set next_attempt_at = clock_timestamp() + ${delayMs}::float8 * interval '1 millisecond'
     where d.id = ${letterId}::text::bigint and d.state = 'redriving'`
}

/** A redrive failed: the letter is dead again. */
export function markFailed({ tables }: Scope, letterId: string, error: string): Statement {
  return sql`
    update ${tables.deadLetter} d
       set state = 'dead', redrives = d.redrives + 1, attempts = d.attempts + 1, error = ${error}::text,
           history = d.history || jsonb_build_object('at', clock_timestamp(), 'state', 'dead', 'error', ${error}::text)
     where d.id = ${letterId}::text::bigint and d.state = 'redriving'`
}

/** A letter whose redrive ended untried. */
export interface FollowerRow {
  readonly event_id: string
  readonly event_type: string
  readonly message_id: string
  readonly ordering_key: string | null
  readonly reason: string
}

/**
 * A letter is dead again: so are the later ones of its aggregate that are redriven and have an ordering key. Nobody has tried
 * them: it costs them the redrive and no attempt. Of a sequential aggregate only those that would not wait for their turn: the
 * one that holds it, the one that is next, and what it is past. Indexes: dead_letter_aggregate_idx, primary key.
 */
export function markFollowersFailed(
  { tables, consumer, generation }: Scope,
  { event, sequential }: Pick<Item, 'event' | 'sequential'>,
  error: string,
): Statement<FollowerRow> {
  return sql`
    update ${tables.deadLetter} d
       set state = 'dead', redrives = d.redrives + 1, error = ${error}::text,
           history = d.history || jsonb_build_object('at', clock_timestamp(), 'state', 'dead', 'error', ${error}::text)
     where d.consumer = ${consumer}::text and d.generation = ${generation}::int
       and d.aggregate_type = ${event.aggregateType}::text and d.aggregate_id = ${event.aggregateId}::text
       and d.version > ${event.version.toString()}::text::bigint and d.state = 'redriving' and d.ordering_key is not null
       and (not ${sequential}::boolean or exists (
         select from ${tables.position} p
          where p.consumer = d.consumer and p.generation = d.generation and p.aggregate_type = d.aggregate_type and p.aggregate_id = d.aggregate_id
            and (p.held_by = d.event_id or p.version + 1 >= d.version)))
    returning d.event_id::text, d.event_type, d.message_id, d.ordering_key, d.reason`
}
