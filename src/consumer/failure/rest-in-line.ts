/**
 * Lets a stored message that failed rest in its line.
 *
 * Whoever lost the lane meanwhile may come here while he who has it now is in a transaction. The lane is locked first, and by a
 * statement of its own: what is done then is decided by what that transaction left, so no line is left without a head.
 */
import { execute, type Database, type Tx } from '../../postgres/query/database.ts'
import { transaction, transactionOptions } from '../../postgres/transaction/transaction.ts'
import type { Scope } from '../tables/inbox.sql.ts'
import { lockLane, restReceived, type StoredPlace } from '../tables/stored.sql.ts'

export async function restInLine(
  db: Database | Tx,
  scope: Scope,
  { place, ...rest }: { readonly place: StoredPlace; readonly delayMs: number; readonly error: string },
): Promise<void> {
  const put = async (tx: Tx): Promise<void> => {
    await execute(tx, lockLane(scope, place.lane))
    await execute(tx, restReceived(scope, place, rest))
  }
  // He who has the lane now may work for longer than others wait for a lock.
  await transaction(db, put, unlimitedLocks)
}

const unlimitedLocks = transactionOptions({ lockTimeoutMs: 0 })
