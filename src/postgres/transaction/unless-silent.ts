/**
 * Single statements that are waited for no longer than a given time. The connection that one went out on may be dead, while others
 * live, so it is given up with the statement: an adapter that has it in its hands closes it. The statement may land all the same.
 */
import type { Clock } from '../../core/service/clock.ts'
import { WaybillError } from '../../core/errors.ts'
import { underSignals } from '../../core/service/abort.ts'
import { unlessLate } from '../../core/service/unless-late.ts'
import type { Interruptible } from '../query/database.ts'
import { steadyStatements } from './steady-statements.ts'

/** For removals in batches: longer than the largest takes on a slow disk, beside the largest backlog. What lands late was to go anyway. */
export const removalMs = 600_000

/** Runs statements outside of transactions; one that has no answer within `ms` fails with UNAVAILABLE. */
export function unlessSilent(db: Interruptible, ms: number, clock: Clock): Interruptible {
  const steady = steadyStatements(db, ms)
  return {
    query: async (text, values, { givenUp: earlier } = {}) => {
      const late = new AbortController()
      const ends = earlier === undefined ? [late.signal] : [late.signal, earlier]
      const asked = underSignals(ends, (givenUp) => steady.query(text, values, { givenUp }))
      const answer = await unlessLate(asked, ms, clock)
      if (answer !== undefined) return answer
      late.abort()
      throw unheard(ms, 'the statement')
    },
  }
}

/** The sentence for a wait of which nobody knows whether there was a connection at all. */
export function unheard(ms: number, what: string): WaybillError {
  return new WaybillError(
    'UNAVAILABLE',
    `Nothing was heard of the database for ${ms} ms: no connection could be had, or ${what} was not answered. Is the pool too small, or the database out of reach?`,
  )
}
