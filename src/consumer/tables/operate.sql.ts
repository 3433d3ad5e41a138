/**
 * The operators' statements on dead letters. The consumer's own are elsewhere.
 */
import { aggregateKey } from '../../postgres/lanes/lanes.sql.ts'
import { joined, part, sql, sqlArray, type Part, type Statement } from '../../postgres/query/sql.ts'
import { pauseId, type InboxTables, type Scope } from './inbox.sql.ts'
import { voidEventType } from '../../core/event/event.ts'

export type DeadLetterState = 'dead' | 'redriving' | 'redriven' | 'discarded'

/** Which dead letters are meant. What is left out does not restrict. */
export interface DeadLetterFilter {
  readonly consumer?: string | undefined
  readonly reason?: string | undefined
  readonly eventType?: string | undefined
  readonly ids?: readonly string[] | undefined
  readonly eventId?: string | undefined
  readonly aggregateType?: string | undefined
  readonly aggregateId?: string | undefined
  /** Those with this number or a lower one: none that died since somebody looked. */
  readonly upTo?: string | undefined
}

export interface GroupRow {
  readonly consumer: string
  readonly reason: string
  readonly event_type: string
  readonly count: number
  readonly oldest_at: string
  readonly newest_at: string
  readonly newest_id: string
  readonly error: string
}

/** The letters in one state by consumer, reason and type, with the newest error of each. Index: dead_letter_group_idx. */
export function selectGroups(tables: InboxTables, filter: DeadLetterFilter, state: DeadLetterState): Statement<GroupRow> {
  return sql`
    with g as (
      select d.consumer, d.reason, d.event_type, count(*)::int as count, max(d.id) as newest_id,
             to_char(min(d.dead_at) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as oldest_at,
             to_char(max(d.dead_at) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as newest_at
        from ${tables.deadLetter} d
       where ${joined([part`d.state = ${state}::text`, ...meant(filter)], ' and ')}
       group by 1, 2, 3
    )
    select g.consumer, g.reason, g.event_type, g.count, g.oldest_at, g.newest_at, g.newest_id::text as newest_id, n.error
      from g join ${tables.deadLetter} n on n.id = g.newest_id
     order by 1, 2, 3`
}

/** What is true of every letter `d` that is meant. */
function meant(filter: DeadLetterFilter): readonly Part[] {
  const conditions = [
    filter.consumer === undefined ? undefined : part`d.consumer = ${filter.consumer}::text`,
    filter.reason === undefined ? undefined : part`d.reason = ${filter.reason}::text`,
    filter.eventType === undefined ? undefined : part`d.event_type = ${filter.eventType}::text`,
    filter.ids === undefined ? undefined : part`d.id = any (${sqlArray(filter.ids)}::text::bigint[])`,
    filter.eventId === undefined ? undefined : part`d.event_id = ${filter.eventId}::text::uuid`,
    filter.aggregateType === undefined ? undefined : part`d.aggregate_type = ${filter.aggregateType}::text`,
    filter.aggregateId === undefined ? undefined : part`d.aggregate_id = ${filter.aggregateId}::text`,
    filter.upTo === undefined ? undefined : part`d.id <= ${filter.upTo}::text::bigint`,
  ]
  return conditions.filter((each) => each !== undefined)
}

/** A letter, and what is known of its event and its aggregate now. */
export interface LetterRow {
  readonly id: string
  readonly consumer: string
  readonly event_id: string
  readonly event_type: string
  readonly aggregate_type: string | null
  readonly aggregate_id: string | null
  readonly version: string | null
  readonly reason: string
  readonly error: string
  readonly attempts: number
  readonly redrives: number
  readonly state: DeadLetterState
  readonly dead_at: string
  /** The letter is of the consumer's present life. */
  readonly current: boolean
  /** The inbox has the event: its effect is committed. */
  readonly applied: boolean
  /** It died before the time that the inbox remembers. */
  readonly forgotten: boolean
  /** How far the consumer is with the aggregate. */
  readonly position: string | null
  readonly holds: boolean
  /** An operator has paused the aggregate. */
  readonly paused: boolean
  readonly waiting: number
  /** An older version of the aggregate that is dead as well. */
  readonly earlier_dead: string | null
}

