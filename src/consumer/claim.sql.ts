/**
 * What a batch begins with: its events are recorded in the inbox, and its aggregates' positions moved and locked.
 *
 * Locks are taken in one order everywhere: inbox rows by event id, then positions by aggregate, then what projections and
 * handlers touch. So two batches that meet wait for each other in one direction only. Arrays of aggregates come in that order
 * already: sorting and grouping them here costs the database more than us. Ids are unpacked once, for the same reason.
 */
import { sql, sqlArray, type Statement } from '../postgres/sql.ts'
import { batchVersions, type BatchVersions } from './batch-versions.ts'
import type { Scope } from './inbox.sql.ts'
import type { Item } from './item.ts'
import { aggregateIds, aggregateTypes, contentHashes, ids } from './item-arrays.ts'

/** A duplicate (`id`), or an aggregate that needs a second look: only locked, held, waited for, or ahead of the batch. */
export interface ClaimRow {
  readonly id: string | null
  readonly aggregate_type: string | null
  readonly aggregate_id: string | null
  readonly version: string | null
  readonly waiting: number | null
  readonly held_by: string | null
}

/**
 * The first statement of every batch: records the events that are new, and moves their aggregates' positions forward.
 *
 * A duplicate whose first delivery is still under way waits here for its end (`lock_timeout` bounds it): committed makes it a
 * duplicate, rolled back makes it new. Positions of sequential aggregates, and of those that the batch has with a gap, are only
 * locked and read: their target is zero, and they are moved later, by what is applied. So is one that something waits for; a
 * held aggregate stays where it is.
 * Each aggregate's row is read after it was locked, whatever this statement's snapshot says.
 * Indexes: the primary keys of inbox and consumer_position.
 */
export function claim({ tables, consumer, generation }: Scope, items: readonly Item[]): Statement<ClaimRow> {
  const at = targetsOf(items, ({ sequential, hasGap }) => sequential || hasGap)
  return sql`
    with input as materialized (
      select * from unnest(${ids(items)}::text::uuid[], ${aggregateTypes(items)}::text::text[], ${contentHashes(items)}::text::bytea[])
        as i (event_id, source, content_hash)
    ), fresh as (
      insert into ${tables.inbox} (consumer, generation, event_id, source, content_hash)
      select ${consumer}::text, ${generation}::int, i.event_id, i.source, i.content_hash from input i order by i.event_id
      on conflict do nothing
      returning event_id
    ), target as materialized (
      select * from unnest(${at.types}::text::text[], ${at.ids}::text::text[], ${at.versions}::text::bigint[]) as t (aggregate_type, aggregate_id, version)
    ), moved as (
      insert into ${tables.position} as p (consumer, generation, aggregate_type, aggregate_id, version)
      select ${consumer}::text, ${generation}::int, t.aggregate_type, t.aggregate_id, t.version from target t
      on conflict (consumer, generation, aggregate_type, aggregate_id) do update
        set version = case when p.held_by is null and p.waiting = 0 then greatest(p.version, excluded.version) else p.version end,
            updated_at = clock_timestamp()
      returning p.aggregate_type, p.aggregate_id, p.version, p.waiting, p.held_by
    )
    select i.event_id::text as id, null as aggregate_type, null as aggregate_id, null as version, null as waiting, null as held_by
      from input i where i.event_id not in (select event_id from fresh)
    union all
    select null, m.aggregate_type, m.aggregate_id, m.version::text, m.waiting, m.held_by::text
      from moved m join target t on t.aggregate_type = m.aggregate_type and t.aggregate_id = m.aggregate_id
     where m.waiting > 0 or m.held_by is not null or m.version > t.version or t.version = 0`
}

/**
 * The same for batches without handlers: nobody asks who is ahead, and without looking for that it costs a third less.
 * Indexes: the primary keys of inbox and consumer_position.
 */
