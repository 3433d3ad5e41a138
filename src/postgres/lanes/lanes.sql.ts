/**
 * Every statement on a lane table and its heartbeats. Outbox and inbox have one such pair each.
 *
 * Lanes are locked in order of lane everywhere, so that no two sessions wait for each other. Time is the database's
 * `clock_timestamp()`: `now()` would be the start of the transaction.
 */
import { name, part, sql, sqlArray, type Name, type Part, type Statement } from '../query/sql.ts'

export interface LaneTables {
  readonly lane: Name
  readonly worker: Name
}

export interface HeldLane {
  readonly lane: number
  readonly token: string
}

/**
 * The key of the aggregate in a row of this alias, whose low bits are its lane: the first 8 bytes of the SHA-256 of type and id, as
 * add_event makes it.
 */
export function aggregateKey(alias: 'a' | 'd' | 'i' | 'o' | 'p'): Part {
  const row = name(alias)
  const text = part`${row}.aggregate_type || chr(31) || ${row}.aggregate_id`
  return part`('x' || encode(substring(sha256(convert_to(${text}, 'UTF8')) from 1 for 8), 'hex'))::bit(64)::bigint`
}

/**
 * Whether the lane in row `l` is nobody's: given back, its lease over, or written ahead of us by more than it lasts, which only a clock
 * that stepped back explains. How long it lasts is read from its row, as each renewal writes both ends: while settings change, the
 * lease of whoever asks may be much shorter than the owner's, who lives.
 */
export const isFreeLane: Part = part`(l.lock_token is null or l.lock_expires_at <= clock_timestamp()
              or l.locked_at - clock_timestamp() > l.lock_expires_at - l.locked_at)`

/**
 * Says that this worker lives; returns how many do, its place among them, and how many lanes there are.
 * A heartbeat from the future counts as little as one of the past: whoever lives writes a new one after the clock stepped back.
 * Whoever has a lease lives until that ends, even if its heartbeats are rarer than ours: nobody can take its lanes before.
 */
export function heartbeat(
  tables: LaneTables,
  worker: string,
  leaseMs: number,
): Statement<{ workers: number; rank: number; lanes: number }> {
  return sql`
    with beat as (
      insert into ${tables.worker} (worker, seen_at) values (${worker}, clock_timestamp())
      on conflict (worker) do update set seen_at = excluded.seen_at
    ), others as (
      select count(*)::int as all, count(*) filter (where w.worker < ${worker})::int as before
        from ${tables.worker} w
       where w.worker <> ${worker}
         and (abs(extract(epoch from clock_timestamp() - w.seen_at)) * 1000 < ${leaseMs}::int
              or exists (select from ${tables.lane} l where l.locked_by = w.worker and not ${isFreeLane}))
    )
    select others.all + 1 as workers, others.before as rank, (select count(*)::int from ${tables.lane}) as lanes from others`
}

/** Forgets this worker, so that the others take its lanes at once, and those that died long ago. */
export function farewell(tables: LaneTables, worker: string, leaseMs: number): Statement {
  return sql`
    delete from ${tables.worker}
     where worker = ${worker} or seen_at < clock_timestamp() - ${leaseMs}::int * 20 * interval '1 millisecond'`
}

/** Takes lanes that are nobody's. The CTE is materialized: inlined, a nested loop could run it again and take more than `count`. */
export function acquireLanes(
  tables: LaneTables,
  claim: { readonly worker: string; readonly token: string; readonly leaseMs: number; readonly count: number },
): Statement<{ lane: number }> {
  return sql`
    with free as materialized (
      select l.lane from ${tables.lane} l
       where ${isFreeLane}
       order by l.lock_expires_at nulls first, l.lane
       limit ${claim.count}::int
         for update skip locked
    )
    update ${tables.lane} l
       set lock_token = ${claim.token}::text::uuid, locked_by = ${claim.worker}, locked_at = clock_timestamp(),
           lock_expires_at = clock_timestamp() + ${claim.leaseMs}::int * interval '1 millisecond', batch_from = null, batch_to = null
      from free
     where l.lane = free.lane
    returning l.lane`
}

/**
 * Prolongs the leases that are still ours and announces the batch under way; a lane that is missing was lost.
 * It waits for a lane's row, but not for ever: the time-out is set first and lasts as long as this statement.
 */
export function renewLanes(
  tables: LaneTables,
  held: readonly HeldLane[],
  renewal: { readonly leaseMs: number; readonly batch: { readonly from: string; readonly to: string } | undefined },
): Statement<{ lane: number }> {
  return sql`
    with mine as materialized (
      ${ours(tables, held, lockWait(renewal.leaseMs))} for update of l
    )
    update ${tables.lane} l
       set locked_at = clock_timestamp(), lock_expires_at = clock_timestamp() + ${renewal.leaseMs}::int * interval '1 millisecond',
           batch_from = ${renewal.batch?.from ?? null}::text::bigint, batch_to = ${renewal.batch?.to ?? null}::text::bigint
      from mine
     where l.lane = mine.lane
    returning l.lane`
}

/**
 * Waits for the first of our lanes. A statement of ours that failed further on, and is not rolled back yet, has that one locked: it is
 * over when this returns. If this fails, too, another has the lane; then ours got no further, and holds nothing.
 */
export function awaitFirstLane(tables: LaneTables, held: readonly HeldLane[], leaseMs: number): Statement<{ lane: number }> {
  return sql`
    ${ours(tables, held, rollbackWait(leaseMs))} limit 1 for update of l`
}

/** Those of our lanes whose rows nobody has locked. */
export function findUnlockedLanes(tables: LaneTables, held: readonly HeldLane[]): Statement<{ lane: number }> {
  return sql`
    select l.lane from ${tables.lane} l
     where l.lane = any (${lanesOf(held)}::text::smallint[])
     order by l.lane
       for update of l skip locked`
}

/** Gives lanes back, if they are still ours. Waits as patiently as a renewal. */
export function releaseLanes(tables: LaneTables, held: readonly HeldLane[], leaseMs: number): Statement {
  return sql`
    with mine as materialized (
      ${ours(tables, held, lockWait(leaseMs))} for update of l
    )
    update ${tables.lane} l
       set lock_token = null, locked_by = null, locked_at = null, lock_expires_at = null, batch_from = null, batch_to = null
      from mine
     where l.lane = mine.lane`
}

/** The lanes that are still ours, in order, for a statement that waits so long for each of their rows and no longer. */
function ours(tables: LaneTables, held: readonly HeldLane[], patience: string): Part {
  return part`
      with patience as materialized (
        select set_config('lock_timeout', ${patience}, true)
      )
      select l.lane from patience cross join ${tables.lane} l
        join unnest(${lanesOf(held)}::text::smallint[], ${tokensOf(held)}::text::uuid[]) as t (lane, token) on t.lane = l.lane and t.token = l.lock_token
       order by l.lane`
}

export function lanesOf(held: readonly HeldLane[]): string {
  return sqlArray(held.map(({ lane }) => lane))
}

/** Half a lease: then there is time to save the lanes whose rows are free. */
function lockWait(leaseMs: number): string {
  return `${Math.ceil(leaseMs / 2)}ms`
}

/** Long for a rollback, and short enough that half a lease and this leave time to renew. */
function rollbackWait(leaseMs: number): string {
  return `${Math.min(1_000, Math.ceil(leaseMs / 8))}ms`
}

export function tokensOf(held: readonly HeldLane[]): string {
  return sqlArray(held.map(({ token }) => token))
}