/** Letters behind `after`, in the order they died. Indexes: primary key; dead_letter_aggregate_idx for the earlier ones. */
export function selectLetters(
  tables: InboxTables,
  filter: DeadLetterFilter,
  page: { readonly states: readonly DeadLetterState[] | undefined; readonly after: string; readonly limit: number },
): Statement<LetterRow> {
  const inState = page.states === undefined ? [] : [part`d.state = any (${sqlArray(page.states)}::text::text[])`]
  return sql`
    select d.id::text, d.consumer, d.event_id::text, d.event_type, d.aggregate_type, d.aggregate_id, d.version::text, d.reason, d.error,
           d.attempts, d.redrives, d.state, to_char(d.dead_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as dead_at,
           coalesce(d.generation = c.generation, false) as current, coalesce(d.dead_at < c.forgotten_before, false) as forgotten,
           exists (select from ${tables.inbox} i where i.consumer = d.consumer and i.generation = d.generation and i.event_id = d.event_id) as applied,
           p.version::text as position, coalesce(${holderOf(tables)} = d.event_id, false) as holds,
           coalesce(p.held_by = ${pauseId}::text::uuid, false) as paused, coalesce(p.waiting, 0) as waiting,
           (select min(e.version)::text from ${tables.deadLetter} e
             where e.consumer = d.consumer and e.generation = d.generation and e.aggregate_type = d.aggregate_type and e.aggregate_id = d.aggregate_id
               and e.version < d.version and e.state = 'dead') as earlier_dead
      from ${tables.deadLetter} d
      left join ${tables.consumer} c on c.name = d.consumer
      left join ${tables.position} p on p.consumer = d.consumer and p.generation = d.generation and p.aggregate_type = d.aggregate_type and p.aggregate_id = d.aggregate_id
     where ${joined([part`d.id > ${page.after}::text::bigint`, ...inState, ...meant(filter)], ' and ')}
     order by d.id
     limit ${page.limit}::int`
}

/**
 * The letter that holds an aggregate `p`, also while that is paused: then it is the first that died of those which nobody has
 * settled and which were buried to hold it. Letters say so since they are asked; of an older one its version tells. `unsettled`
 * adds those that are being settled now. Index: dead_letter_aggregate_idx.
 */
export function holderOf({ deadLetter }: InboxTables, unsettled: Part = part``): Part {
  return part`
    case when p.held_by is distinct from ${pauseId}::text::uuid then p.held_by else (
      select l.event_id from ${deadLetter} l
       where l.consumer = p.consumer and l.generation = p.generation and l.aggregate_type = p.aggregate_type and l.aggregate_id = p.aggregate_id
         and (l.state in ('dead', 'redriving') ${unsettled})
         and coalesce((select (h.entry ->> 'holds')::boolean from jsonb_array_elements(l.history) with ordinality as h (entry, place)
                        where h.entry -> 'holds' is not null order by h.place desc limit 1), l.version > p.version)
       order by l.id limit 1) end`
}

/** What else there is to say of one letter. */
export interface LetterDetailRow {
  readonly generation: number
  readonly topic: string
  readonly ordering_key: string | null
  readonly message_id: string
  readonly attributes: string
  /** Null unless it is asked for: a role that may not read payloads may read the rest. */
  readonly body: Uint8Array | null
  readonly published_at: string
  readonly first_failed_at: string
  readonly history: string
}

export function selectLetterDetail(tables: InboxTables, id: string, payload: boolean): Statement<LetterDetailRow> {
  return sql`
    select d.generation, d.topic, d.ordering_key, d.message_id, d.attributes::text, ${payload ? part`d.body` : part`null`} as body, d.history::text,
           to_char(d.published_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as published_at,
           to_char(d.first_failed_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as first_failed_at
      from ${tables.deadLetter} d where d.id = ${id}::text::bigint`
}

/** From which states letters may be moved to another. */
const movable = { redriving: ['dead'], discarded: ['dead', 'redriving'], redriven: ['dead', 'redriving'] } as const

/** The states of letters that can still be discarded. */
export const discardable: readonly DeadLetterState[] = movable.discarded

/**
 * Moves letters to another state; returns which. What happened to them goes into their history. One that somebody has in hand
 * is left alone: it is being applied, discarded or buried again at this moment. Index: primary key.
 */
export function moveLetters(
  tables: InboxTables,
  ids: readonly string[],
  to: { readonly state: keyof typeof movable; readonly actor: string; readonly reason: string },
): Statement<{ id: string }> {
  return sql`
    with free as materialized (
      select d.id from ${tables.deadLetter} d
       where d.id = any (${sqlArray(ids)}::text::bigint[]) and d.state = any (${sqlArray(movable[to.state])}::text::text[])
       order by d.id for update skip locked
    )
    update ${tables.deadLetter} d
       set state = ${to.state}::text, next_attempt_at = null,
           history = d.history || jsonb_build_object('at', clock_timestamp(), 'state', ${to.state}::text, 'by', ${to.actor}::text, 'reason', ${to.reason}::text)
      from free where d.id = free.id
    returning d.id::text`
}

