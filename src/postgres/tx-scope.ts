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

/** What the first statement tells of a transaction that may write. */
export interface Begun extends TransactionId {
  readonly server: string
  /** What `synchronous_commit` is in it. */
  readonly durability: string
}

/** The id, by which an unanswered COMMIT can be looked up, and how durable the session is. */
export const begunColumns: Part = part`pg_current_xact_id()::text as xid, ${serverStart} as server, current_setting('synchronous_commit') as durability`

/** Sets the time-outs of this transaction only. One that is read only takes no id. */
function setUpTransaction(options: BeginOptions): Statement<Begun> {
  const { statementTimeoutMs, lockTimeoutMs, idleInTransactionTimeoutMs, synchronousCommit, readOnly } = options
  const durability = synchronousCommit === 'off' ? part`set_config('synchronous_commit', 'off', true),` : part``
  return sql`
    select set_config('statement_timeout', ${String(statementTimeoutMs)}::text, true),
           set_config('lock_timeout', ${String(lockTimeoutMs)}::text, true),
           set_config('idle_in_transaction_session_timeout', ${String(idleInTransactionTimeoutMs)}::text, true),
           ${durability} ${readOnly === true ? part`set_config('transaction_read_only', 'on', true)` : begunColumns}`
}

/** Sets up a transaction that has begun. Returns its id, unless it is read only. */
export async function setUp(connection: Queryable, options: BeginOptions): Promise<TransactionId | undefined> {
  const begun = await beginning(one(connection, setUpTransaction(options)))
  if (options.readOnly === true) return undefined
  await keepDurable(begun, options, (text) => connection.query(text))
  return begun
}

/**
 * Raises `off` to `on`, unless `off` was asked for. Every other setting stays: an operator who sets `local`, because the standby is gone,
 * is obeyed, and a session that waits for its standbys to apply goes on doing so.
 */
export async function keepDurable(
  { durability }: Begun,
  { synchronousCommit }: BeginOptions,
  send: (text: string) => Promise<unknown>,
): Promise<void> {
  if (durability === 'off' && synchronousCommit === 'on') await send('set local synchronous_commit = on')
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

/** Asks the server whether the transaction of this id, or the one that is read only, is still under way, and may be committed. */
export async function assertUnderWay(connection: Queryable, id: TransactionId | undefined): Promise<void> {
  let now: { xid: string | null; read_only: string }
  try {
    now = await one(connection, currentTransaction())
  } catch (error) {
    throw isAbortedTransaction(error) ? transactionAborted(error) : error
  }
  if (id === undefined ? now.read_only !== 'on' : now.xid !== id.xid) throw endedByItself()
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

/**
 * What an error of the COMMIT statement itself means. Only an answer of the server says that it did not take effect. One that was read
 * only has no id, and had nothing to take effect.
 */
export function commitFailure(error: unknown, id: TransactionId | undefined): unknown {
  const state = sqlState(error)
  if (state === '25P02') return transactionAborted(error)
  if (id === undefined) return error
  return state === undefined || isConnectionLoss(error) || isSystemFailure(state) ? commitUnknown(id, error) : error
}
