/**
 * Statements by which waiting messages are taken in hand, and those of the view that their handlers write. There are few of
 * both, so that scripts of nothing else have much to take, to prolong and to give back, and old versions after newer ones.
 */
import fc from 'fast-check'
import { removeStored, storeWaiting, type Scope } from '../../src/consumer/tables/inbox.sql.ts'
import { leasedWaiting, type TakenRow } from '../../src/consumer/tables/leased-work.sql.ts'
import { name } from '../../src/postgres/query/sql.ts'
import { upsertNewer } from '../../src/projection/versioned-upsert.sql.ts'
import { scriptOf, scriptsOf, weighted, type ScriptStep } from './outbox-script.ts'
import { events } from './script-events.ts'
import type { Step } from './sides.ts'
import { viewTable } from './store/effect-statements.ts'

const never = 600_000

export function leaseScripts(scope: Scope, sessions: number): fc.Arbitrary<readonly ScriptStep[]> {
  return scriptsOf(fc.oneof(...leaseSteps(scope), ...weighted(4, viewSteps())), sessions)
}

function leaseSteps(scope: Scope): { readonly arbitrary: fc.Arbitrary<Step>; readonly weight: number }[] {
  const items = fc.subarray([...events], { minLength: 1, maxLength: 4 })
  const leaseMs = fc.constantFrom(0, never)
  const stale = fc.boolean()
  return [
    ...weighted(
      4,
      items.map(
        (some): Step =>
          () =>
            storeWaiting(scope, some),
      ),
    ),
    ...weighted(
      1,
      fc.constantFrom(...events).map(
        ({ event }): Step =>
          () =>
            removeStored(scope, [event.id]),
      ),
    ),
    ...weighted(
      4,
      fc.tuple(items, leaseMs).map(
        ([some, ms]): Step =>
          () =>
            leasedWaiting.take(scope, some, ms),
      ),
    ),
    ...weighted(
      2,
      fc.tuple(leaseMs, stale).map(
        ([ms, isStale]): Step =>
          (read) =>
            leasedWaiting.renew(scope, takenOf(read, isStale), ms),
      ),
    ),
    ...weighted(
      2,
      // One at a time: in which order it would wait for several, no plan promises.
      fc.tuple(stale, fc.nat(2)).map(
        ([isStale, place]): Step =>
          (read) =>
            leasedWaiting.give(scope, takenOf(read, isStale).slice(place, place + 1)),
      ),
    ),
  ]
}

/**
 * Leases that hold against others, are prolonged, are over, and are given back; by their own name only, and past locked rows.
 * Versions that come late, and a removed row that keeps what it had.
 */
export function leaseExamples(scope: Scope): readonly (readonly ScriptStep[])[] {
  const some = events.slice(0, 3)
  const store: Step = () => storeWaiting(scope, some)
  const take =
    (ms: number): Step =>
    () =>
      leasedWaiting.take(scope, some, ms)
  const renew =
    (isStale: boolean): Step =>
    (read) =>
      leasedWaiting.renew(scope, takenOf(read, isStale), never)
  const give =
    (isStale: boolean): Step =>
    (read) =>
      leasedWaiting.give(scope, takenOf(read, isStale))
  const remove: Step = () => removeStored(scope, [some[0]?.event.id ?? ''])
  return [
    scriptOf(
      [0, store],
      [0, take(never)],
      [1, take(never)],
      [0, give(true)],
      [1, take(never)],
      [0, give(false)],
      [1, take(never)],
    ),
    scriptOf([0, store], [0, take(0)], [0, renew(true)], [0, renew(false)], [1, take(never)], [0, give(false)]),
    scriptOf([0, store], [0, take(0)], [1, take(never)], [0, renew(false)], [0, give(false)], [2, take(never)]),
    scriptOf(
      [0, store],
      [0, take(0)],
      [1, 'begin'],
      [1, remove],
      [0, renew(false)],
      [2, take(0)],
      [0, give(false)],
      [1, 'commit'],
    ),
    scriptOf([0, write({ a: 2, b: 1 })], [0, write({ a: 1, b: 2 })], [0, write({ a: 3 }, true)], [0, write({ a: 2 })]),
  ]
}

/** What the session took last; as stale, under leases that nobody has. */
function takenOf(read: readonly Record<string, unknown>[], isStale: boolean): TakenRow[] {
  return read
    .filter((row) => row['until'] !== undefined)
    .map((row) => ({ id: String(row['id']), until: isStale ? '1' : String(row['until']) }))
    .toSorted((a, b) => (a.id < b.id ? -1 : 1))
}

function viewSteps(): fc.Arbitrary<Step> {
  const version = fc.integer({ min: 1, max: 4 })
  const keys = fc.subarray(['a', 'b'], { minLength: 1 })
  return fc
    .tuple(keys, version, version, fc.boolean())
    .map(([some, a, b, isRemoved]) => write(Object.fromEntries(some.map((key, i) => [key, i === 0 ? a : b])), isRemoved))
}

/** The versions of a batch by key; of a removed row nothing but that is written. */
function write(versions: Readonly<Record<string, number>>, isRemoved = false): Step {
  const records = Object.entries(versions).map(([key, version]) => ({
    video_id: key,
    version: String(version),
    ...(isRemoved ? { deleted_at: '2025-01-01T00:00:00Z' } : { deleted_at: null, title: `${key} ${version}` }),
  }))
  const columns = isRemoved ? ['deleted_at'] : ['deleted_at', 'title']
  const shape = { table: name(viewTable), keyColumns: ['video_id'], versionColumn: 'version', columns }
  return () => upsertNewer(shape, JSON.stringify(records))
}
