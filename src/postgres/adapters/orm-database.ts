/**
 * What the ORM adapters share: our transaction inside the ORM's own.
 *
 * ORMs do not read the COMMIT tag: several resolve although the server rolled back. So the last statement before COMMIT
 * asks the server for the transaction's id. It fails if a swallowed error has aborted the transaction, and it differs if
 * the closure ended the transaction by itself. After it only COMMIT is left, so whatever breaks then is COMMIT_UNKNOWN,
 * with the id by which anybody can look the outcome up.
 */
import { setImmediate as nextTurn } from 'node:timers/promises'

import { systemClock, type Clock } from '../../core/service/clock.ts'
import { WaybillError } from '../../core/errors.ts'
import { underSignals, unlessLate } from '../../core/service/abort.ts'
import {
  connections,
  one,
  type BeginOptions,
  type Database,
  type Interruptible,
  type Isolation,
  type Queryable,
  type StatementOptions,
  type Tx,
} from '../query/database.ts'
import { assertSettled, currentTransaction, openGate, shut, track, type Gate } from '../transaction/gate.ts'
import { isUnanswered } from '../query/sql-state.ts'
import {
  assertUnderWay,
  commitFailure,
  endedByItself,
  longestEndMs,
  openTx,
  setUp,
  type TransactionId,
} from '../transaction/tx-scope.ts'

/** What an adapter must be able to do with its ORM. */
export interface Orm<Native> extends Interruptible {
  /** What hands out the connections: the driver's pool where the ORM shows it, else the ORM's own object. */
  readonly pool: object
  /** Runs `work` in a transaction of the ORM, with the isolation set by its first statement. Its statements pass the gate. */
  begin<Result>(how: Begin, work: (native: Native) => Promise<Result>): Promise<Result>
  /** Runs statements inside that transaction. */
  connection(native: Native): Queryable
  /** The library runs hooks of the user before it ends the transaction: `begin` then calls `gate.beforeCommit`, or shuts the gate. */
  readonly hasHooks?: boolean
  /** The library gives its connection back even if the driver never sent its ROLLBACK, and only the closure can keep it from that. */
  readonly losesRollback?: boolean
}

export interface Begin {
  readonly isolation: Isolation
  readonly gate: Gate
  /** Aborts when nobody waits for the transaction any more, or its ROLLBACK has no answer: its connection is to be closed, where the library shows it. */
  readonly givenUp: AbortSignal
  /** Keeps a connection on which the transaction failed until its server has answered, or the connection is gone. */
  readonly untilAnswered: (ask: () => Promise<unknown>, error: unknown) => Promise<void>
}

/** Makes a database of an ORM. */
export function ormDatabase<Native>(orm: Orm<Native>, clock: Clock = systemClock): Database<Native> {
  return {
    [connections]: orm.pool,
    query: (text, values, given?: StatementOptions) => orm.query(text, values, given),
    attempt: (options, work) => attemptWith({ ...orm, clock }, options, work),
  }
}

/** Makes a transaction of the user's own, already begun; `assertOpen` throws when the ORM knows that it has ended. */
export function ormTx<Native>(connection: Queryable, native: Native, assertOpen: () => void = () => undefined): Tx<Native> {
  assertOpen()
  return openTx(async (text, values) => {
    assertOpen()
    return await connection.query(text, values)
  }, native)
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
  id?: TransactionId | undefined
  done?: { readonly result: Result }
  /** Why it was not to be committed: the library may put an error of its own around it, or that of its ROLLBACK in its place. */
  refused?: { readonly error: unknown }
}

