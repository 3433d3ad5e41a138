/**
 * What became of a transaction whose COMMIT was never answered: asked of the database by the transaction's id.
 *
 * The server may still be committing when we ask, so "in progress" is asked again, for a bounded time. If the database
 * cannot be reached, does not answer, or has forgotten or never knew the id (a failover can do that), the answer is "unknown".
 *
 * A server that crashes forgets ids of transactions that had not committed, and gives them out again; a standby that is promoted
 * gives out those it never heard of. Then "committed" may be said of another's transaction. So that word counts only from the
 * very server that gave out the id, not restarted since, and only if it has not crashed since the transaction began.
 */
import type { Clock } from '../core/clock.ts'
import type { WaybillError } from '../core/errors.ts'
import { first, type Interruptible, type Queryable } from './database.ts'
import { Name, sql, type Statement } from './sql.ts'
import { unlessSilent } from './unless-silent.ts'

/** By what a transaction can be looked up: its id, and the server that gave it out. */
export interface TransactionId {
  readonly xid: string
  /** What `serverStart` was at BEGIN. Without it nobody can vouch for "committed". */
  readonly server: string | undefined
}

/** Microseconds, so that it reads the same in every session. It differs between a primary and its standbys, and after a restart. */
export const serverStart: Name = new Name('(extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint::text')

/** The transaction that a COMMIT_UNKNOWN is about, if its adapter knew. */
export function transactionIdOf({ details }: WaybillError): TransactionId | undefined {
  const { xid, server } = details as { readonly xid?: string; readonly server?: string }
  return xid === undefined ? undefined : { xid, server }
}

const lookForMs = 10_000
/** After so long the next question is asked, on another connection: that of this one may be dead. */
export const answerMs = 3_000
const askAgainMs = 50
/** By how much our clock and the server's may drift apart during a transaction, and by how much a prompt server looks later than we ask. */
const marginMs = 1_000
const promptMs = 500

/** Asks until the transaction has ended one way or the other. */
export async function commitOutcome(
  db: Interruptible,
  id: TransactionId,
  { clock, beganAtMs }: { readonly clock: Clock; /** By the monotonic clock, and not after BEGIN. */ readonly beganAtMs: number },
): Promise<'committed' | 'rolled-back' | 'unknown'> {
  const deadline = clock.monotonicMs() + lookForMs
  for (let leftMs = lookForMs; leftMs > 0; leftMs = deadline - clock.monotonicMs()) {
    const heard = unlessSilent(db, Math.min(leftMs, answerMs), clock)
    const askedAtMs = clock.monotonicMs()
    const status = await askStatus(heard, id, askedAtMs - beganAtMs + marginMs)
    // A server that looked late may have crashed after BEGIN and not know it: it is asked again.
    if (status === 'committed' && clock.monotonicMs() - askedAtMs <= promptMs) return 'committed'
    if (status === 'aborted') return 'rolled-back'
    if (status === null) return 'unknown'
    await clock.sleep(Math.min(askAgainMs, deadline - clock.monotonicMs()))
  }
  return 'unknown'
}

/** `undefined` means that the database could not be asked, or that the transaction is still under way. */
async function askStatus(db: Queryable, id: TransactionId, beganMsAgo: number): Promise<string | null | undefined> {
  try {
    const row = await first(db, transactionStatus(id, beganMsAgo))
    return row?.status === 'in progress' ? undefined : (row?.status ?? null)
  } catch {
    return undefined
  }
}

/**
 * Null if nobody knows any more, or "committed" may mean another's. A server that recovers from the crash of one of its processes
 * keeps its start time, but its statistics begin anew. A promotion leaves them as they are. Index: none; the server keeps it.
 */
export function transactionStatus({ xid, server }: TransactionId, beganMsAgo: number): Statement<{ status: string | null }> {
  return sql`
    with s as (
      select pg_xact_status(${xid}::text::xid8) as status
    )
    select case when s.status <> 'committed' then s.status
                when ${serverStart} = ${server ?? null}::text
                 and pg_stat_get_bgwriter_stat_reset_time() < clock_timestamp() - ${beganMsAgo}::float8 * interval '1 millisecond' then s.status
           end as status
      from s`
}
