/**
 * The shapes we need of a database, whatever driver or ORM stands behind them.
 *
 * A `Tx` is a transaction under way. Only the adapters make one, after they saw that it is one: a pool passed where a
 * `Tx` is needed does not compile, and throws at run time. Otherwise an event could commit without its state change.
 */
import { WaybillError } from '../../core/errors.ts'
import type { SignalBus } from '../../core/signals.ts'
import type { SqlValue, Statement } from './sql.ts'

export interface QueryResult {
  readonly rows: readonly unknown[]
  readonly rowCount: number
}

/** Runs a statement and returns its rows. */
export interface Queryable {
  query(text: string, values?: readonly SqlValue[]): Promise<QueryResult>
}

export interface StatementOptions {
  /** Aborts when nobody waits for the statement any more. An adapter that has the connection in its hands closes it then. */
  readonly givenUp?: AbortSignal | undefined
}

/** What `query` of a database may be: one that does not know the options leaves the connection as it is. */
export interface Interruptible {
  query(text: string, values?: readonly SqlValue[], options?: StatementOptions): Promise<QueryResult>
}

declare const inTransaction: unique symbol

/** A transaction under way. `native` is the driver's or ORM's own transaction object. */
export interface Tx<Native = unknown> extends Queryable {
  readonly native: Native
  readonly [inTransaction]: true
}

export type Isolation = 'read committed' | 'repeatable read' | 'serializable'

export interface BeginOptions {
  readonly isolation: Isolation
  readonly statementTimeoutMs: number
  readonly lockTimeoutMs: number
  readonly idleInTransactionTimeoutMs: number
  /** `'on'` raises a session's `off` and leaves any other setting as it is; `'off'` is for what may be lost in a crash. */
  readonly synchronousCommit: 'on' | 'off'
  /** The transaction takes no id, and its COMMIT has nothing to be unknown about. @default false */
  readonly readOnly?: boolean
  /** Aborts when nobody waits for the transaction any more. An adapter that has the connection in its hands closes it then. */
  readonly givenUp?: AbortSignal | undefined
  /** Told of what is refused because the transaction has ended. @default the default bus */
  readonly signals?: SignalBus
}

/** Where an adapter notes what hands out its connections. A symbol, so that a copy (`{ ...db }`) keeps it. */
export const connections: unique symbol = Symbol('connections')

/** A pool, a driver or an ORM that can run single statements and transactions. Made by the `from…` adapters. */
export interface Database<Native = unknown> extends Queryable {
  /** The pool, or the driver's or ORM's own object where its pool is hidden. */
  readonly [connections]?: object
  /**
   * Runs `work` in one transaction, once. Resolves only if the database said COMMIT; rejects with COMMIT_UNKNOWN,
   * with the transaction's id in `details.xid` and its server in `details.server`, if the connection broke while it was committing.
   */
  attempt<Result>(options: BeginOptions, work: (tx: Tx<Native>) => Promise<Result>): Promise<Result>
}

/** The same object for two databases that take their connections from one pool, as far as that can be seen. */
export function connectionsOf(db: Database): object {
  return db[connections] ?? db
}

const transactions = new WeakMap<object, object | undefined>()

/** Marks an adapter's object as a transaction, at its `Place`. What stands for another one, around it, takes over its place. */
export function markTx<Native>(tx: Queryable & { readonly native: Native }, place?: object): Tx<Native> {
  transactions.set(tx, place)
  return tx as Tx<Native>
}

/** What a transaction was marked with; undefined for what was marked without a place, such as a test's. */
export function markOf(tx: Tx): object | undefined {
  return transactions.get(tx)
}

export function isTx(value: unknown): value is Tx {
  return typeof value === 'object' && value !== null && transactions.has(value)
}

/** Throws NOT_A_TRANSACTION unless `value` is a transaction that one of our adapters made. */
export function assertTx(value: unknown, caller: string): asserts value is Tx {
  if (isTx(value)) return
  throw new WaybillError(
    'NOT_A_TRANSACTION',
    `${caller} needs a transaction, not a pool or connection. Call it inside transaction(db, async (tx) => …), or pass fromPg(client), fromDrizzle(tx), fromKysely(trx) … of your own transaction.`,
  )
}

/** The rows of a statement. */
export async function rows<Row>(db: Queryable, statement: Statement<Row>): Promise<readonly Row[]> {
  const result = await db.query(statement.text, statement.values)
  return result.rows as readonly Row[]
}

/** The only row of a statement that returns exactly one. */
export async function one<Row>(db: Queryable, statement: Statement<Row>): Promise<Row> {
  const found = await rows(db, statement)
  if (found.length !== 1) throw new WaybillError('INTERNAL', `Expected one row, got ${found.length}.`)
  return found[0] as Row
}

/** The first row, if there is one. */
export async function first<Row>(db: Queryable, statement: Statement<Row>): Promise<Row | undefined> {
  return (await rows(db, statement))[0]
}

/** Runs a statement for its effect; returns how many rows it touched. */
export async function execute(db: Queryable, statement: Statement): Promise<number> {
  return (await db.query(statement.text, statement.values)).rowCount
}