export function claimRows({ tables, consumer, generation }: Scope, items: readonly Item[]): Statement<ClaimRow> {
  const at = targetsOf(items)
  return sql`
    with input as materialized (
      select * from unnest(${ids(items)}::text::uuid[], ${aggregateTypes(items)}::text::text[], ${contentHashes(items)}::text::bytea[])
        as i (event_id, source, content_hash)
    ), fresh as (
      insert into ${tables.inbox} (consumer, generation, event_id, source, content_hash)
      select ${consumer}::text, ${generation}::int, i.event_id, i.source, i.content_hash from input i order by i.event_id
      on conflict do nothing
      returning event_id
    ), moved as (
      insert into ${tables.position} as p (consumer, generation, aggregate_type, aggregate_id, version)
      select ${consumer}::text, ${generation}::int, t.aggregate_type, t.aggregate_id, t.version
        from unnest(${at.types}::text::text[], ${at.ids}::text::text[], ${at.versions}::text::bigint[]) as t (aggregate_type, aggregate_id, version)
      on conflict (consumer, generation, aggregate_type, aggregate_id) do update
        set version = case when p.held_by is null and p.waiting = 0 then greatest(p.version, excluded.version) else p.version end,
            updated_at = clock_timestamp()
      returning p.aggregate_type, p.aggregate_id, p.version, p.waiting, p.held_by
    )
    select i.event_id::text as id, null as aggregate_type, null as aggregate_id, null as version, null as waiting, null as held_by
      from input i where i.event_id not in (select event_id from fresh)
    union all
    select null, m.aggregate_type, m.aggregate_id, m.version::text, m.waiting, m.held_by::text
      from moved m where m.waiting > 0 or m.held_by is not null`
}

/** The same without an inbox: versions alone decide. Those of `lockedTypes` are moved later, by what is applied. */
export function moveOnly(
  { tables, consumer, generation }: Scope,
  items: readonly Item[],
  lockedTypes: readonly string[],
): Statement<ClaimRow> {
  const at = targetsOf(items)
  return sql`
    with target as materialized (
      select t.*, t.aggregate_type = any (${sqlArray(lockedTypes)}::text::text[]) as locked
        from unnest(${at.types}::text::text[], ${at.ids}::text::text[], ${at.versions}::text::bigint[]) as t (aggregate_type, aggregate_id, version)
    ), moved as (
      insert into ${tables.position} as p (consumer, generation, aggregate_type, aggregate_id, version)
      select ${consumer}::text, ${generation}::int, t.aggregate_type, t.aggregate_id, case when t.locked then 0 else t.version end from target t
      on conflict (consumer, generation, aggregate_type, aggregate_id) do update
        set version = case when p.held_by is null and p.waiting = 0 then greatest(p.version, excluded.version) else p.version end,
            updated_at = clock_timestamp()
      returning p.aggregate_type, p.aggregate_id, p.version, p.waiting, p.held_by
    )
    select null as id, m.aggregate_type, m.aggregate_id, m.version::text, m.waiting, m.held_by::text
      from moved m join target t on t.aggregate_type = m.aggregate_type and t.aggregate_id = m.aggregate_id
     where m.waiting > 0 or m.held_by is not null or t.locked`
}

/** The same for batches without handlers. Index: the primary key of consumer_position. */
export function moveRows({ tables, consumer, generation }: Scope, items: readonly Item[]): Statement<ClaimRow> {
  const at = targetsOf(items)
  return sql`
    with moved as (
      insert into ${tables.position} as p (consumer, generation, aggregate_type, aggregate_id, version)
      select ${consumer}::text, ${generation}::int, t.aggregate_type, t.aggregate_id, t.version
        from unnest(${at.types}::text::text[], ${at.ids}::text::text[], ${at.versions}::text::bigint[]) as t (aggregate_type, aggregate_id, version)
      on conflict (consumer, generation, aggregate_type, aggregate_id) do update
        set version = case when p.held_by is null and p.waiting = 0 then greatest(p.version, excluded.version) else p.version end,
            updated_at = clock_timestamp()
      returning p.aggregate_type, p.aggregate_id, p.version, p.waiting, p.held_by
    )
    select null as id, m.aggregate_type, m.aggregate_id, m.version::text as version, m.waiting, m.held_by::text as held_by
      from moved m where m.waiting > 0 or m.held_by is not null`
}

/**
 * For batches whose every event becomes a row that has its version, or its key: records the events, and writes no position.
 * Index: the inbox's primary key.
 */