/** Locks letters that can still be discarded, except those that somebody has in hand; returns which. Index: primary key. */
export function lockDiscardable(tables: InboxTables, ids: readonly string[]): Statement<{ id: string }> {
  return sql`
    select d.id::text from ${tables.deadLetter} d
     where d.id = any (${sqlArray(ids)}::text::bigint[]) and d.state = any (${sqlArray(discardable)}::text::text[])
     order by d.id for update skip locked`
}

/**
 * Remembers discarded events in the inbox, so that a late delivery of one is a duplicate; returns those that it did not have. One
 * that is being applied is waited for: if that commits, it is not discarded. Index: primary key.
 */
export function rememberDiscarded(tables: InboxTables, ids: readonly string[]): Statement<{ id: string }> {
  return sql`
    with fresh as (
      insert into ${tables.inbox} (consumer, generation, event_id, source)
      select d.consumer, d.generation, d.event_id, coalesce(d.aggregate_type, d.topic) from ${tables.deadLetter} d
       where d.id = any (${sqlArray(ids)}::text::bigint[]) order by d.event_id
      on conflict do nothing
      returning consumer, generation, event_id
    )
    select d.id::text from fresh f
      join ${tables.deadLetter} d on d.consumer = f.consumer and d.generation = f.generation and d.event_id = f.event_id`
}

/** Lets go of the aggregates that these letters hold. They are locked. Index: the primary key of consumer_position. */
export function releaseHolds(tables: InboxTables, ids: readonly string[]): Statement {
  return sql`
    update ${tables.position} p set held_by = null, updated_at = clock_timestamp()
      from ${tables.deadLetter} d
     where d.id = any (${sqlArray(ids)}::text::bigint[]) and p.consumer = d.consumer and p.generation = d.generation
       and p.aggregate_type = d.aggregate_type and p.aggregate_id = d.aggregate_id and p.held_by = d.event_id`
}

/** Locks the aggregates of letters, so that no transaction moves them or puts anything in line. Index: primary key. */
export function lockAggregates(tables: InboxTables, ids: readonly string[]): Statement {
  return sql`
    select from ${tables.position} p
     where (p.consumer, p.generation, p.aggregate_type, p.aggregate_id) in (
       select d.consumer, d.generation, d.aggregate_type, d.aggregate_id from ${tables.deadLetter} d where d.id = any (${sqlArray(ids)}::text::bigint[]))
     order by p.consumer, p.generation, p.aggregate_type, p.aggregate_id for update of p`
}

/**
 * Lets the aggregates of discarded letters go on without them, and lets go of what waited for them. The aggregates are locked.
 *
 * An empty message with the version of the letter is put in line, unless the aggregate is past it. So what came before it is
 * taken first, as if it had been applied. One that holds its aggregate mostly died at its turn, also where versions before it
 * are missing: if none of them has come since, the aggregate moves over it. It is unknown whose turn it was if the broker gave
 * it up, or the process died. Indexes: primary keys, inbox_message_waiting_idx; of what is stored, all of its lane that is due.
 */
