/**
 * What became of a transaction whose COMMIT was never answered: asked of the database by the transaction's id.
 *
 * The server may still be committing when we ask, so "in progress" is asked again, for a bounded time. If the database
 * cannot be reached, does not answer, or has forgotten or never knew the id (a failover can do that), the answer is "unknown".
 *
 * A server that crashes forgets ids of transactions that had not committed, and gives them out again; a standby that is promoted
 * gives out those it never heard of. Then "committed" may be said of another's transaction. So that word counts only from the
 * very server that gave out the id, not restarted since, and only if it has not crashed since the transaction began.
 *
 * A COMMIT whose wait for a synchronous standby was cut off is visible all the same, and gone if the server dies before the standby has
 * it. So what is found is believed only behind a commit of our own, which waits for the same standby: it has the older one then, too.
 */
import type { Clock } from '../../core/service/clock.ts'
import { one, type Interruptible, type Queryable } from '../query/database.ts'
import { part, sql, type Part, type Statement } from '../query/sql.ts'
import { serverStart, type TransactionId } from './tx-scope.ts'
import { withDeadlines } from './deadline.ts'

const lookForMs = 10_000
/** After so long the next question is asked, on another connection: that of this one may be dead. */
export const answerMs = 3_000
const askAgainMs = 50
/** By how much our clock and the server's may drift apart during a transaction. */
const clockMarginMs = 1_000

/** Asks until the transaction has ended one way or the other. */
export async function commitOutcome(
  db: Interruptible,
  id: TransactionId,
  { clock, beganAtMs }: { readonly clock: Clock; /** By the monotonic clock, and not after BEGIN. */ readonly beganAtMs: number },
): Promise<'committed' | 'rolled-back' | 'unknown'> {
  const deadline = clock.monotonicMs() + lookForMs
  const heard = withDeadlines(db, { statementMs: answerMs, clock })
  // Twice at least: to a process that stood still, an answer that is there comes late.
  for (let asked = 0; asked < 2 || clock.monotonicMs() < deadline; asked += 1) {
    const { status, steady_ms: steadyMs } = await ask(heard, id)
    if (status === 'aborted') return 'rolled-back'
    if (status === null) return 'unknown'
    // Measured after the answer, and so not before the server looked.
    if (status === 'committed' && Number(steadyMs) <= clock.monotonicMs() - beganAtMs + clockMarginMs) return 'unknown'
    if (status === 'committed') return (await isReplicated(db, clock)) ? 'committed' : 'unknown'
    await clock.sleep(askAgainMs)
  }
  return 'unknown'
}

/** Whether the synchronous standbys have all that was visible when this was asked; without such standbys it costs no commit. */
async function isReplicated(db: Interruptible, clock: Clock): Promise<boolean> {
  return await withDeadlines(db, { statementMs: lookForMs, clock })
    .query(sql`select ${standbyBarrier} as barrier`.text)
    .then(
      () => true,
      () => false,
    )
}

/**
 * Leaves a trace in the log where the server has synchronous standbys, so that the transaction of this statement, which changed nothing,
 * waits for them when it commits: as those that it saw should have. A session's `local` or `remote_write` holds for both.
 */
export const standbyBarrier: Part = part`
  case when current_setting('synchronous_standby_names') <> '' then pg_logical_emit_message(true, 'waybill',
    case current_setting('synchronous_commit') when 'off' then set_config('synchronous_commit', 'on', true) else '' end)::text end`

async function ask(db: Queryable, id: TransactionId): Promise<StatusRow> {
  try {
    return await one(db, transactionStatus(id))
  } catch {
    return { status: 'in progress', steady_ms: null }
  }
}

interface StatusRow {
  /** Null if nobody knows any more. */
  readonly status: string | null
  /** For how long the server has not crashed; null if it is another than the one that gave out the id. */
  readonly steady_ms: string | null
}

/**
 * A server that recovers from the crash of one of its processes keeps its start time, but its statistics begin anew. A promotion
 * leaves them as they are. Index: none; the server keeps it.
 */
export function transactionStatus({ xid, server }: TransactionId): Statement<StatusRow> {
  return sql`
    select pg_xact_status(${xid}::text::xid8) as status,
           case when ${serverStart} = ${server ?? null}::text
                then (extract(epoch from clock_timestamp() - pg_stat_get_bgwriter_stat_reset_time()) * 1000)::bigint::text
           end as steady_ms`
}
