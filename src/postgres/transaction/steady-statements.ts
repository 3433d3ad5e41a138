/**
 * Single statements of a service that mean the same in every session.
 *
 * Outside of a transaction a statement runs in the isolation that its session begins with, and within its `statement_timeout`. Where
 * another isolation or a shorter time-out is the default of a database or role, the server refuses what needs READ COMMITTED, or takes
 * too long; nothing of it took effect. From then on that statement runs in a transaction of its own, which sets both. So ordinary
 * sessions pay nothing, and a pooler that mixes sessions does no harm.
 */
import type { Database, Interruptible } from '../query/database.ts'
import { isRetryableState, isStatementTimeout, sqlState } from '../query/sql-state.ts'

const refused = new WeakMap<object, Set<string>>()

/** The same statements. `mostMs` is how long one may take in the end; 0 is for ever. */
export function steadyStatements(db: Interruptible, mostMs: number): Interruptible {
  if (!isDatabase(db)) return db
  const texts = refused.get(db) ?? new Set<string>()
  refused.set(db, texts)
  return {
    query: async (text, values, given = {}) => {
      const { givenUp } = given
      if (!texts.has(text)) {
        try {
          return await db.query(text, values, given)
        } catch (error) {
          if (givenUp?.aborted === true || !isOfSession(error)) throw error
          texts.add(text)
        }
      }
      return await db.attempt({ ...begin, statementTimeoutMs: mostMs, givenUp }, (tx) => tx.query(text, values))
    },
  }
}

const begin = {
  isolation: 'read committed',
  lockTimeoutMs: 0,
  idleInTransactionTimeoutMs: 60_000,
  synchronousCommit: 'on',
} as const

export function isDatabase(db: Interruptible): db is Interruptible & Database {
  return typeof (db as Partial<Database>).attempt === 'function'
}

/** `25001` is raised by our functions that must see what committed while they waited; a single READ COMMITTED statement is never out of order. */
function isOfSession(error: unknown): boolean {
  const state = sqlState(error)
  return state === '25001' || isRetryableState(state) || isStatementTimeout(error)
}
