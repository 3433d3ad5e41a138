/**
 * What a batch begins with: its events are recorded in the inbox, and its aggregates' positions moved and locked.
 *
 * It also ends what was known of the events' failures: their attempts are forgotten, and those that have an open dead letter are
 * returned, with the letter locked: who applies an event settles its letter in the same transaction. Where a consumer has neither
 * attempts nor letters, a look at an index says so.
 *
 * Locks are taken in one order everywhere: letters, inbox rows by event id, attempts, then positions by aggregate, then what
 * projections and handlers touch. So two batches that meet wait for each other in one direction only. Arrays of aggregates come in
 * that order already: sorting and grouping them here costs the database more than us. Ids are unpacked once, for the same reason.
 */
import { name, part, sql, sqlArray, type Part, type Statement } from '../../postgres/query/sql.ts'
import type { Scope } from './inbox.sql.ts'
import type { Item } from '../model/batch-item.ts'
import { aggregateIds, aggregateTypes, contentHashes, ids } from './item-arrays.ts'
import type { Version } from '../../core/event/version.ts'

/**
 * A duplicate (`id`), an event with an open dead letter (`letter_of`), or an aggregate that needs a second look: only locked, held,
 * waited for, ahead of the batch, or one that has taken a version of it. `taken_to` is from before the batch.
 */
export interface ClaimRow {
  readonly id: string | null
  readonly letter_of: string | null
  readonly aggregate_type: string | null
  readonly aggregate_id: string | null
  readonly version: string | null
  readonly waiting: number | null
  readonly held_by: string | null
  readonly taken_from: string | null
  readonly taken_to: string | null
  /** Where the aggregate was, if the batch moves it by more than `maxJump`. Without a version it is all that the row tells. */
  readonly jumped_from: string | null
}

/** A row of a claim that is about no aggregate, and no event either. */
export const noAggregate = {
  id: null,
  letter_of: null,
  aggregate_type: null,
  aggregate_id: null,
  version: null,
  waiting: null,
  held_by: null,
  taken_from: null,
  taken_to: null,
  jumped_from: null,
}

/** Duplicates, and events that have an open letter. */
const seenBefore = part`select i.event_id::text as id, null as letter_of, null as aggregate_type, null as aggregate_id, null as version, null::int as waiting,
           null as held_by, null as taken_from, null as taken_to, null as jumped_from
      from input i where i.event_id not in (select event_id from fresh)
    union all
    select null, l.event_id::text, null, null, null, null, null, null, null, null from letter l`

/** What an aggregate's row becomes where no ids are kept. */
const movedForward = part`
            version = case when p.held_by is null and p.waiting = 0 then greatest(p.version, excluded.version) else p.version end,
            updated_at = clock_timestamp()`

/**
 * Where a position stood before a batch that moves it too far; zero is nowhere. A row that is new begins where the batch does, if that
 * goes too far by itself.
 */
function jumped(maxJump: number): Part {
  return part`
            jumped_from = case when p.version > 0 and excluded.version - p.version > ${maxJump}::bigint then p.version end`
}

/** Of a batch with a gap that has a version which was taken: what is known is left for the second look. */
const grows = part`p.held_by is null and p.waiting = 0 and excluded.version > p.version and not coalesce(excluded.overlapped <= p.taken_to, false)`

/**
 * The same where the batch's ids are kept: what is known to be taken grows by its versions. The row that is offered has where they
 * begin, or the newest if there is a gap, and in `overlapped` the oldest if there is a gap, or zero if it is only to be locked.
 */
const movedOver = (maxJump: number): Part => part`${movedForward},${jumped(maxJump)},
            taken_from = case when not (${grows}) then p.taken_from
                              when p.taken_to = p.version and excluded.taken_from <= p.version + 1 then p.taken_from
                              else greatest(excluded.taken_from, p.version + 1) end,
            taken_to = case when ${grows} then excluded.version else p.taken_to end,
            overlapped = case when excluded.version = 0 then coalesce(p.taken_to, 0)
                              when coalesce(excluded.overlapped, excluded.taken_from) <= p.taken_to and excluded.version >= p.taken_from then p.taken_to end
      returning p.aggregate_type, p.aggregate_id, p.version, p.waiting, p.held_by, p.taken_from, coalesce(p.overlapped, p.taken_to) as taken_to, p.overlapped, p.jumped_from`

