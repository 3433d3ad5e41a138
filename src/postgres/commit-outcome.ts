/**
 * What became of a transaction whose COMMIT was never answered: asked of the database by the transaction's id.
 *
 * The server may still be committing when we ask, so "in progress" is asked again, for a bounded time. If the database
 * cannot be reached, or has forgotten or never knew the id (a failover can do that), the answer is "unknown".
 */
import type { Clock } from '../core/clock.ts'
import { first, type Queryable } from './database.ts'
import { sql, type Statement } from './sql.ts'

const lookForMs = 10_000
const askAgainMs = 50

/** Asks until the transaction has ended one way or the other. */
export async function commitOutcome(db: Queryable, xid: string, clock: Clock): Promise<'committed' | 'rolled-back' | 'unknown'> {
  const deadline = clock.monotonicMs() + lookForMs
  while (clock.monotonicMs() < deadline) {
    const status = await askStatus(db, xid)
    if (status === 'committed') return 'committed'
    if (status === 'aborted') return 'rolled-back'
    if (status === null) return 'unknown'
    await clock.sleep(askAgainMs)
  }
  return 'unknown'
}

/** `undefined` means that the database could not be asked, or that the transaction is still under way. */
async function askStatus(db: Queryable, xid: string): Promise<string | null | undefined> {
  try {
    const row = await first(db, transactionStatus(xid))
    return row?.status === 'in progress' ? undefined : (row?.status ?? null)
  } catch {
    return undefined
  }
}

/** Index: none; the server keeps it. */
export function transactionStatus(xid: string): Statement<{ status: string | null }> {
  return sql`select pg_xact_status(${xid}::text::xid8) as status`
}
