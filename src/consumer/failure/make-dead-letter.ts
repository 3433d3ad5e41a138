/**
 * Makes a dead letter of a message, unless its effect is committed.
 *
 * The event is recorded in the inbox first, as whoever applies it does: one that is being applied at this moment is waited
 * for, and whoever wants to apply it waits for its letter. Then the record is taken back, so that a redrive applies it. A letter
 * that the event has already is settled, if its effect is committed.
 */
import { execute, first, type Tx } from '../../postgres/query/database.ts'
import { bury, forgetSeen, lockLetter, recordSeen, settleApplied, type Burial } from '../tables/dead-letter.sql.ts'
import type { Scope } from '../tables/inbox.sql.ts'

/** Returns the letter's id, or nothing if there was no need of one. */
export async function makeDeadLetter(tx: Tx, scope: Scope, burial: Burial): Promise<string | undefined> {
  const { eventId, aggregate, message } = burial
  await execute(tx, lockLetter(scope, eventId))
  const fresh = await first(tx, recordSeen(scope, { eventId, source: aggregate?.type ?? message.topic }))
  if (fresh === undefined) {
    await execute(tx, settleApplied(scope, [eventId]))
    return undefined
  }
  const letter = await first(tx, bury(scope, burial))
  await execute(tx, forgetSeen(scope, eventId))
  return letter?.id
}
