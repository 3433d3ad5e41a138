/**
 * Runs a closure in one transaction and reports the truth about its end.
 *
 * - Resolves only if the database said COMMIT. An error that the closure swallowed makes the server roll back, and here
 *   that is TRANSACTION_ABORTED, never success.
 * - Serialisation failures and deadlocks re-run the whole closure, jittered. So a closure must not do anything that the
 *   database cannot undo.
 * - A connection lost during COMMIT is looked up on another one by the transaction's id: committed is success, rolled
 *   back is run again, and if nobody can tell it is COMMIT_UNKNOWN, never "failed".
 * - Re-entrant: given a transaction instead of a database, the closure joins it, with the time-outs of that one. It is refused if it
 *   asks for a stronger isolation.
 *
 * `afterCommit` is for what may follow a confirmed COMMIT: wake a relay, complete a cache entry. Never part of the promise: it does not
 * run in a transaction that the user's own code commits, so nothing may depend on it.
 */
import { backoffMs } from '../../core/service/backoff.ts'
import { systemClock, type Clock } from '../../core/service/clock.ts'
import { defaults } from '../../core/defaults.ts'
import { isWaybillError, WaybillError } from '../../core/errors.ts'
import { oneOf, resolve, wholeBetween } from '../../core/options.ts'
import { systemRandom, type Random } from '../../core/service/random.ts'
import { defaultSignals, type SignalBus } from '../../core/signals.ts'
import { isTx, type BeginOptions, type Database, type Isolation, type Tx } from '../query/database.ts'
import { placeOf } from './gate.ts'
import { commitOutcome } from './commit-outcome.ts'
import { isRetryableState, sqlState } from '../query/sql-state.ts'
import { transactionIdOf, within } from './tx-scope.ts'

export interface TransactionOptions {
  /** @default 'read committed' */
  readonly isolation?: BeginOptions['isolation']
  /** A single statement may take this long. 0 means for ever. @default 30_000 */
  readonly statementTimeoutMs?: number
  /** A statement may wait this long for a lock. @default 5_000 */
  readonly lockTimeoutMs?: number
  /** The closure may pause this long between statements. @default 30_000 */
  readonly idleInTransactionTimeoutMs?: number
  /** Nothing is written: the server sees to it. Such a transaction takes no transaction id, and may run on a replica. @default false */
  readonly readOnly?: boolean
  /** `'on'` raises a session's `off`; `local`, `remote_write` and `remote_apply` stay as they are. @default 'on' */
  readonly synchronousCommit?: BeginOptions['synchronousCommit']
  /** How many times a closure is run again after a serialisation failure or a deadlock. @default 5 */
  readonly retries?: number
  /** What to do when the connection broke during COMMIT: find out, or throw COMMIT_UNKNOWN at once. @default 'look' */
  readonly onUnknown?: 'look' | 'throw'
  readonly signals?: SignalBus
  readonly clock?: Clock
  readonly random?: Random
}

/** Runs `work` in one transaction. What it returns is returned, once COMMIT is confirmed. */
export async function transaction<Native, Result>(
  db: Database<Native> | Tx<Native>,
  work: (tx: Tx<Native>) => Promise<Result>,
  options: TransactionOptions = byDefault,
): Promise<Result> {
  const settings = isResolved(options) ? options : transactionOptions(options)
  if (isTx(db)) {
    return await within(db, 'a nested transaction', async () => {
      if (settings.isolation !== 'read committed') await assertIsolation(db, settings.isolation)
      return await work(db)
    })
  }
  assertDatabase(db)
  for (let attempt = 1; ; attempt += 1) {
    let done: { readonly value: Result; readonly tx: Tx } | undefined
    const beganAtMs = settings.clock.monotonicMs()
    try {
      await db.attempt(settings, async (tx) => {
        done = { value: await work(tx), tx }
      })
      return committed(done as unknown as { readonly value: Result; readonly tx: Tx }, settings)
    } catch (error) {
      // Out of the closure it would be that of another transaction, which may be in another database.
      if (isWaybillError(error, 'COMMIT_UNKNOWN') && done !== undefined && settings.onUnknown === 'look') {
        const outcome = await look(db, error, { ...settings, beganAtMs })
        if (outcome === 'committed') return committed(done, settings)
        if (outcome !== 'rolled-back') throw error
        if (attempt > settings.retries) throw rolledBack(error)
      } else {
        const state = sqlState(error)
        if (!isRetryableState(state) || attempt > settings.retries) throw error
        await backOff(attempt, state ?? '', settings)
      }
    }
  }
}