/**
 * The first statement of every batch: records the events that are new, and moves their aggregates' positions forward.
 *
 * A duplicate whose first delivery is still under way waits here for its end (`lock_timeout` bounds it): committed makes it a
 * duplicate, rolled back makes it new. Positions of sequential aggregates, and of those that the batch has with a gap, are only
 * locked and read: their target is zero, and they are moved later, by what is applied. So is one of which the batch has a version twice, and one that
 * something waits for; a held aggregate stays where it is.
 * Each aggregate's row is read after it was locked, whatever this statement's snapshot says.
 * Indexes: the primary keys of inbox and consumer_position.
 */
export function claim(scope: Scope, items: readonly Item[], maxJump: number): Statement<ClaimRow> {
  const { tables, consumer, generation } = scope
  const at = targetsOf(items, maxJump, ({ sequential, hasGap, hasTwins }) => sequential || hasGap || hasTwins)
  return sql`
    with ${recorded(scope, items)}, target as materialized (
      select * from unnest(${at.types}::text::text[], ${at.ids}::text::text[], ${at.versions}::text::bigint[], ${at.begins}::text::bigint[], ${at.overlaps}::text::bigint[], ${at.jumps}::text::bigint[])
               as t (aggregate_type, aggregate_id, version, taken_from, overlapped, jumped_from)
    ), moved as (
      insert into ${tables.position} as p (consumer, generation, aggregate_type, aggregate_id, version, taken_from, taken_to, overlapped, jumped_from)
      select ${consumer}::text, ${generation}::int, t.aggregate_type, t.aggregate_id, t.version, t.taken_from, nullif(t.version, 0), t.overlapped, t.jumped_from from target t
      on conflict (consumer, generation, aggregate_type, aggregate_id) do update set ${movedOver(maxJump)}
    )
    ${seenBefore}
    union all
    select null, null, m.aggregate_type, m.aggregate_id, case when m.waiting > 0 or m.held_by is not null or m.version > t.version or m.overlapped is not null then m.version::text end,
           m.waiting, m.held_by::text, m.taken_from::text, m.taken_to::text, m.jumped_from::text
      from moved m join target t on t.aggregate_type = m.aggregate_type and t.aggregate_id = m.aggregate_id
     where m.waiting > 0 or m.held_by is not null or m.version > t.version or m.overlapped is not null or m.jumped_from is not null`
}

/**
 * The same for batches without handlers: nobody asks who is ahead, and without looking for that it costs a third less.
 * Indexes: the primary keys of inbox and consumer_position.
 */
export function claimRows(scope: Scope, items: readonly Item[], maxJump: number): Statement<ClaimRow> {
  const { tables, consumer, generation } = scope
  const at = targetsOf(items, maxJump, ({ hasTwins }) => hasTwins)
  return sql`
    with ${recorded(scope, items)}, moved as (
      insert into ${tables.position} as p (consumer, generation, aggregate_type, aggregate_id, version, taken_from, taken_to, overlapped, jumped_from)
      select ${consumer}::text, ${generation}::int, t.aggregate_type, t.aggregate_id, t.version, t.taken_from, nullif(t.version, 0), t.overlapped, t.jumped_from
        from unnest(${at.types}::text::text[], ${at.ids}::text::text[], ${at.versions}::text::bigint[], ${at.begins}::text::bigint[], ${at.overlaps}::text::bigint[], ${at.jumps}::text::bigint[])
               as t (aggregate_type, aggregate_id, version, taken_from, overlapped, jumped_from)
      on conflict (consumer, generation, aggregate_type, aggregate_id) do update set ${movedOver(maxJump)}
    )
    ${seenBefore}
    union all
    select null, null, m.aggregate_type, m.aggregate_id, case when m.waiting > 0 or m.held_by is not null or m.overlapped is not null then m.version::text end,
           m.waiting, m.held_by::text, m.taken_from::text, m.taken_to::text, m.jumped_from::text
      from moved m where m.waiting > 0 or m.held_by is not null or m.overlapped is not null or m.jumped_from is not null`
}

