/**
 * The steps of a pass, as functions: what the relay asks of the database, and what it makes of the answers.
 *
 * A pass receives them as one object, so that tests can put a broken step in the place of each and show that it is noticed.
 */
import { defaults } from '../../core/defaults.ts'
import { one, rows, type Queryable } from '../../postgres/query/database.ts'
import type { HeldLane } from '../../postgres/lanes/lanes.sql.ts'
import { withinBytes } from './bounded-read.ts'
import {
  confirmDispatch,
  readBodies,
  readDispatch,
  settleDispatch,
  wakeTopics,
  type ConfirmedRow,
  type DispatchRow,
  type Keeping,
  type ReadLimits,
  type ReadWindow,
  type Settlement,
} from '../tables/dispatch.sql.ts'
import type { OutboxTables } from '../tables/outbox.sql.ts'
import { decide, planRuns } from './plan.ts'

/** Where a step works, and as whom. */
export interface StepContext {
  readonly db: Queryable
  readonly tables: OutboxTables
  readonly relay: string
  readonly keep: Keeping
}

export interface ReadRequest {
  readonly lanes: readonly ReadWindow[]
  readonly limits: ReadLimits
}

export interface RelaySteps {
  read(context: StepContext, request: ReadRequest): Promise<readonly DispatchRow[]>
  readonly plan: typeof planRuns
  readonly decide: typeof decide
  /** Returns the lanes that are still ours. */
  confirm(
    context: StepContext,
    work: { readonly lanes: readonly HeldLane[]; readonly confirmed: readonly ConfirmedRow[] },
  ): Promise<readonly number[]>
  /** Returns the lanes that are still ours. */
  settle(
    context: StepContext,
    work: { readonly lanes: readonly HeldLane[]; readonly settlement: Settlement },
  ): Promise<readonly number[]>
  /** Makes everything due that waits for one of the topics. */
  wake(context: StepContext, topics: readonly string[]): Promise<void>
}

/** Twice what an event is put off for at most; one that is further ahead waits for its date, or comes back when the clock is right. */
const longestRestMs = 2 * defaults.relay.topicRestMs

export const relaySteps: RelaySteps = {
  read: async ({ db, tables }, { lanes, limits }) =>
    await withinBytes(await rows(db, readDispatch(tables, lanes, limits)), limits.bytes, (eventIds) =>
      rows(db, readBodies(tables, eventIds)),
    ),
  plan: planRuns,
  decide,
  confirm: async ({ db, tables, relay, keep }, { lanes, confirmed }) =>
    parseLanes((await one(db, confirmDispatch(tables, relay, lanes, confirmed, keep))).mine),
  settle: async ({ db, tables, relay, keep }, { lanes, settlement }) =>
    parseLanes((await one(db, settleDispatch(tables, relay, lanes, settlement, keep))).mine),
  wake: async ({ db, tables }, topics) => {
    // Not until nobody waits: a relay that knows the topic as shut puts off again what this one wakes.
    while ((await one(db, wakeTopics(tables, topics, longestRestMs))).more);
  },
}

function parseLanes(json: string): readonly number[] {
  return JSON.parse(json) as number[]
}
