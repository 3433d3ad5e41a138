/**
 * Gives dead letters another life, in the consumer that failed and nowhere else.
 *
 *   dead ──redrive──▶ redriving ──the consumer applies it──▶ redriven
 *     ▲                   │ it fails again, or one before it that it was not to overtake
 *     └───────────────────┘
 *
 * The event keeps its id, so an effect that committed meanwhile is recognised. A redrive is an operation: each batch commits
 * together with how far it is, and one that was interrupted goes on from there. A plan says beforehand what would happen.
 * What the inbox no longer remembers, or what was redriven too often, is refused unless the caller insists.
 */
import type { Chosen } from '../../core/options.ts'
import { defaults } from '../../core/defaults.ts'
import { WaybillError } from '../../core/errors.ts'
import { newId } from '../../core/event/id.ts'
import { execute, first, one, rows, type Database, type Tx } from '../../postgres/query/database.ts'
import { lockOperation, saveOperation, startOperation } from '../../postgres/operation.sql.ts'
import { insertAudit } from '../../postgres/schema/migrate.sql.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { chosenLetters, toDeadLetter, type DeadLetter, type DeadLetterFilter, type DeadLetterStore } from './dead-letters.ts'
import { moveLetters, selectLetters, type LetterRow } from '../tables/operate.sql.ts'
import { inboxTables, type InboxTables } from '../tables/inbox.sql.ts'

/**
 * What a redrive would do with a letter.
 *
 *   apply         its effect happens, and what waits behind it follows
 *   duplicate     the inbox has the event: nothing happens, the letter is closed
 *   stale         a newer version was applied: projections ignore it, handlers see it late
 *   out-of-order  an older version of its aggregate is dead and stays so: it is applied before that one, or, if versions are
 *                 taken in turn and that one is missing, stored until it is settled
 *   capped        refused: it was redriven too often
 *   forgotten     refused: it died before the time that the inbox remembers, so nobody can say whether it was applied
 *   superseded    refused: its consumer was rebuilt since, and the rebuild has read the event again
 */
export type RedriveVerdict = 'apply' | 'duplicate' | 'stale' | 'out-of-order' | 'capped' | 'forgotten' | 'superseded'

export interface PlannedRedrive extends DeadLetter {
  readonly verdict: RedriveVerdict
  /** The verdict as a sentence. */
  readonly because: string
}

export interface RedriveLimits {
  /** A letter that was redriven so often is refused. @default 10 */
  readonly maxRedrives?: number | undefined
  /** Also those of which the inbox does not remember whether they were applied. @default false */
  readonly beyondMemory?: boolean | undefined
}

export interface RedriveAction extends DeadLetterStore<Database>, RedriveLimits {
  /** Which of the dead letters; `{ all: true }` for all of them. */
  readonly filter: Chosen<DeadLetterFilter>
  /** Who does it, for the audit log. */
  readonly actor: string
  readonly reason?: string | undefined
}

export interface RedriveOutcome {
  /** The operation that keeps how far it is. */
  readonly operation: string
  readonly redriven: number
  readonly refused: number
  /** The first thousand of those that were left alone. */
  readonly refusals: readonly PlannedRedrive[]
}

const batchSize = 500
const longestList = 1_000
const dead = ['dead'] as const
const refusedVerdicts: readonly RedriveVerdict[] = ['capped', 'forgotten', 'superseded']

/** What a redrive would do, letter by letter; nothing is changed. */
export async function planRedrive(
  action: DeadLetterStore & RedriveLimits & Pick<RedriveAction, 'filter'> & { readonly limit?: number | undefined },
): Promise<readonly PlannedRedrive[]> {
  const { db, schema, limit = longestList } = action
  const page = { states: dead, after: '0', limit }
  const found = await rows(db, selectLetters(inboxTables(schema), chosenLetters(action.filter), page))
  return planAll(found, action)
}

/** Redrives what fits and is not refused. The consumer applies it within its `pollMs`. */
export async function redriveDeadLetters(action: RedriveAction): Promise<RedriveOutcome> {
  const filter = chosenLetters(action.filter)
  const tables = inboxTables(action.schema)
  const operation = newId()
  const { maxRedrives, beyondMemory, actor, reason = '' } = action
  const started = {
    id: operation,
    arguments: { filter, maxRedrives, beyondMemory, actor, reason },
    progress: { redriven: 0, refused: 0 },
  }
  await transaction(action.db, (tx) => execute(tx, startOperation(action.schema, 'dlq.redrive', started)))
  return await goOn({ ...action, filter }, tables, operation)
}

/** Goes on with a redrive that was interrupted; one that is finished is left as it is. */
export async function resumeRedrive(store: DeadLetterStore<Database>, operation: string): Promise<RedriveOutcome> {
  const tables = inboxTables(store.schema)
  const found = await transaction(store.db, (tx) => first(tx, lockOperation(store.schema, 'dlq.redrive', operation)))
  if (found === undefined) throw new WaybillError('NOT_FOUND', `There is no redrive ${operation}.`)
  const given = JSON.parse(found.arguments) as Omit<Redrive, 'db' | 'schema'>
  return await goOn({ ...store, ...given }, tables, operation)
}