/** The same without an inbox: versions alone decide. Those of `lockedTypes` are moved later, by what is applied. */
export function moveOnly(
  scope: Scope,
  items: readonly Item[],
  { maxJump, lockedTypes }: { readonly maxJump: number; readonly lockedTypes: readonly string[] },
): Statement<ClaimRow> {
  const { tables, consumer, generation } = scope
  const at = targetsOf(items, maxJump)
  return sql`
    with ${unrecorded(scope, items)}, target as materialized (
      select t.*, t.aggregate_type = any (${sqlArray(lockedTypes)}::text::text[]) as locked
        from unnest(${at.types}::text::text[], ${at.ids}::text::text[], ${at.versions}::text::bigint[], ${at.jumps}::text::bigint[]) as t (aggregate_type, aggregate_id, version, jumped_from)
    ), moved as (
      insert into ${tables.position} as p (consumer, generation, aggregate_type, aggregate_id, version, jumped_from)
      select ${consumer}::text, ${generation}::int, t.aggregate_type, t.aggregate_id, case when t.locked then 0 else t.version end, t.jumped_from from target t
       where (select count(*) from letter) >= 0
      on conflict (consumer, generation, aggregate_type, aggregate_id) do update set ${movedForward},${jumped(maxJump)}
      returning p.aggregate_type, p.aggregate_id, p.version, p.waiting, p.held_by, p.jumped_from
    )
    select null as id, l.event_id::text as letter_of, null as aggregate_type, null as aggregate_id, null as version, null::int as waiting, null as held_by, null as taken_from, null as taken_to, null as jumped_from
      from letter l
    union all
    select null, null, m.aggregate_type, m.aggregate_id, case when m.waiting > 0 or m.held_by is not null or t.locked then m.version::text end,
           m.waiting, m.held_by::text, null, null, m.jumped_from::text
      from moved m join target t on t.aggregate_type = m.aggregate_type and t.aggregate_id = m.aggregate_id
     where m.waiting > 0 or m.held_by is not null or t.locked or m.jumped_from is not null`
}

/** The same for batches without handlers. Index: the primary key of consumer_position. */
export function moveRows(scope: Scope, items: readonly Item[], maxJump: number): Statement<ClaimRow> {
  const { tables, consumer, generation } = scope
  const at = targetsOf(items, maxJump)
  return sql`
    with ${unrecorded(scope, items)}, moved as (
      insert into ${tables.position} as p (consumer, generation, aggregate_type, aggregate_id, version, jumped_from)
      select ${consumer}::text, ${generation}::int, t.aggregate_type, t.aggregate_id, t.version, t.jumped_from
        from unnest(${at.types}::text::text[], ${at.ids}::text::text[], ${at.versions}::text::bigint[], ${at.jumps}::text::bigint[]) as t (aggregate_type, aggregate_id, version, jumped_from)
       where (select count(*) from letter) >= 0
      on conflict (consumer, generation, aggregate_type, aggregate_id) do update set ${movedForward},${jumped(maxJump)}
      returning p.aggregate_type, p.aggregate_id, p.version, p.waiting, p.held_by, p.jumped_from
    )
    select null as id, l.event_id::text as letter_of, null as aggregate_type, null as aggregate_id, null as version, null::int as waiting, null as held_by, null as taken_from, null as taken_to, null as jumped_from
      from letter l
    union all
    select null, null, m.aggregate_type, m.aggregate_id, case when m.waiting > 0 or m.held_by is not null then m.version::text end,
           m.waiting, m.held_by::text, null, null, m.jumped_from::text
      from moved m where m.waiting > 0 or m.held_by is not null or m.jumped_from is not null`
}

/**
 * For batches whose every event becomes a row that has its version, or its key: records the events, and writes no position.
 * Index: the inbox's primary key.
 */
export function claimEvents(scope: Scope, items: readonly Item[]): Statement<Pick<ClaimRow, 'id' | 'letter_of'>> {
  return sql`
    with ${recorded(scope, items)}
    select i.event_id::text as id, null as letter_of from input i where i.event_id not in (select event_id from fresh)
    union all
    select null, l.event_id::text from letter l`
}

/**
 * Whether any aggregate of the consumer is held or waited for, and whether it has open letters or attempts; usually it has neither.
 * Indexes: consumer_position_waiting_idx, dead_letter_group_idx, dead_letter_redriving_idx, the primary key of delivery_attempt.
 */
