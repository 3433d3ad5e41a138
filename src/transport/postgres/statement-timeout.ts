/**
 * A database of which no statement is waited for longer than a given time: the connection that it went out on may be dead, while
 * others work. One that is late has failed for whoever sent it. It may land all the same, so only such statements go this way that
 * do no harm then: they only read, are fenced, or sweep what nobody needs.
 *
 * What only takes long, behind a lock or over a long line, must get through in the end, and each that was given up still keeps its
 * connection. So every one that is late doubles the time of the next, until one is answered.
 */
import type { Clock } from '../../core/service/clock.ts'
import { WaybillError } from '../../core/errors.ts'
import { unlessLate } from '../../core/service/unless-late.ts'
import type { Queryable } from '../../postgres/query/database.ts'

/** The longest wait for an answer, unless a lease is longer. */
export const answerMs = 30_000

export function inTime(db: Queryable, ms: number, clock: Clock): Queryable {
  let patienceMs = ms
  return {
    query: async (text, values) => {
      const waitMs = patienceMs
      const result = await unlessLate(db.query(text, values), waitMs, clock)
      patienceMs = result === undefined ? Math.max(patienceMs, waitMs * 2) : ms
      if (result === undefined) throw late(waitMs)
      return result
    },
  }
}

function late(ms: number): WaybillError {
  return new WaybillError(
    'TIMEOUT',
    `postgres: the database did not answer within ${ms} ms: a dead connection, a lock, or a pool that is too small.`,
  )
}