export function leaveVoids(
  tables: InboxTables,
  voids: readonly { readonly letterId: string; readonly eventId: string }[],
): Statement {
  return sql`
    with given as materialized (
      select * from unnest(${sqlArray(voids.map((each) => each.letterId))}::text::bigint[], ${sqlArray(voids.map((each) => each.eventId))}::text::uuid[]) as v (id, void_id)
    ), discarded as materialized (
      select d.*, v.void_id, p.version as position,
             coalesce(${holderOf(tables, part`or l.id in (select g.id from given g)`)} = d.event_id, false) and d.reason not in ('broker', 'crashed') and not exists (
               select from ${tables.message} m
                where m.consumer = d.consumer and m.generation = d.generation and m.state = 4 and m.aggregate_type = d.aggregate_type
                  and m.aggregate_id = d.aggregate_id and m.version < d.version) and not exists (
               select from (select ${aggregateKey('d')} as key) k
                 join ${tables.message} m on m.consumer = d.consumer and m.generation = d.generation and m.lane = (k.key & 63)::smallint and m.state in (0, 1, 2)
                  and m.aggregate_type = d.aggregate_type and m.aggregate_id = d.aggregate_id and m.version < d.version) as in_turn
        from given v
        join ${tables.deadLetter} d on d.id = v.id
        join ${tables.position} p on p.consumer = d.consumer and p.generation = d.generation and p.aggregate_type = d.aggregate_type and p.aggregate_id = d.aggregate_id
    ), stored as (
      insert into ${tables.message} (key, lane, state, consumer, generation, event_id, aggregate_type, aggregate_id, version,
                                     topic, ordering_key, message_id, attributes, body, published_at)
      select k.key, (k.key & 63)::smallint, 4, d.consumer, d.generation, d.void_id, d.aggregate_type, d.aggregate_id, d.version,
             d.topic, d.ordering_key, d.message_id,
             d.attributes || jsonb_build_object('event_id', d.void_id::text, 'event_type', ${voidEventType}::text), ''::bytea, d.published_at
        from discarded d
       cross join lateral (select ${aggregateKey('d')} as key) k
       where d.position < d.version and not d.in_turn
      returning consumer, generation, aggregate_type, aggregate_id
    )
    update ${tables.position} p
       set version = greatest(p.version, a.passed), held_by = case when p.held_by = any (a.letters) then null else p.held_by end,
           waiting = p.waiting + (select count(*)::int from stored s
                                   where s.consumer = a.consumer and s.generation = a.generation and s.aggregate_type = a.aggregate_type and s.aggregate_id = a.aggregate_id),
           updated_at = clock_timestamp()
      from (select d.consumer, d.generation, d.aggregate_type, d.aggregate_id, max(d.version) filter (where d.in_turn) as passed, array_agg(d.event_id) as letters
              from discarded d group by 1, 2, 3, 4) a
     where p.consumer = a.consumer and p.generation = a.generation and p.aggregate_type = a.aggregate_type and p.aggregate_id = a.aggregate_id`
}

export function setPaused(
  { tables, consumer }: Scope,
  { paused, actor }: { readonly paused: boolean; readonly actor: string },
): Statement {
  return sql`
    update ${tables.consumer} c
       set paused = ${paused}::boolean, paused_by = case when ${paused}::boolean then ${actor}::text end,
           paused_at = case when ${paused}::boolean then clock_timestamp() end
     where c.name = ${consumer}::text and c.paused <> ${paused}::boolean`
}

/** Holds the aggregate back, in place of a dead letter if one holds it. Index: primary key. */
export function pauseAggregate(
  { tables, consumer, generation }: Scope,
  aggregate: { readonly type: string; readonly id: string },
): Statement {
  return sql`
    insert into ${tables.position} as p (consumer, generation, aggregate_type, aggregate_id, version, held_by)
    values (${consumer}::text, ${generation}::int, ${aggregate.type}::text, ${aggregate.id}::text, 0, ${pauseId}::text::uuid)
    on conflict (consumer, generation, aggregate_type, aggregate_id) do update set held_by = excluded.held_by, updated_at = clock_timestamp()
      where p.held_by is distinct from excluded.held_by`
}

/**
 * Locks the aggregate if it is paused. A burial of one of its letters locks it as well, so the next statement sees every
 * letter that was ever meant to hold it. Index: primary key.
 */
export function lockPaused(
  { tables, consumer, generation }: Scope,
  aggregate: { readonly type: string; readonly id: string },
): Statement<{ version: string }> {
  return sql`
    select p.version::text from ${tables.position} p
     where p.consumer = ${consumer}::text and p.generation = ${generation}::int and p.aggregate_type = ${aggregate.type}::text
       and p.aggregate_id = ${aggregate.id}::text and p.held_by = ${pauseId}::text::uuid
       for update`
}

/**
 * Lets it go, or leaves it to the dead letter that holds it. What waits is found by the next look at what is stored.
 * Indexes: primary key, dead_letter_aggregate_idx.
 */
export function resumeAggregate(
  { tables, consumer, generation }: Scope,
  aggregate: { readonly type: string; readonly id: string },
): Statement {
  return sql`
    update ${tables.position} p set held_by = ${holderOf(tables)}, updated_at = clock_timestamp()
     where p.consumer = ${consumer}::text and p.generation = ${generation}::int and p.aggregate_type = ${aggregate.type}::text
       and p.aggregate_id = ${aggregate.id}::text and p.held_by = ${pauseId}::text::uuid`
}
