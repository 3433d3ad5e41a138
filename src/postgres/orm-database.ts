/**
 * What the ORM adapters share: our transaction inside the ORM's own.
 *
 * ORMs do not read the COMMIT tag: several resolve although the server rolled back. So the last statement before COMMIT
 * asks the server for the transaction's id. It fails if a swallowed error has aborted the transaction, and it differs if
 * the closure ended the transaction by itself. After it only COMMIT is left, so whatever breaks then is COMMIT_UNKNOWN,
 * with the id by which anybody can look the outcome up.
 */
import { setImmediate as nextTurn } from 'node:timers/promises'

import { WaybillError } from '../core/errors.ts'
import type { TransactionId } from './commit-outcome.ts'
import { one, type BeginOptions, type Database, type Isolation, type Queryable, type Tx } from './database.ts'
import { currentTransaction, openGate, shut, type Gate } from './gate.ts'
import { sqlState } from './sql-state.ts'
import { beginning, commitFailure, endedByItself, openTx, setUpTransaction, transactionAborted } from './tx-scope.ts'

/** What an adapter must be able to do with its ORM. */
export interface Orm<Native> extends Queryable {
  /** Runs `work` in a transaction of the ORM, with the isolation set by its first statement. Its statements pass the gate. */
  begin<Result>(how: Begin, work: (native: Native) => Promise<Result>): Promise<Result>
  /** Runs statements inside that transaction. */
  connection(native: Native): Queryable
}

export interface Begin {
  readonly isolation: Isolation
  readonly gate: Gate
}

/** Makes a database of an ORM. */
export function ormDatabase<Native>(orm: Orm<Native>): Database<Native> {
  return {
    query: (text, values) => orm.query(text, values),
    attempt: (options, work) => attemptWith(orm, options, work),
  }
}

/** Makes a transaction of the user's own, already begun; `assertOpen` throws when the ORM knows that it has ended. */
export function ormTx<Native>(connection: Queryable, native: Native, assertOpen: () => void = () => undefined): Tx<Native> {
  assertOpen()
  return openTx(
    {
      query: async (text, values) => {
        assertOpen()
        return await connection.query(text, values)
      },
    },
    native,
  )
}

/** The sentence for a handle that is neither a database nor a transaction. */
export function wrongHandle(adapter: string, expected: string): WaybillError {
  return new WaybillError('INVALID_OPTION', `${adapter}(handle): expected ${expected}.`)
}

/** The sentence for a handle that was a transaction, or could be one, and is none now. */
export function notUnderWay(adapter: string, advice: string): WaybillError {
  return new WaybillError('NOT_A_TRANSACTION', `${adapter}(handle): this transaction is not under way. ${advice}`)
}

interface Run<Result> {
  id?: TransactionId
  done?: { readonly result: Result }
}

async function attemptWith<Native, Result>(
  orm: Orm<Native>,
  options: BeginOptions,
  work: (tx: Tx<Native>) => Promise<Result>,
): Promise<Result> {
  const gate = openGate()
  const run: Run<Result> = {}
  try {
    await orm.begin({ isolation: options.isolation, gate }, (native) =>
      silentOnceOver(gate, async () => {
        const connection = orm.connection(native)
        const id = await beginning(one(connection, setUpTransaction(options)))
        run.id = id
        const result = await work(openTx(connection, native, gate))
        // Before the last question: a statement behind that could fail, and COMMIT would not say so.
        await shut(gate)
        if (isOver(gate)) throw endedByItself()
        await assertUnderWay(connection, id.xid)
        run.done = { result }
      }),
    )
  } catch (error) {
    throw run.done === undefined ? error : commitFailure(error, run.id)
  } finally {
    // Also when the ORM gave up while the closure still runs: its connection may serve somebody else by now.
    gate.state = 'over'
  }
  if (run.done === undefined) throw endedByItself()
  return run.done.result
}

/**
 * Keeps an ORM that has given up already from hearing of the closure's failure: postgres.js would answer it with a
 * ROLLBACK on the connection that is gone, which ends the process.
 */
async function silentOnceOver(gate: Gate, work: () => Promise<void>): Promise<void> {
  try {
    await work()
  } catch (error) {
    // Before the ORM sends its ROLLBACK: a statement behind that would commit by itself.
    await shut(gate)
    // The end of a connection reaches the closure and the ORM in the same turn, in no certain order.
    await nextTurn()
    if (isOver(gate)) await new Promise(() => undefined)
    throw error
  }
}

function isOver({ state }: Gate): boolean {
  return state === 'over'
}

async function assertUnderWay(connection: Queryable, xid: string): Promise<void> {
  let now: { xid: string | null }
  try {
    now = await one(connection, currentTransaction())
  } catch (error) {
    throw sqlState(error) === '25P02' ? transactionAborted(error) : error
  }
  if (now.xid !== xid) throw endedByItself()
}
