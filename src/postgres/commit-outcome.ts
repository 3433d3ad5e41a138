/**
 * What became of a transaction whose COMMIT was never answered: asked of the database by the transaction's id.
 *
 * The server may still be committing when we ask, so "in progress" is asked again, for a bounded time. If the database
 * cannot be reached, or has forgotten or never knew the id (a failover can do that), the answer is "unknown".
 *
 * A server that crashes forgets ids of transactions that had not committed, and gives them out again: after a crash "committed"
 * may be said of another's transaction. So that word counts only if the server has not crashed since this one began.
 */
import type { Clock } from '../core/clock.ts'
import { first, type Queryable } from './database.ts'
import { sql, type Statement } from './sql.ts'

const lookForMs = 10_000
const askAgainMs = 50
/** By how much our clock and the server's may drift apart during a transaction. */
const clockMarginMs = 1_000

/** Asks until the transaction has ended one way or the other. */
export async function commitOutcome(
  db: Queryable,
  xid: string,
  { clock, beganAtMs }: { readonly clock: Clock; /** By the monotonic clock, and not after BEGIN. */ readonly beganAtMs: number },
): Promise<'committed' | 'rolled-back' | 'unknown'> {
  const deadline = clock.monotonicMs() + lookForMs
  while (clock.monotonicMs() < deadline) {
    const status = await askStatus(db, xid, clock.monotonicMs() - beganAtMs + clockMarginMs)
    if (status === 'committed') return 'committed'
    if (status === 'aborted') return 'rolled-back'
    if (status === null) return 'unknown'
    await clock.sleep(askAgainMs)
  }
  return 'unknown'
}

/** `undefined` means that the database could not be asked, or that the transaction is still under way. */
async function askStatus(db: Queryable, xid: string, beganMsAgo: number): Promise<string | null | undefined> {
  try {
    const row = await first(db, transactionStatus(xid, beganMsAgo))
    return row?.status === 'in progress' ? undefined : (row?.status ?? null)
  } catch {
    return undefined
  }
}

/**
 * Null if nobody knows any more, or "committed" may mean another's. Statistics begin anew when a server recovers from a crash, and
 * on one that was promoted, and not when it is restarted in order. Index: none; the server keeps it.
 */
export function transactionStatus(xid: string, beganMsAgo: number): Statement<{ status: string | null }> {
  return sql`
    with s as (
      select pg_xact_status(${xid}::text::xid8) as status
    )
    select case when s.status <> 'committed' then s.status
                when pg_stat_get_bgwriter_stat_reset_time() < clock_timestamp() - ${beganMsAgo}::float8 * interval '1 millisecond' then s.status
           end as status
      from s`
}
