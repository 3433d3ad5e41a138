/**
 * The consumer's statements on inbox and positions: the first one of every batch, and where aggregates are after it.
 */
import { claim, claimRows, claimStored, markConflicts, unrecord } from '../../../src/consumer/tables/claim.sql.ts'
import { forgetSeen, recordSeen } from '../../../src/consumer/tables/dead-letter.sql.ts'
import { selectMemory } from '../../../src/consumer/tables/retention.sql.ts'
import { movePositions, readConsumer, registerConsumer, type Scope } from '../../../src/consumer/tables/inbox.sql.ts'
import type { SqlValue } from '../../../src/postgres/query/sql.ts'
import type { FakeStore } from './fake-store.ts'
import type { Attempt, InboxStore, Position } from './inbox-tables.ts'
import { booleans, knownNumbers, numbers, texts } from './sql-text.ts'
import type { StatementContext } from './statement-context.ts'

export function defineInbox(store: FakeStore, scope: Scope, data: InboxStore): void {
  const mine = { consumer: scope.consumer, generation: scope.generation }
  const isMine = (row: { readonly consumer: string; readonly generation: number }): boolean =>
    row.consumer === mine.consumer && row.generation === mine.generation

  store.define('registerConsumer', registerConsumer(scope), async (context, [name]) => {
    await context.insert(data.consumer, { name: String(name) }, (row) => row)
    return [{ generation: scope.generation, paused: false }]
  })
  store.define('selectMemory', selectMemory(scope.tables, scope.consumer), () => Promise.resolve([{ forgotten_before_ms: null }]))
  store.define('readConsumer', readConsumer(scope), () => Promise.resolve([{ generation: scope.generation, paused: false }]))

  store.define('claim', claim(scope, [], 1), async (context, values) => {
    const [ids] = values
    const targets = values.slice(recordedValues)
    const fresh = await record(context, data, { ...mine, ids: texts(ids) })
    const moved: object[] = []
    const maxJump = Number(targets[runValues + 2])
    for (const target of runsOf(targets)) {
      const row = await move(context, data, { ...mine, ...target, maxJump })
      const isAhead = row.version > target.version
      if (isLookedAt(row) || isAhead || row.jumpedFrom !== null) moved.push(aggregateRow(row, isLookedAt(row) || isAhead))
    }
    await forgetAttempts(context, data, { isMine, ids: texts(ids) })
    return [
      ...texts(ids)
        .filter((id) => !fresh.has(id))
        .map(duplicateRow),
      ...moved,
    ]
  })

  store.define('claimRows', claimRows(scope, [], 1), async (context, values) => {
    const [ids] = values
    const targets = values.slice(recordedValues + 2)
    const fresh = await record(context, data, { ...mine, ids: texts(ids) })
    const moved: object[] = []
    const maxJump = Number(targets[runValues])
    for (const target of runsOf(targets)) {
      const row = await move(context, data, { ...mine, ...target, maxJump })
      if (isLookedAt(row) || row.jumpedFrom !== null) moved.push(aggregateRow(row, isLookedAt(row)))
    }
    await forgetAttempts(context, data, { isMine, ids: texts(ids) })
    return [
      ...texts(ids)
        .filter((id) => !fresh.has(id))
        .map(duplicateRow),
      ...moved,
    ]
  })

  store.define('claimStored', claimStored(scope, []), async (context, [ids]) => {
    const fresh = await record(context, data, { ...mine, ids: texts(ids) })
    await forgetAttempts(context, data, { isMine, ids: texts(ids) })
    return texts(ids).map((id) => ({ id, is_new: fresh.has(id), has_letter: false }))
  })

  store.define('recordSeen', recordSeen(scope, { eventId: '', source: '' }), async (context, [, , id]) => {
    const fresh = await record(context, data, { ...mine, ids: [String(id)] })
    return [...fresh].map((each) => ({ id: each }))
  })

  const remove = async (context: StatementContext, ids: readonly string[]): Promise<[]> => {
    const gone = new Set(ids)
    await context.remove(
      data.inbox,
      context.see(data.inbox, (row) => isMine(row) && gone.has(row.eventId)),
      () => true,
    )
    return []
  }
  store.define('unrecord', unrecord(scope, []), (context, [, , ids]) => remove(context, texts(ids)))
  // No two contents have one id here, so a repeat marks nothing.
  store.define('markConflicts', markConflicts(scope, []), () => Promise.resolve([]))
  store.define('forgetSeen', forgetSeen(scope, ''), (context, [, , id]) => remove(context, [String(id)]))

  store.define(
    'movePositions',
    movePositions(scope, []),
    async (context, [types, aggregates, versions, releases, begins, ends]) => {
      const [released, from, to] = [booleans(releases), knownNumbers(begins), knownNumbers(ends)]
      for (const [i, target] of targetsOf(types, aggregates, versions).entries()) {
        const isAt = (row: Position): boolean => isMine(row) && row.type === target.type && row.id === target.id
        const set = (row: Position): Position => ({
          ...row,
          version: later(data, row.version, target.version),
          heldBy: released[i] === true ? null : row.heldBy,
          takenFrom: from[i] ?? row.takenFrom,
          takenTo: to[i] ?? row.takenTo,
        })
        await context.updateAll(data.position, context.see(data.position, isAt), { set, still: isAt })
      }
      return []
    },
  )
}