export function findBlocked({ tables, consumer, generation }: Scope): Statement<{ blocked: boolean; failed: boolean }> {
  return sql`
    select exists (
      select from ${tables.position} p
       where p.consumer = ${consumer}::text and p.generation = ${generation}::int and (p.waiting > 0 or p.held_by is not null)) as blocked,
           exists (select from ${tables.deadLetter} d where d.consumer = ${consumer}::text and d.state = 'dead')
             or exists (select from ${tables.deadLetter} d where d.consumer = ${consumer}::text and d.generation = ${generation}::int and d.state = 'redriving')
             or exists (select from ${tables.attempt} a where a.consumer = ${consumer}::text and a.generation = ${generation}::int) as failed`
}

/** What a claim does with letters and attempts, where nothing else is to be claimed. Indexes: the unique ones on the event. */
export function claimLetters(scope: Scope, items: readonly Item[]): Statement<{ letter_of: string }> {
  return sql`
    with ${unrecorded(scope, items)}
    select l.event_id::text as letter_of from letter l`
}

/** Locks those of the items' aggregates that are held or waited for. Index: consumer_position_waiting_idx. */
export function lockBlocked({ tables, consumer, generation }: Scope, items: readonly Item[]): Statement<ClaimRow> {
  return sql`
    select null as id, null as letter_of, p.aggregate_type, p.aggregate_id, p.version::text as version, p.waiting, p.held_by::text as held_by, p.taken_from::text, p.taken_to::text, null as jumped_from
      from ${tables.position} p
     where p.consumer = ${consumer}::text and p.generation = ${generation}::int and (p.waiting > 0 or p.held_by is not null)
       and (p.aggregate_type, p.aggregate_id) in (
         select i.aggregate_type, i.aggregate_id
           from unnest(${aggregateTypes(items)}::text::text[], ${aggregateIds(items)}::text::text[]) as i (aggregate_type, aggregate_id))
     order by p.aggregate_type, p.aggregate_id
       for update of p`
}

/** Records stored events whose turn came with another's, and says of each whether it is new and has an open letter. */
export function claimStored(
  scope: Scope,
  items: readonly Item[],
): Statement<{ id: string; is_new: boolean; has_letter: boolean }> {
  return sql`
    with ${recorded(scope, items)}
    select i.event_id::text as id, i.event_id in (select event_id from fresh) as is_new, i.event_id in (select event_id from letter) as has_letter
      from input i`
}

/** Takes back what `claim` recorded in this same transaction, for events that are not applied after all. */
export function unrecord({ tables, consumer, generation }: Scope, items: readonly Item[]): Statement {
  return sql`
    delete from ${tables.inbox}
     where consumer = ${consumer}::text and generation = ${generation}::int and event_id = any (${ids(items)}::text::uuid[])`
}

/** Marks the events that were recorded before with another content, and returns them. Index: the inbox's primary key. */
export function markConflicts({ tables, consumer, generation }: Scope, items: readonly Item[]): Statement<{ id: string }> {
  return sql`
    with asked as materialized (
      select ${consumer}::text as consumer, ${generation}::int as generation, i.*
        from unnest(${ids(items)}::text::uuid[], ${contentHashes(items)}::text::bytea[]) as i (event_id, content_hash)
    )
    update ${tables.inbox} b set conflicted_at = coalesce(b.conflicted_at, clock_timestamp()) from asked a
     where b.consumer = a.consumer and b.generation = a.generation and b.event_id = a.event_id and b.content_hash <> a.content_hash
    returning b.event_id::text as id`
}

/**
 * The events (`input`), those that the inbox did not have (`fresh`), and those that have an open letter (`letter`). Letters are
 * locked before the inbox rows, and looked for again behind them: who buried an event meanwhile was waited for there.
 */
function recorded({ tables, consumer, generation }: Scope, items: readonly Item[]): Part {
  const lockLetters = name(tables.schema, 'lock_letters')
  return part`input as materialized (
      select * from unnest(${ids(items)}::text::uuid[], ${aggregateTypes(items)}::text::text[], ${contentHashes(items)}::text::bytea[])
        as i (event_id, source, content_hash)
    ), known as materialized (
      select l as event_id from ${lockLetters}(${consumer}::text, ${generation}::int, array(select event_id from input)) l
    ), fresh as (
      insert into ${tables.inbox} (consumer, generation, event_id, source, content_hash)
      select ${consumer}::text, ${generation}::int, i.event_id, i.source, i.content_hash from input i where (select count(*) from known) >= 0 order by i.event_id
      on conflict do nothing
      returning event_id
    ), letter as materialized (
      select event_id from known
      union
      select l from ${lockLetters}(${consumer}::text, ${generation}::int, array(select event_id from fresh)) l
    ), ${forgotten({ tables, consumer, generation })}`
}

