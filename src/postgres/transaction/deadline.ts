/**
 * A database whose answers nobody waits for without end.
 *
 * The server ends every statement and every pause of a transaction within their time-outs. If a statement of ours has no answer for longer
 * than both together, its connection is dead and nobody has said so: it is given up with UNAVAILABLE and may be tried again on
 * another one. What the closure does by other ways, through its driver or elsewhere, takes as long as the closure lets it. What was given
 * up never commits: its closure can only fail, and its connection is closed, where that is in our
 * hands. Only a COMMIT that was under way may land, which is COMMIT_UNKNOWN: whoever does the same again waits for its locks. And so
 * may a single statement, which has no time-out of the server: only what may be done twice is one.
 */
import type { Clock } from '../../core/service/clock.ts'
import { WaybillError } from '../../core/errors.ts'
import { connections, connectionsOf, markTx, placeOf, type BeginOptions, type Database, type Tx } from '../query/database.ts'
import { commitUnknown } from './tx-scope.ts'
import { unheard, unlessSilent } from './unless-silent.ts'

export interface MuteOptions {
  /** The longest wait for a statement outside of transactions. */
  readonly statementMs: number
  readonly clock: Clock
}

/** How long after its time an answer may still be on its way. */
const answerMs = 5_000

/** The same database, with an end to every wait. Transactions whose time-outs are 0, which means for ever, have none. */
export function unlessMute<Native>(db: Database<Native>, { statementMs, clock }: MuteOptions): Database<Native> {
  return {
    [connections]: connectionsOf(db),
    ...unlessSilent(db, statementMs + answerMs, clock),
    attempt: async (options, work) => {
      const { statementTimeoutMs, idleInTransactionTimeoutMs } = options
      if (statementTimeoutMs === 0 || idleInTransactionTimeoutMs === 0) return await db.attempt(options, work)
      const longestMs = statementTimeoutMs + idleInTransactionTimeoutMs + answerMs
      return await attemptHeard(db, { options, work, longestMs, clock })
    },
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
  const ask = async <Answer>(work: () => Promise<Answer>): Promise<Answer> => {
    const answered = (): void => {
      unanswered -= 1
      sinceMs = clock.monotonicMs()
    }
    unanswered += 1
    sinceMs = clock.monotonicMs()
    return await work().finally(answered)
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
        return await ask(() => tx.query(text, values))
      }
      const result = await work(markTx({ native: tx.native, query }, placeOf(tx)))
      assertWanted()
      isCommitting = true
      return { result }
    } finally {
      // COMMIT or ROLLBACK is the last.
      unanswered += 1
      sinceMs = clock.monotonicMs()
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