export function claimEvents({ tables, consumer, generation }: Scope, items: readonly Item[]): Statement<Pick<ClaimRow, 'id'>> {
  return sql`
    with input as materialized (
      select * from unnest(${ids(items)}::text::uuid[], ${aggregateTypes(items)}::text::text[], ${contentHashes(items)}::text::bytea[])
        as i (event_id, source, content_hash)
    ), fresh as (
      insert into ${tables.inbox} (consumer, generation, event_id, source, content_hash)
      select ${consumer}::text, ${generation}::int, i.event_id, i.source, i.content_hash from input i order by i.event_id
      on conflict do nothing
      returning event_id
    )
    select i.event_id::text as id from input i where i.event_id not in (select event_id from fresh)`
}

/** Whether any aggregate of the consumer is held or waited for; usually none is. Index: consumer_position_waiting_idx. */
export function findBlocked({ tables, consumer, generation }: Scope): Statement<{ blocked: boolean }> {
  return sql`
    select exists (
      select from ${tables.position} p
       where p.consumer = ${consumer}::text and p.generation = ${generation}::int and (p.waiting > 0 or p.held_by is not null)) as blocked`
}

/** Locks those of the items' aggregates that are held or waited for. Index: consumer_position_waiting_idx. */
export function lockBlocked({ tables, consumer, generation }: Scope, items: readonly Item[]): Statement<ClaimRow> {
  return sql`
    select null as id, p.aggregate_type, p.aggregate_id, p.version::text as version, p.waiting, p.held_by::text as held_by
      from ${tables.position} p
     where p.consumer = ${consumer}::text and p.generation = ${generation}::int and (p.waiting > 0 or p.held_by is not null)
       and (p.aggregate_type, p.aggregate_id) in (
         select i.aggregate_type, i.aggregate_id
           from unnest(${aggregateTypes(items)}::text::text[], ${aggregateIds(items)}::text::text[]) as i (aggregate_type, aggregate_id))
     order by p.aggregate_type, p.aggregate_id
       for update of p`
}

/** Records stored events whose turn came with another's; returns those that are new. */
export function claimStored({ tables, consumer, generation }: Scope, items: readonly Item[]): Statement<{ id: string }> {
  return sql`
    insert into ${tables.inbox} (consumer, generation, event_id, source, content_hash)
    select ${consumer}::text, ${generation}::int, i.event_id, i.source, i.content_hash
      from unnest(${ids(items)}::text::uuid[], ${aggregateTypes(items)}::text::text[], ${contentHashes(items)}::text::bytea[])
        as i (event_id, source, content_hash) order by i.event_id
    on conflict do nothing
    returning event_id::text as id`
}

/** Takes back what `claim` recorded in this same transaction, for events that are not applied after all. */
export function unclaim({ tables, consumer, generation }: Scope, items: readonly Item[]): Statement {
  return sql`
    delete from ${tables.inbox}
     where consumer = ${consumer}::text and generation = ${generation}::int and event_id = any (${ids(items)}::text::uuid[])`
}

/** Marks the facts that were recorded before with another content, and returns them. Index: the inbox's primary key. */
export function markConflicts({ tables, consumer, generation }: Scope, facts: readonly Item[]): Statement<{ id: string }> {
  return sql`
    update ${tables.inbox} b set conflicted_at = coalesce(b.conflicted_at, clock_timestamp())
      from unnest(${ids(facts)}::text::uuid[], ${contentHashes(facts)}::text::bytea[]) as i (event_id, content_hash)
     where b.consumer = ${consumer}::text and b.generation = ${generation}::int and b.event_id = i.event_id and b.content_hash <> i.content_hash
    returning b.event_id::text as id`
}

/** The newest version of each aggregate, in the order that everybody locks them in; zero for those that are only locked. */
function targetsOf(
  items: readonly Item[],
  isLocked: (each: BatchVersions) => boolean = () => false,
): Record<'types' | 'ids' | 'versions', string> {
  const sorted = [...batchVersions(items)].toSorted(([a], [b]) => (a < b ? -1 : 1)).map(([, each]) => each)
  const newest = sorted.map(({ newest: event }) => ({ event }))
  const targets = sorted.map((each) => (isLocked(each) ? 0n : each.newest.version))
  return { types: aggregateTypes(newest), ids: aggregateIds(newest), versions: sqlArray(targets) }
}
