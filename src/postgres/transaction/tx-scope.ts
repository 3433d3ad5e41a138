/**
 * What every adapter's transaction shares: it is marked as one, stands behind a gate, and can be handed out in scopes.
 */
import type { Clock } from '../../core/service/clock.ts'
import { WaybillError } from '../../core/errors.ts'
import { unlessLate } from '../../core/service/abort.ts'
import { markTx, one, type BeginOptions, type Queryable, type Tx } from '../query/database.ts'
import {
  currentTransaction,
  endScope,
  inScope,
  openGate,
  openScope,
  placeOf,
  refusal,
  track,
  type Gate,
  type Place,
  type ScopeOptions,
} from './gate.ts'
import { isAbortedTransaction, isConnectionLoss, isReadOnly, isSystemFailure, sqlState } from '../query/sql-state.ts'
import { part, sql, type Part, type Statement } from '../query/sql.ts'

/** A transaction whose statements are sent by `query`, and pass the gate there. */
export function openTx<Native>(query: Queryable['query'], native: Native, gate: Gate = openGate()): Tx<Native> {
  const place: Place = { gate, scope: undefined }
  return markTx({ native, query }, place)
}

/** Counts a function of ours as under way on `tx`, from its first line until it has settled. */
export async function within<Result>(tx: Tx, what: string, work: () => Promise<Result>): Promise<Result> {
  const place = placeOf(tx)
  if (place === undefined) return await work()
  const { gate, scope } = place
  return await (scope === undefined ? track(gate, what, work) : inScope(scope, () => track(gate, what, work)))
}

/**
 * Runs work as a scope of the transaction: it gets a `Tx` that ends with it, and fails if it leaves anything under way. The native
 * object is the same for all scopes, and knows by the asynchronous context who uses it.
 */
export async function runScope<Native, Result>(
  tx: Tx<Native>,
  options: ScopeOptions,
  work: (tx: Tx<Native>) => Promise<Result>,
): Promise<Result> {
  const place = placeOf(tx)
  if (place === undefined) return await work(tx)
  const { gate, base = tx } = place
  const scope = openScope(gate, options)
  const query: Tx['query'] = (text, values) => inScope(scope, () => base.query(text, values))
  const inside: Place = { gate, scope, base }
  const view = markTx({ native: tx.native, query }, inside)
  try {
    const result = await inScope(scope, () => work(view))
    endScope(scope)
    return result
  } catch (error) {
    scope.state = 'failed'
    throw error
  }
}

/** For what of ours is refused without a statement because its scope has ended: the same follows from it as from a statement. */
export function reportLate(tx: Tx, what: string): void {
  const place = placeOf(tx)
  if (place?.scope !== undefined) inScope(place.scope, () => refusal(place.gate, what))
}

/** By what a transaction can be looked up: its id, and the server that gave it out. */
export interface TransactionId {
  readonly xid: string
  /** What `serverStart` was at BEGIN. Without it nobody can vouch for "committed". */
  readonly server: string | undefined
}

/** Microseconds, so that it reads the same in every session. It differs between a primary and its standbys, and after a restart. */
export const serverStart: Part = part`(extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint::text`

/** The transaction that a COMMIT_UNKNOWN is about, if its adapter knew. */
export function transactionIdOf({ details }: WaybillError): TransactionId | undefined {
  const { xid, server } = details as { readonly xid?: string; readonly server?: string }
  return xid === undefined ? undefined : { xid, server }
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

/** How long each statement of the transaction may take from here on. */
export function limitStatements(ms: number): Statement {
  return sql`select set_config('statement_timeout', ${String(ms)}::text, true)`
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

/** Of statements that may take any time. */
const longestStatementMs = 60_000
/** How long after the last statement must have ended an answer may still be on its way. */
const answerMs = 2_000

/** How long the end of a transaction may take: what was sent before it is answered first, unless it was interrupted. */
export function longestEndMs({ statementTimeoutMs }: BeginOptions, { endMs }: Gate): number {
  return endMs ?? (statementTimeoutMs || longestStatementMs) + answerMs
}

/** How long the request to end a statement is waited for: it needs a connection of its own. */
const interruptMs = 1_000

/**
 * Ends what a transaction has under way, because nobody waits for it any more; its closure must fail after this. The server is asked from
 * another connection, and asked before the ROLLBACK is sent, so it can never end what the next one sends on that connection. Where
 * no connection is to be had for the request, the ROLLBACK is not waited for either, and the connection is closed: then there is one.
 */
export async function interrupt(db: Queryable, tx: Tx, clock: Clock): Promise<void> {
  const gate = placeOf(tx)?.gate
  if (gate?.id === undefined || gate.underWay.size === 0) return
  const { text, values } = cancelTransaction(gate.id)
  const asked = db.query(text, values).then(
    () => true,
    () => undefined,
  )
  gate.endMs = (await unlessLate(asked, interruptMs, clock)) === true ? answerMs : 0
}

/** Only while the transaction is under way: its connection may serve another one by now. */
function cancelTransaction({ xid }: Pick<TransactionId, 'xid'>): Statement {
  return sql`select pg_cancel_backend(a.pid) from pg_stat_activity a where a.backend_xid = ${xid}::text::xid8::xid and a.pid <> pg_backend_pid()`
}