/** Options filled and checked: `transaction` takes them as they are. */
export interface TransactionSettings extends Required<TransactionOptions> {
  readonly isolation: Isolation
}

const resolved = new WeakSet<TransactionOptions>()

function isResolved(options: TransactionOptions): options is TransactionSettings {
  return resolved.has(options)
}

/** Resolves options once, for a component that runs many transactions with them. */
export function transactionOptions(given: TransactionOptions): TransactionSettings {
  const settings = Object.freeze(resolveOptions(given))
  resolved.add(settings)
  return settings
}

const levels: readonly Isolation[] = ['read committed', 'repeatable read', 'serializable']

/** What the transaction under way is, only its server knows: the user may have begun it. */
async function assertIsolation(tx: Tx, asked: Isolation): Promise<void> {
  const { rows } = await tx.query(`select current_setting('transaction_isolation') as isolation`)
  const { isolation } = rows[0] as { isolation: Isolation }
  if (levels.indexOf(asked) <= levels.indexOf(isolation)) return
  throw new WaybillError(
    'INVALID_OPTION',
    `transaction.isolation: ${asked} was asked for, but the transaction that this one joins is ${isolation}. Begin the outer one with it, or leave the option out.`,
  )
}

const byDefault = transactionOptions({})

function rolledBack(cause: WaybillError): WaybillError {
  return new WaybillError(
    'UNAVAILABLE',
    'The connection broke during COMMIT, and the database rolled the transaction back. Nothing took effect; it may be tried again.',
    { cause },
  )
}

function committed<Result>({ value, tx }: { readonly value: Result; readonly tx: Tx }, { signals }: TransactionSettings): Result {
  runAfterCommit(tx, (error) => signals.emit('transaction.hook-failed', { error }))
  return value
}

async function look<Native>(
  db: Database<Native>,
  error: WaybillError,
  { signals, clock, beganAtMs }: TransactionSettings & { readonly beganAtMs: number },
): Promise<'committed' | 'rolled-back' | 'unknown'> {
  const id = transactionIdOf(error)
  const outcome = id === undefined ? 'unknown' : await commitOutcome(db, id, { clock, beganAtMs })
  signals.emit('transaction.unknown', { outcome, xid: id?.xid })
  return outcome
}

async function backOff(attempt: number, state: string, { signals, clock, random }: TransactionSettings): Promise<void> {
  const delayMs = backoffMs(defaults.transaction.retryBackoff, attempt, random)
  signals.emit('transaction.retried', { attempt, sqlState: state, delayMs })
  await clock.sleep(delayMs)
}

function resolveOptions(given: TransactionOptions): TransactionSettings {
  const { statementTimeoutMs, lockTimeoutMs, idleInTransactionTimeoutMs, retries } = defaults.transaction
  return resolve<TransactionSettings>(
    'transaction',
    {
      isolation: 'read committed',
      readOnly: false,
      statementTimeoutMs,
      lockTimeoutMs,
      idleInTransactionTimeoutMs,
      synchronousCommit: 'on',
      retries,
      onUnknown: 'look',
      signals: defaultSignals,
      clock: systemClock,
      random: systemRandom,
    },
    given,
    {
      isolation: oneOf(...levels),
      readOnly: oneOf(true, false),
      statementTimeoutMs: wholeBetween(0, 2_147_483_647),
      lockTimeoutMs: wholeBetween(0, 2_147_483_647),
      idleInTransactionTimeoutMs: wholeBetween(0, 2_147_483_647),
      synchronousCommit: oneOf('on', 'off'),
      retries: wholeBetween(0, 100),
      onUnknown: oneOf('look', 'throw'),
    },
  )
}

function assertDatabase(db: unknown): void {
  if (typeof db === 'object' && db !== null && typeof (db as { attempt?: unknown }).attempt === 'function') return
  throw new WaybillError(
    'INVALID_OPTION',
    'transaction(db, …): db must come from an adapter: fromPg(pool), fromPostgresJs(sql), fromDrizzle(db), fromKysely(db) …',
  )
}

/** Calls `hook` after this transaction has committed, if it is one that `transaction()` runs. */
export function afterCommit(tx: Tx, hook: () => void): void {
  placeOf(tx)?.gate.afterCommit.push(hook)
}

/** Runs what was registered. A hook that throws does not undo a commit, so its error is handed to `onError`. */
export function runAfterCommit(tx: Tx, onError: (error: unknown) => void): void {
  for (const hook of placeOf(tx)?.gate.afterCommit.splice(0) ?? []) {
    try {
      hook()
    } catch (error) {
      onError(error)
    }
  }
}