async function attemptWith<Native, Result>(
  orm: Orm<Native> & { readonly clock: Clock },
  options: BeginOptions,
  work: (tx: Tx<Native>) => Promise<Result>,
): Promise<Result> {
  const { isolation } = options
  const gate = openGate(options.signals)
  const run: Run<Result> = {}
  const [mute, late] = [Promise.withResolvers<never>(), new AbortController()]
  /** The caller has waited long enough then; a connection that is in our hands is closed. */
  const orMute = async (settled: Promise<unknown>, error: unknown): Promise<void> => {
    const heard = settled.then(
      () => true,
      () => true,
    )
    if ((await unlessLate(heard, longestEndMs(options, gate), orm.clock)) !== undefined) return
    late.abort()
    mute.reject(error)
  }
  const untilAnswered = async (ask: () => Promise<unknown>, error: unknown): Promise<void> => {
    const answered = isAnswered(ask)
    await orMute(answered, error)
    await answered
  }
  const conclude = async (connection: Queryable, id: TransactionId | undefined): Promise<void> => {
    if (isOver(gate)) throw endedByItself()
    assertSettled(gate)
    // Before the last question: a statement behind that could fail, and COMMIT would not say so.
    await shut(gate)
    await assertUnderWay(connection, id)
  }
  const refusing = async <Outcome>(step: () => Promise<Outcome>): Promise<Outcome> => {
    try {
      return await step()
    } catch (error) {
      gate.hasFailed = true
      run.refused = { error }
      void orMute(ended, error)
      throw error
    }
  }
  const workOn = async (tx: Tx<Native>): Promise<Result> => {
    const result = await work(tx)
    // A statement that was not awaited takes some steps through its library before it comes by the gate.
    await nextTurn()
    if (!isOver(gate)) assertSettled(gate)
    return result
  }
  const begin = async (givenUp: AbortSignal): Promise<void> => {
    try {
      await orm.begin({ isolation, gate, givenUp, untilAnswered }, (native) =>
        silentOnceOver(gate, { ...orm, connection: orm.connection(native), untilAnswered }, async (connection) => {
          const id = await setUp(connection, options)
          run.id = gate.id = id
          // A statement is counted from the call on: the library may take its time with it.
          const query: Tx['query'] = (text, values) => track(gate, text, () => connection.query(text, values))
          const result = await refusing(() => workOn(openTx(query, native, gate)))
          gate.beforeCommit = () => refusing(() => conclude(connection, id)).then(() => void (run.done = { result }))
          if (orm.hasHooks !== true) await gate.beforeCommit()
        }),
      )
    } finally {
      // Also when the ORM gave up while the closure still runs: its connection may serve somebody else by now.
      gate.state = 'over'
    }
  }
  const { givenUp } = options
  const ended = givenUp === undefined ? begin(late.signal) : underSignals([late.signal, givenUp], begin)
  try {
    await Promise.race([ended, mute.promise])
  } catch (error) {
    if (run.refused !== undefined) throw run.refused.error
    throw run.done === undefined ? error : commitFailure(error, run.id)
  }
  if (run.done === undefined) throw endedByItself()
  return run.done.result
}

/**
 * Keeps an ORM that has given up already from hearing of the closure's failure: postgres.js would answer it with a
 * ROLLBACK on the connection that is gone, which ends the process.
 */
async function silentOnceOver(gate: Gate, how: Ending, work: (connection: Queryable) => Promise<void>): Promise<void> {
  const { connection, hasHooks, losesRollback, untilAnswered } = how
  try {
    await work(connection)
  } catch (error) {
    // Before the ORM sends its ROLLBACK: a statement behind that would commit by itself.
    if (hasHooks !== true) await shut(gate)
    // The end of a connection reaches the closure and the ORM in the same turn, in no certain order.
    await nextTurn()
    if (isOver(gate)) await new Promise(() => undefined)
    if (losesRollback === true) await untilAnswered(() => one(connection, currentTransaction()), error)
    throw error
  }
}

interface Ending extends Pick<Orm<unknown>, 'hasHooks' | 'losesRollback'>, Pick<Begin, 'untilAnswered'> {
  readonly connection: Queryable
}

/**
 * Asks until the server is done with what was sent, or the connection is gone. Behind a statement without an answer node-postgres with
 * a `query_timeout` takes a ROLLBACK out of its queue again, and whoever has the connection next would commit the rest, or be undone
 * with it. So there is no end to this but an answer: a server that is out of reach costs the pool a place until the operating system
 * ends the connection.
 */
async function isAnswered(ask: () => Promise<unknown>): Promise<true> {
  for (;;) {
    const isHeard = await ask().then(
      () => true,
      (error: unknown) => !isUnanswered(error),
    )
    if (isHeard) return true
  }
}

function isOver({ state }: Gate): boolean {
  return state === 'over'
}
