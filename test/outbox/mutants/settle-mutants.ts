/**
 * Mutants of what happens after publishing: fences, heads, holds and promotions.
 */
import { confirmDispatch, settleDispatch } from '../../../src/outbox/tables/dispatch.sql.ts'
import { relaySteps } from '../../../src/outbox/relay/steps.ts'
import { one, rows } from '../../../src/postgres/query/database.ts'
import { lanesOf, type acquireLanes } from '../../../src/postgres/lanes/lanes.sql.ts'
import { sql } from '../../../src/postgres/query/sql.ts'
import { changedStatement, changeFunction, type Mutant } from './mutant.ts'

/** Settles whatever it likes, whoever the lane belongs to by now. */
export const unfencedSettle: Mutant = {
  steps: {
    settle: async ({ db, tables, relay, keep }, { lanes, settlement }) => {
      const anybody = lanes.map(({ lane }) => ({ lane, token: null }))
      return JSON.parse((await one(db, settleDispatch(tables, relay, anybody, settlement, keep))).mine) as number[]
    },
  },
}

/** Looks at the token without locking its row. */
export const fenceWithoutLock: Mutant = confirmWith('')

/** Locks the row so weakly that a claim goes through. */
export const fenceWithKeyShare: Mutant = confirmWith('for key share of l')

function confirmWith(lock: string): Mutant {
  return {
    steps: {
      confirm: async ({ db, tables, relay, keep }, { lanes, confirmed }) => {
        const statement = changedStatement(confirmDispatch(tables, relay, lanes, confirmed, keep), [/for share of l/, lock])
        return JSON.parse((await one(db, statement)).mine) as number[]
      },
    },
  }
}

/** Removes heads by the fast statement, which promotes nobody. */
export const fastDeleteOfAnyState: Mutant = {
  steps: {
    decide: (plan, outcomes, rules) => {
      const { settlement, ...rest } = relaySteps.decide(plan, outcomes, rules)
      const confirmed = settlement.confirmed.map((row) => ({ ...row, messageId: row.messageId ?? '' }))
      return { ...rest, confirmed: [...rest.confirmed, ...confirmed], settlement: { ...settlement, confirmed: [] } }
    },
    confirm: async ({ db, tables, relay, keep }, { lanes, confirmed }) => {
      const statement = changedStatement(
        confirmDispatch(tables, relay, lanes, confirmed, keep),
        [/where d\.state \+ 0 = 0 and d\.ctid/, 'where d.ctid'],
        [/ and x\.state = 0/, ''],
      )
      return JSON.parse((await one(db, statement)).mine) as number[]
    },
  },
}

/** Lets a head go without naming the next. */
export const releaseWithoutPromotion: Mutant = {
  prepare: (fixture) =>
    changeFunction(fixture, 'outbox_settle', [/where d\.state \+ 0 = 2 and d\.ctid/, 'where false and d.ctid']),
}

/** Looks without having locked the lane. */
export const settleWithoutLock: Mutant = {
  prepare: (fixture) => changeFunction(fixture, 'outbox_settle', [/ for update of l\)/, ')']),
}

/** Holds what the relay saw, without looking again whether there is a head. */
export const uncheckedHold: Mutant = {
  prepare: (fixture) =>
    changeFunction(fixture, 'outbox_settle', [/and exists \(select from \S+ b where b\.lane = x\.lane[^)]*\)[^)]*\)/, '']),
}

/** Locks and looks in one statement: the lock is new, what it looks at is old. */
export const lockAndLookAtOnce: Mutant = {
  steps: {
    settle: async (context, work) => {
      const { hold, confirmed, stopped } = work.settlement
      if (hold.length === 0 || confirmed.length + stopped.length > 0) return await relaySteps.settle(context, work)
      const { db, tables } = context
      await rows(
        db,
        sql`with l as materialized (select lane from ${tables.lane} where lane = any (${lanesOf(work.lanes)}::text::smallint[]) order by lane for update)
            update ${tables.dispatch} d set state = 2 from l
             where d.lane = l.lane and d.state = 0
               and exists (select from ${tables.dispatch} b where b.lane = d.lane and b.key = d.key and b.state in (1, 3) and b.seq < d.seq)`,
      )
      return work.lanes.map(({ lane }) => lane)
    },
  },
}

/** Claims lanes by a subquery, which a nested loop runs again for every row: the limit is none. */
export const claimBySubquery: typeof acquireLanes = (tables, claim) => sql`
  update ${tables.lane} l
     set lock_token = ${claim.token}::text::uuid, locked_by = ${claim.worker}, locked_at = clock_timestamp(),
         lock_expires_at = clock_timestamp() + ${claim.leaseMs}::int * interval '1 millisecond'
   where l.lane in (
     select f.lane from ${tables.lane} f
      where f.lock_token is null or f.lock_expires_at <= clock_timestamp()
      order by f.lane limit ${claim.count}::int for update skip locked)
  returning l.lane`