interface Target {
  readonly type: string
  readonly id: string
  readonly version: number
}

function targetsOf(types: SqlValue | undefined, ids: SqlValue | undefined, versions: SqlValue | undefined): Target[] {
  const [idList, versionList] = [texts(ids), numbers(versions)]
  return texts(types).map((type, i) => ({ type, id: idList[i] ?? '', version: versionList[i] ?? 0 }))
}

/** The rows that a batch offers for its aggregates. */
interface Run extends Target {
  readonly takenFrom: number | null
  readonly takenTo: number | null
  readonly overlapped: number | null
  readonly jumpedFrom: number | null
}

/** What the rows of a batch are bound by. */
const runValues = 6

function runsOf([types, ids, versions, begins, overlaps, jumps]: readonly (SqlValue | undefined)[]): Run[] {
  const [from, overlapped, jumpedFrom] = [knownNumbers(begins), knownNumbers(overlaps), knownNumbers(jumps)]
  return targetsOf(types, ids, versions).map((target, i) => ({
    ...target,
    takenFrom: from[i] ?? null,
    takenTo: target.version === 0 ? null : target.version,
    overlapped: overlapped[i] ?? null,
    jumpedFrom: jumpedFrom[i] ?? null,
  }))
}

/** Records the events that are new; one whose first delivery is under way waits for its end. */
async function record(
  context: StatementContext,
  data: InboxStore,
  { ids, ...mine }: { readonly consumer: string; readonly generation: number; readonly ids: readonly string[] },
): Promise<Set<string>> {
  const fresh = new Set<string>()
  const known = new Set(context.rows(data.inbox, (row) => row.consumer === mine.consumer).map((row) => row.eventId))
  for (const eventId of ids.toSorted()) {
    // Without the unique key, what was there when the statement began is all that can be asked.
    if (data.broken.has('a duplicate waits for the first') && known.has(eventId)) continue
    if ((await context.insert(data.inbox, { ...mine, eventId }, 'nothing')) !== undefined) fresh.add(eventId)
  }
  return fresh
}

/** What recording events binds before anything else. */
const recordedValues = 15

/** Attempts go with what is recorded. No letter is made here. */
async function forgetAttempts(
  context: StatementContext,
  data: InboxStore,
  { isMine, ids }: { readonly isMine: (row: Attempt) => boolean; readonly ids: readonly string[] },
): Promise<void> {
  const isIt = (row: Attempt): boolean => isMine(row) && ids.includes(row.eventId)
  const found = context.see(data.attempt, isIt).toSorted((a, b) => (a.row.eventId < b.row.eventId ? -1 : 1))
  await context.remove(data.attempt, found, isIt)
}

/** Moves an aggregate's position forward, unless it is held or waited for; returns the row as it is after it was locked. */
async function move(
  context: StatementContext,
  data: InboxStore,
  { maxJump, ...to }: Run & { readonly consumer: string; readonly generation: number; readonly maxJump: number },
): Promise<Position> {
  const moved = await context.insert(data.position, { ...to, waiting: 0, heldBy: null }, (row) => {
    const isFree = row.heldBy === null && row.waiting === 0
    const { takenTo } = row
    const isTaken = (version: number | null): boolean => version !== null && takenTo !== null && version <= takenTo
    const grows = isFree && to.version > row.version && !isTaken(to.overlapped)
    const follows = takenTo === row.version && to.takenFrom !== null && to.takenFrom <= row.version + 1
    const overlaps = isTaken(to.overlapped ?? to.takenFrom) && row.takenFrom !== null && to.version >= row.takenFrom
    return {
      ...row,
      version: isFree ? later(data, row.version, to.version) : row.version,
      takenFrom: !grows || follows ? row.takenFrom : Math.max(to.takenFrom ?? 0, row.version + 1),
      takenTo: grows ? to.version : takenTo,
      overlapped: to.version === 0 ? (takenTo ?? 0) : overlaps ? takenTo : null,
      jumpedFrom: row.version > 0 && to.version - row.version > maxJump ? row.version : null,
    }
  })
  return moved as Position
}

function later(data: InboxStore, now: number, next: number): number {
  return data.broken.has('a position never goes back') ? next : Math.max(now, next)
}

function duplicateRow(id: string): object {
  const nothing = { version: null, waiting: null, held_by: null, taken_from: null, taken_to: null, jumped_from: null }
  return { id, letter_of: null, aggregate_type: null, aggregate_id: null, ...nothing }
}

function isLookedAt({ waiting, heldBy, overlapped }: Position): boolean {
  return waiting > 0 || heldBy !== null || overlapped !== null
}

/** Without a second look the version is left out. */
function aggregateRow(
  { type, id, version, waiting, heldBy, takenFrom, takenTo, overlapped, jumpedFrom }: Position,
  hasVersion: boolean,
): object {
  const to = overlapped ?? takenTo
  const taken = { taken_from: takenFrom === null ? null : String(takenFrom), taken_to: to === null ? null : String(to) }
  return {
    id: null,
    letter_of: null,
    aggregate_type: type,
    aggregate_id: id,
    version: hasVersion ? String(version) : null,
    waiting,
    held_by: heldBy,
    ...taken,
    jumped_from: jumpedFrom === null ? null : String(jumpedFrom),
  }
}
