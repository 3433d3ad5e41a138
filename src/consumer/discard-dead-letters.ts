/**
 * Gives dead letters up for good: their effect never happens, and what waited for them goes on in order.
 *
 * The event is remembered in the inbox, so that a late delivery of it has no effect either. An empty message takes its place
 * in the line of its aggregate, so that no version is missing. Every discard is in the audit log, in the same transaction.
 */
import { newId } from '../core/id.ts'
import { execute, one, rows, type Database } from '../postgres/database.ts'
import { insertAudit } from '../postgres/migrate.sql.ts'
import { transaction } from '../postgres/transaction.ts'
import { checkedFilter, type DeadLetterFilter, type DeadLetterStore } from './dead-letters.ts'
import { leaveVoids, moveLetters, rememberDiscarded, selectLetters } from './dead-letters.sql.ts'
import { inboxTables } from './inbox.sql.ts'

export interface DiscardAction extends DeadLetterStore<Database> {
  /** Which of the dead letters. Empty means all of them. */
  readonly filter: DeadLetterFilter
  /** Who does it, for the audit log. */
  readonly actor: string
  readonly reason?: string | undefined
}

/** Aggregates stay locked for one batch at a time. */
const batchSize = 200

/** Discards what fits; returns the numbers of the letters. */
export async function discardDeadLetters(action: DiscardAction): Promise<readonly string[]> {
  const { db, schema, actor, reason = '' } = action
  const filter = checkedFilter(action.filter)
  const tables = inboxTables(schema)
  const discarded: string[] = []
  let after = '0'
  for (;;) {
    const found = await rows(db, selectLetters(tables, filter, { state: 'dead', after, limit: batchSize }))
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
