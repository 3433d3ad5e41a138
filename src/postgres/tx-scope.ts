/**
 * What every adapter's transaction shares: it is marked as one while it lasts, and it refuses statements afterwards.
 *
 * A statement that a closure forgot to await would otherwise run on a connection that already serves somebody else. The adapters
 * hang the driver's own transaction object, `native`, behind the same gate.
 */
import { WaybillError } from '../core/errors.ts'
import { serverStart, type TransactionId } from './commit-outcome.ts'
import { markTx, one, type BeginOptions, type Queryable, type Tx } from './database.ts'
import { currentTransaction, endedTransaction, openGate, type Gate } from './gate.ts'
import { isAbortedTransaction, isConnectionLoss, isReadOnly, isSystemFailure, sqlState } from './sql-state.ts'
import { part, sql, type Part, type Statement } from './sql.ts'

/** Wraps a connection that is inside a transaction. Once the gate is shut, the transaction refuses statements. */
export function openTx<Native>(connection: Queryable, native: Native, gate: Gate = openGate()): Tx<Native> {
  return markTx({
    native,
    query: (text, values) => (gate.state === 'open' ? connection.query(text, values) : Promise.reject(endedTransaction())),
  } satisfies Queryable & { readonly native: Native })
}

/** What `synchronous_commit` becomes: `on` means at least that, so a session that waits for its standbys to apply goes on doing so. */
export function durability(asked: BeginOptions['synchronousCommit']): Part {
  if (asked === 'off') return part`'off'`
  return part`case current_setting('synchronous_commit') when 'remote_apply' then 'remote_apply' else 'on' end`
}

/** Sets the time-outs of this transaction only, and returns its id, by which an unanswered COMMIT can be looked up. */
export function setUpTransaction(options: BeginOptions): Statement<{ xid: string; server: string }> {
  const { statementTimeoutMs, lockTimeoutMs, idleInTransactionTimeoutMs, synchronousCommit } = options
  return sql`
    select set_config('statement_timeout', ${String(statementTimeoutMs)}::text, true),
           set_config('lock_timeout', ${String(lockTimeoutMs)}::text, true),
           set_config('idle_in_transaction_session_timeout', ${String(idleInTransactionTimeoutMs)}::text, true),
           set_config('synchronous_commit', ${durability(synchronousCommit)}, true),
           pg_current_xact_id()::text as xid, ${serverStart} as server`
}

/** The connection broke while COMMIT was under way: it may have taken effect. */
export function commitUnknown(id: TransactionId | undefined, cause: unknown): WaybillError {
  return new WaybillError(
    'COMMIT_UNKNOWN',
    'The connection broke during COMMIT, so it is not known whether the transaction took effect. Look before you try again.',
    {
      cause,
      details: { xid: id?.xid, server: id?.server },
    },
  )
}

/** The database rolled back, although the closure returned as if all was well. */
export function transactionAborted(cause?: unknown): WaybillError {
  return new WaybillError(
    'TRANSACTION_ABORTED',
    'A statement in this transaction failed and the error was swallowed, so the database rolled everything back. Let the error reach transaction(), or use a savepoint.',
    { cause },
  )
}

/** The closure sent COMMIT or ROLLBACK by itself, so there is nothing left to vouch for. */
export function endedByItself(): WaybillError {
  return new WaybillError(
    'NOT_A_TRANSACTION',
    'The closure ended the transaction itself, so its effects are not known here. Leave COMMIT and ROLLBACK to transaction(): return to commit, throw to roll back.',
  )
}

/** Asks the server whether the transaction of this id is still under way, and may be committed. */
export async function assertUnderWay(connection: Queryable, xid: string): Promise<void> {
  let now: { xid: string | null }
  try {
    now = await one(connection, currentTransaction())
  } catch (error) {
    throw isAbortedTransaction(error) ? transactionAborted(error) : error
  }
  if (now.xid !== xid) throw endedByItself()
}

/** Awaits the first statement of a transaction. It asks for an id, which a replica has none to give. */
export async function beginning<Result>(first: Promise<Result>): Promise<Result> {
  try {
    return await first
  } catch (error) {
    if (!isReadOnly(error)) throw error
    throw new WaybillError(
      'UNAVAILABLE',
      'This server takes no writes: it is a replica, perhaps since a failover, and the address still leads to it. Nothing was changed; try again.',
      { cause: error },
    )
  }
}

/** What an error of the COMMIT statement itself means. Only an answer of the server says that it did not take effect. */
export function commitFailure(error: unknown, id: TransactionId | undefined): unknown {
  const state = sqlState(error)
  if (state === '25P02') return transactionAborted(error)
  return state === undefined || isConnectionLoss(error) || isSystemFailure(state) ? commitUnknown(id, error) : error
}