/** The same without an inbox: versions decide what is new. */
function unrecorded({ tables, consumer, generation }: Scope, items: readonly Item[]): Part {
  return part`input as materialized (
      select event_id from unnest(${ids(items)}::text::uuid[]) as i (event_id)
    ), letter as materialized (
      select l as event_id from ${name(tables.schema, 'lock_letters')}(${consumer}::text, ${generation}::int, array(select event_id from input)) l
    ), ${forgotten({ tables, consumer, generation })}`
}

/** Forgets the attempts of `input`. A consumer that has none does not look for them. Index: the primary key of delivery_attempt. */
function forgotten({ tables, consumer, generation }: Scope): Part {
  return part`forgotten as (
      delete from ${tables.attempt} a
       where a.consumer = ${consumer}::text and a.generation = ${generation}::int and a.event_id = any (array(
         select f.event_id from ${tables.attempt} f
          where f.consumer = ${consumer}::text and f.generation = ${generation}::int and f.event_id = any (array(select event_id from input))
            and exists (select from ${tables.attempt} o where o.consumer = ${consumer}::text and o.generation = ${generation}::int)
          order by f.event_id for update of f))
    )`
}

/** The aggregates in the order that everybody locks them in, each with its newest version; see `movedOver`. */
function targetsOf(
  items: readonly Item[],
  maxJump: number,
  isLocked: (each: BatchVersions) => boolean = () => false,
): Record<'types' | 'ids' | 'versions' | 'begins' | 'overlaps', string> & { readonly jumps: string | null } {
  const sorted = [...batchVersions(items)].toSorted(([a], [b]) => (a < b ? -1 : 1)).map(([, each]) => each)
  const newest = sorted.map(({ newest: event }) => ({ event }))
  const locked = sorted.map(isLocked)
  const jumps = sorted.map(({ hasGap, oldest, newest: { version } }) =>
    hasGap && version - oldest > BigInt(maxJump) ? oldest : null,
  )
  return {
    types: aggregateTypes(newest),
    ids: aggregateIds(newest),
    versions: sqlArray(sorted.map((each, n) => (locked[n] === true ? 0n : each.newest.version))),
    begins: sqlArray(sorted.map((each, n) => (locked[n] === true ? null : each.hasGap ? each.newest.version : each.oldest))),
    overlaps: sqlArray(sorted.map((each, n) => (locked[n] === true ? 0n : each.hasGap ? each.oldest : null))),
    jumps: jumps.some((from) => from !== null) ? sqlArray(jumps) : null,
  }
}

/** What a batch holds of one aggregate. */
export interface BatchVersions {
  oldest: Version
  newest: Item['event']
  hasGap: boolean
  /** Two events have one version. */
  hasTwins: boolean
  readonly sequential: boolean
}

/**
 * By aggregate. Items of one aggregate come in the order of versions; where they do not, that is taken for a gap.
 *
 * A position that was moved to the newest of a batch no longer tells where it was. Without a gap it need not: had it been within
 * the batch, the event there would be a duplicate, and had it been beyond, it would still be. In a gap nothing tells.
 */
export function batchVersions(items: readonly Pick<Item, 'event' | 'key' | 'sequential'>[]): Map<string, BatchVersions> {
  const found = new Map<string, BatchVersions>()
  for (const { key, event, sequential } of items) {
    const known = found.get(key)
    if (known === undefined) found.set(key, { oldest: event.version, newest: event, hasGap: false, hasTwins: false, sequential })
    else add(known, event)
  }
  return found
}

function add(known: BatchVersions, event: Item['event']): void {
  const { version } = known.newest
  known.hasTwins ||= event.version === version
  known.hasGap ||= event.version !== version && event.version !== version + 1n
  if (event.version < known.oldest) known.oldest = event.version
  if (event.version > version) known.newest = event
}
