/**
 * Removes what the Postgres transport needs no more, in batches, so that nobody waits for long: messages that are past their
 * retention and settled by all, and what waits for subscriptions that are gone.
 *
 * Each topic is looked through from its front to its first young message. A look that removed something and has not come to the
 * end goes on at once. One that removed nothing goes on the next time from where it was: what is old and not settled is passed
 * by slowly, however much it is. A sweep that is not answered before the next is due has failed; one that lands late has swept.
 */
import type { Clock } from '../../core/service/clock.ts'
import { loop } from '../../core/service/loop.ts'
import { execute, one, rows, type Queryable } from '../../postgres/query/database.ts'
import { withDeadlines } from '../../postgres/transaction/deadline.ts'
import { dropSubscription, selectOldTopics, sweepDeliveries, sweepTopic, type TransportTables } from './transport.sql.ts'

export interface SweeperDeps {
  readonly db: Queryable
  readonly tables: TransportTables
  readonly retentionMs: number
  readonly clock: Clock
  readonly signal: AbortSignal
}

export interface Sweeper {
  /** One batch of each; returns how many messages went. */
  sweep(): Promise<number>
  /** Removes a subscription and everything that waits for it. */
  unsubscribe(topic: string, consumer: string): Promise<void>
  /** Sweeps from now on; the second call changes nothing. */
  start(onError: (error: Error) => void): void
  /** Resolves when nothing is swept any more, after the signal. */
  ended(): Promise<void>
}

const batchSize = 10_000
/** Topics in one go, one after the other. */
const mostTopics = 200
const everyMs = 60_000

export function createSweeper({ db, tables, retentionMs, clock, signal }: SweeperDeps): Sweeper {
  let sweeping: Promise<void> | undefined
  /** Where the look through a topic goes on, by its id. */
  const places = new Map<number, string>()
  const timely = withDeadlines(db, { statementMs: everyMs, grows: true, clock })
  const sweep = async (): Promise<{ readonly swept: number; readonly hasMore: boolean }> => {
    await execute(timely, sweepDeliveries(tables, batchSize))
    let [swept, hasMore] = [0, false]
    for (const { id: topic } of await rows(timely, selectOldTopics(tables, retentionMs, mostTopics))) {
      const after = places.get(topic) ?? '0'
      const found = await one(timely, sweepTopic(tables, { topic, after, retentionMs, limit: batchSize }))
      if (found.place === null) places.delete(topic)
      else places.set(topic, found.place)
      swept += found.swept
      hasMore ||= found.place !== null && found.swept > 0
      if (swept >= batchSize || signal.aborted) break
    }
    return { swept, hasMore: hasMore || swept >= batchSize }
  }
  return {
    sweep: async () => (await sweep()).swept,
    unsubscribe: async (topic, consumer) => {
      await execute(db, dropSubscription(tables, { topic, consumer }))
      let swept = batchSize
      while (swept === batchSize) swept = await execute(db, sweepDeliveries(tables, batchSize))
    },
    start: (onError) => {
      const pace = { idleMs: () => everyMs, onError: (error: unknown) => onError(error as Error), clock }
      sweeping ??= loop(async () => ((await sweep()).hasMore ? 'more' : 'idle'), { stopping: signal, aborting: signal }, pace)
    },
    ended: async () => await sweeping,
  }
}