/** A redrive as it is kept: an empty filter means all. */
interface Redrive extends Omit<RedriveAction, 'filter'> {
  readonly filter: DeadLetterFilter
}

async function goOn(action: Redrive, tables: InboxTables, operation: string): Promise<RedriveOutcome> {
  const refusals: PlannedRedrive[] = []
  for (;;) {
    const step = await transaction(action.db, (tx) => redriveBatch(tx, action, { tables, operation }))
    refusals.push(...step.refusals.slice(0, longestList - refusals.length))
    if (step.finished) return { operation, redriven: step.redriven, refused: step.refused, refusals }
  }
}

interface Step {
  readonly redriven: number
  readonly refused: number
  readonly refusals: readonly PlannedRedrive[]
  readonly finished: boolean
}

async function redriveBatch(
  tx: Tx,
  action: Redrive,
  { tables, operation }: { readonly tables: InboxTables; readonly operation: string },
): Promise<Step> {
  const { schema, filter, actor, reason = '' } = action
  const running = await one(tx, lockOperation(schema, 'dlq.redrive', operation))
  const before = JSON.parse(running.progress) as { readonly redriven: number; readonly refused: number }
  if (running.state !== 'running') return { ...before, refusals: [], finished: true }
  const after = running.cursor === null ? '0' : (JSON.parse(running.cursor) as { readonly after: string }).after
  const found = await rows(tx, selectLetters(tables, filter, { states: dead, after, limit: batchSize }))
  const planned = planAll(found, action)
  const refusals = planned.filter(({ verdict }) => refusedVerdicts.includes(verdict))
  const ids = planned.filter((each) => !refusals.includes(each)).map(({ id }) => id)
  const moved = await rows(tx, moveLetters(tables, ids, { state: 'redriving', actor, reason }))
  if (moved.length > 0) {
    const details = { operation, reason, filter, letters: moved.map(({ id }) => id) }
    await one(tx, insertAudit(schema, { actor, action: 'dlq.redrive', details }))
  }
  const now = { redriven: before.redriven + moved.length, refused: before.refused + refusals.length }
  const finished = found.length < batchSize
  const cursor = { after: found.at(-1)?.id ?? after }
  const state = finished ? 'finished' : undefined
  await execute(tx, saveOperation(schema, { id: operation }, { cursor, progress: now, state }))
  return { ...now, refusals, finished }
}

function planAll(found: readonly LetterRow[], limits: RedriveLimits): readonly PlannedRedrive[] {
  const selected = new Set(found.map(versionName))
  return found.map((row) => {
    const isLeftBehind = row.earlier_dead !== null && !selected.has(versionName({ ...row, version: row.earlier_dead }))
    return { ...toDeadLetter(row), ...putOff(row, judge(row, limits, isLeftBehind)) }
  })
}

type Judged = Pick<PlannedRedrive, 'verdict' | 'because'>

function judge(
  row: LetterRow,
  { maxRedrives = defaults.deadLetters.maxRedrives, beyondMemory = false }: RedriveLimits,
  isLeftBehind: boolean,
): Judged {
  if (!row.current)
    return { verdict: 'superseded', because: `Consumer ${row.consumer} was rebuilt since; the letter belongs to its past life.` }
  if (row.applied) return { verdict: 'duplicate', because: 'Its effect is committed already; redriving it changes nothing.' }
  if (row.redrives >= maxRedrives)
    return {
      verdict: 'capped',
      because: `It was redriven ${row.redrives} times and failed again each time. Mend the handler, then raise the limit.`,
    }
  if (row.forgotten && !beyondMemory)
    return {
      verdict: 'forgotten',
      because: `It died at ${row.dead_at}, before the time that the inbox of ${row.consumer} remembers: if it was applied since, nobody would notice, and it would be applied twice.`,
    }
  if (isLeftBehind)
    return {
      verdict: 'out-of-order',
      because: `Version ${row.earlier_dead} of its aggregate is dead too and would come after it; a consumer of deltas that is not past that version stores it until then.`,
    }
  if (row.version !== null && row.position !== null && BigInt(row.position) > BigInt(row.version))
    return {
      verdict: 'stale',
      because: `The consumer is at version ${row.position}: projections ignore version ${row.version}, handlers see it late.`,
    }
  if (row.holds) return { verdict: 'apply', because: `It is applied, and ${row.waiting} that wait behind it follow.` }
  const isNext = row.version !== null && BigInt(row.version) <= BigInt(row.position ?? 0) + 1n
  return {
    verdict: 'apply',
    because: isNext ? 'It is applied.' : 'It is applied, a delta when its turn comes: until then it is stored.',
  }
}

function putOff({ paused }: LetterRow, judged: Judged): Judged {
  if (!paused || refusedVerdicts.includes(judged.verdict)) return judged
  return { ...judged, because: `${judged.because} Its aggregate is paused: nothing happens before that is resumed.` }
}

function versionName(row: LetterRow): string {
  return JSON.stringify([row.consumer, row.aggregate_type, row.aggregate_id, row.version])
}
