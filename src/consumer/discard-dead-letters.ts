/**
 * Gives dead letters up for good: their effect never happens, and what waited for them goes on in order.
 *
 * The event is remembered in the inbox, so that a late delivery of it has no effect either. Its aggregate moves over it, or an
 * empty message takes its place in line, so that no version is missing. Every discard is in the audit log, in the same transaction.
 * A letter that was redriven and is not applied yet is taken back by it; one that is being applied is left alone.
 */
import type { Chosen } from '../core/chosen.ts'
import { newId } from '../core/id.ts'
import { execute, one, rows, type Database } from '../postgres/database.ts'
import { insertAudit } from '../postgres/migrate.sql.ts'
import { transaction } from '../postgres/transaction.ts'
import { chosenLetters, toDeadLetter, type DeadLetter, type DeadLetterFilter, type DeadLetterStore } from './dead-letters.ts'
import { discardable, leaveVoids, lockAggregates, moveLetters, rememberDiscarded, selectLetters } from './dead-letters.sql.ts'
import { inboxTables } from './inbox.sql.ts'

export interface DiscardAction extends DeadLetterStore<Database> {
  /** Which of the letters that are dead or being redriven; `{ all: true }` for all of them. */
  readonly filter: Chosen<DeadLetterFilter>
  /** Who does it, for the audit log. */
  readonly actor: string
  readonly reason?: string | undefined
}

/** Aggregates stay locked for one batch at a time. */
const batchSize = 200

const longestList = 1_000

/** What a discard would take, up to a thousand; nothing is changed. */
export async function planDiscard(action: DeadLetterStore & Pick<DiscardAction, 'filter'>): Promise<readonly DeadLetter[]> {
  const page = { states: discardable, after: '0', limit: longestList }
  return (await rows(action.db, selectLetters(inboxTables(action.schema), chosenLetters(action.filter), page))).map(toDeadLetter)
}

/** Discards what fits; returns the numbers of the letters. */
export async function discardDeadLetters(action: DiscardAction): Promise<readonly string[]> {
  const { db, schema, actor, reason = '' } = action
  const filter = chosenLetters(action.filter)
  const tables = inboxTables(schema)
  const discarded: string[] = []
  let after = '0'
  for (;;) {
    const found = await rows(db, selectLetters(tables, filter, { states: discardable, after, limit: batchSize }))
    const last = found.at(-1)
    if (last === undefined) return discarded
    after = last.id
    const ids = await transaction(db, async (tx) => {
      const moved = await rows(
        tx,
        moveLetters(
          tables,
          found.map(({ id }) => id),
          { state: 'discarded', actor, reason },
        ),
      )
      const done = moved.map(({ id }) => id)
      await execute(tx, rememberDiscarded(tables, done))
      await rows(tx, lockAggregates(tables, done))
      await execute(
        tx,
        leaveVoids(
          tables,
          done.map((letterId) => ({ letterId, eventId: newId() })),
        ),
      )
      await one(tx, insertAudit(schema, { actor, action: 'dlq.discard', details: { reason, filter, letters: done } }))
      return done
    })
    discarded.push(...ids)
  }
}
