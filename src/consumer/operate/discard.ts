/**
 * Gives dead letters up for good: their effect never happens, and what waited for them goes on in order.
 *
 * The event is remembered in the inbox, so that a late delivery of it has no effect either. Its aggregate moves over it, or an
 * empty message takes its place in line, so that no version is missing. Every discard is in the audit log, in the same transaction.
 * A letter that was redriven and is not applied yet is taken back by it; one that is being applied is left alone. One whose event
 * has taken effect meanwhile cannot be discarded any more: it is closed as redriven.
 */
import type { Chosen } from '../../core/options.ts'
import { newId } from '../../core/event/id.ts'
import { execute, one, rows, type Database, type Tx } from '../../postgres/query/database.ts'
import { insertAudit } from '../../postgres/schema/migrate.sql.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { appliedMeanwhile } from '../tables/dead-letter.sql.ts'
import { chosenLetters, toDeadLetter, type DeadLetter, type DeadLetterFilter, type DeadLetterStore } from './dead-letters.ts'
import {
  discardable,
  leaveVoids,
  lockAggregates,
  lockDiscardable,
  moveLetters,
  releaseHolds,
  rememberDiscarded,
  selectLetters,
} from '../tables/operate.sql.ts'
import { inboxTables, type InboxTables } from '../tables/inbox.sql.ts'

export interface DiscardAction extends DeadLetterStore<Database> {
  /** Which of the letters that are dead or being redriven; `{ all: true }` for all of them. */
  readonly filter: Chosen<DeadLetterFilter>
  /** Who does it, for the audit log. */
  readonly actor: string
  readonly reason?: string | undefined
}

export interface PlannedDiscard extends DeadLetter {
  /** Its event has taken effect: the letter would be closed as redriven. */
  readonly applied: boolean
}

export interface DiscardOutcome {
  /** The numbers of the letters that were discarded. */
  readonly discarded: readonly string[]
  /** Those whose event had taken effect, and which were closed as redriven. */
  readonly applied: readonly string[]
}

/** Aggregates stay locked for one batch at a time. */
const batchSize = 200

const longestList = 1_000

/** What a discard would take, up to a thousand; nothing is changed. */
export async function planDiscard(action: DeadLetterStore & Pick<DiscardAction, 'filter'>): Promise<readonly PlannedDiscard[]> {
  const page = { states: discardable, after: '0', limit: longestList }
  const found = await rows(action.db, selectLetters(inboxTables(action.schema), chosenLetters(action.filter), page))
  return found.map((row) => ({ ...toDeadLetter(row), applied: row.applied }))
}

/** Discards what fits and has not taken effect. */
export async function discardDeadLetters(action: DiscardAction): Promise<DiscardOutcome> {
  const { db, schema } = action
  const filter = chosenLetters(action.filter)
  const tables = inboxTables(schema)
  const all = { discarded: [] as string[], applied: [] as string[] }
  let after = '0'
  for (;;) {
    const found = await rows(db, selectLetters(tables, filter, { states: discardable, after, limit: batchSize }))
    const last = found.at(-1)
    if (last === undefined) return all
    after = last.id
    const ids = found.map(({ id }) => id)
    const { discarded, applied } = await transaction(db, (tx) => discardBatch(tx, { ...action, filter, tables, ids }))
    all.discarded.push(...discarded)
    all.applied.push(...applied)
  }
}

interface DiscardBatch extends Pick<DiscardAction, 'schema' | 'actor' | 'reason'> {
  readonly filter: DeadLetterFilter
  readonly tables: InboxTables
  readonly ids: readonly string[]
}

async function discardBatch(tx: Tx, { tables, schema, actor, reason = '', ...batch }: DiscardBatch): Promise<DiscardOutcome> {
  const locked = (await rows(tx, lockDiscardable(tables, batch.ids))).map(({ id }) => id)
  const discarded = (await rows(tx, rememberDiscarded(tables, locked))).map(({ id }) => id)
  const applied = locked.filter((id) => !discarded.includes(id))
  await rows(tx, moveLetters(tables, discarded, { state: 'discarded', actor, reason }))
  await rows(tx, moveLetters(tables, applied, { state: 'redriven', actor, reason: appliedMeanwhile }))
  await rows(tx, lockAggregates(tables, locked))
  await execute(
    tx,
    leaveVoids(
      tables,
      discarded.map((letterId) => ({ letterId, eventId: newId() })),
    ),
  )
  if (applied.length > 0) await execute(tx, releaseHolds(tables, applied))
  const details = { reason, filter: batch.filter, letters: discarded, ...(applied.length > 0 && { applied }) }
  await one(tx, insertAudit(schema, { actor, action: 'dlq.discard', details }))
  return { discarded, applied }
}
