/**
 * A database that is never waited for without end: every statement and every transaction has a deadline.
 *
 * A single statement has no time-out of the server, so its deadline is ours. The connection that it went out on may be dead while others
 * live: it is given up with the statement, and an adapter that has it in its hands closes it. The statement may land all the same, so only
 * what may be done twice, or is fenced, is sent outside of a transaction.
 *
 * In a transaction the server ends every statement and every pause within their time-outs. If a statement of ours has no answer for
 * longer than both together, its connection is dead: the transaction is given up with UNAVAILABLE and may be tried again on another
 * connection. What the closure does by other ways, through its driver or elsewhere, takes as long as the closure lets it. A transaction
 * that was given up never commits: its closure can only fail. Only a COMMIT that was under way may land, which is COMMIT_UNKNOWN: a
 * repeat waits for its locks.
 */
import type { Clock } from '../../core/service/clock.ts'
import { WaybillError } from '../../core/errors.ts'
import { underSignals, unlessLate } from '../../core/service/abort.ts'
import {
  connections,
  connectionsOf,
  markTx,
  type BeginOptions,
  type Database,
  type Interruptible,
  type Tx,
} from '../query/database.ts'
import { placeOf } from './gate.ts'
import { isDatabase, steadyStatements } from './steady-statements.ts'
import { commitUnknown } from './tx-scope.ts'

export interface Deadlines {
  /** The longest wait for a statement outside of transactions. */
  readonly statementMs: number
  readonly clock: Clock
  /**
   * Doubles the deadline with each statement that misses it, until one is answered: a statement that is repeated until it is answered
   * gets through in the end, behind a lock or over a long line too. One that misses its deadline has failed with TIMEOUT. @default false
   */
  readonly grows?: boolean
}

/** How long after the server's own time-out its answer may still be on its way. */
export const answerGraceMs = 5_000

/** For removals in batches: longer than the largest takes on a slow disk, beside the largest backlog. What lands late was to go anyway. */
export const removalMs = 600_000

/** The same database, with an end to every wait. Transactions whose time-outs are 0, which means for ever, have none. */
export function withDeadlines<Native>(db: Database<Native>, deadlines: Deadlines): Database<Native>
export function withDeadlines(db: Interruptible, deadlines: Deadlines): Interruptible
export function withDeadlines(db: Interruptible | Database, deadlines: Deadlines): Interruptible {
  const query = queryOf(db, deadlines)
  if (!isDatabase(db)) return { query }
  const heard: Interruptible & Database = {
    [connections]: connectionsOf(db),
    query,
    attempt: async (options, work) => {
      const { statementTimeoutMs, idleInTransactionTimeoutMs } = options
      if (statementTimeoutMs === 0 || idleInTransactionTimeoutMs === 0) return await db.attempt(options, work)
      const longestMs = statementTimeoutMs + idleInTransactionTimeoutMs + answerGraceMs
      return await attemptHeard(db, { options, work, longestMs, clock: deadlines.clock })
    },
  }
  return heard
}

function queryOf(db: Interruptible, { statementMs, clock, grows = false }: Deadlines): Interruptible['query'] {
  const steady = steadyStatements(db, statementMs)
  let deadlineMs = statementMs
  return async (text, values, { givenUp: earlier } = {}) => {
    const ms = deadlineMs
    const late = new AbortController()
    const ends = earlier === undefined ? [late.signal] : [late.signal, earlier]
    const asked = underSignals(ends, (givenUp) => steady.query(text, values, { givenUp }))
    const answer = await unlessLate(asked, ms, clock)
    if (grows) deadlineMs = answer === undefined ? Math.max(deadlineMs, ms * 2) : statementMs
    if (answer !== undefined) return answer
    late.abort()
    throw unheard(ms, 'the statement', grows ? 'TIMEOUT' : 'UNAVAILABLE')
  }
}

interface Attempt<Native, Result> {
  readonly options: BeginOptions
  readonly work: (tx: Tx<Native>) => Promise<Result>
  readonly longestMs: number
  readonly clock: Clock
}

async function attemptHeard<Native, Result>(
  db: Database<Native>,
  { options, work, longestMs, clock }: Attempt<Native, Result>,
): Promise<Result> {
  const givenUp = new AbortController()
  const done = new AbortController()
  let hasBegun = false
  let isCommitting = false
  // BEGIN is the first that has no answer.
  let unanswered = 1
  let sinceMs = clock.monotonicMs()
  const count = (change: 1 | -1): void => {
    unanswered += change
    sinceMs = clock.monotonicMs()
  }
  const assertWanted = (): void => {
    if (givenUp.signal.aborted) throw mute(longestMs)
  }
  const listened = async (tx: Tx<Native>): Promise<{ readonly result: Result }> => {
    assertWanted()
    hasBegun = true
    unanswered -= 1
    try {
      const query: Tx['query'] = async (text, values) => {
        assertWanted()
        count(1)
        return await tx.query(text, values).finally(() => count(-1))
      }
      const result = await work(markTx({ native: tx.native, query }, placeOf(tx)))
      assertWanted()
      isCommitting = true
      return { result }
    } finally {
      // COMMIT or ROLLBACK is the last.
      count(1)
    }
  }
  const untilMute = async (): Promise<undefined> => {
    for (let leftMs = longestMs; leftMs > 0 && !done.signal.aborted;) {
      await clock.sleep(leftMs, done.signal)
      leftMs = unanswered === 0 ? longestMs : sinceMs + longestMs - clock.monotonicMs()
    }
  }
  try {
    const ended = await Promise.race([db.attempt({ ...options, givenUp: givenUp.signal }, listened), untilMute()])
    if (ended !== undefined) return ended.result
    givenUp.abort()
    if (!hasBegun) throw unheard(longestMs, 'BEGIN')
    throw isCommitting && options.readOnly !== true ? commitUnknown(undefined, mute(longestMs)) : mute(longestMs)
  } finally {
    done.abort()
  }
}

function mute(ms: number): WaybillError {
  return new WaybillError(
    'UNAVAILABLE',
    `Nothing was heard of the database for ${ms} ms, which is longer than anything may take there. The connection was given up; try again.`,
  )
}

/** The sentence for a wait of which nobody knows whether there was a connection at all. */
function unheard(ms: number, what: string, code: 'UNAVAILABLE' | 'TIMEOUT' = 'UNAVAILABLE'): WaybillError {
  return new WaybillError(
    code,
    `Nothing was heard of the database for ${ms} ms: no connection could be had, or ${what} was not answered. Is the pool too small, or the database out of reach?`,
  )
}
