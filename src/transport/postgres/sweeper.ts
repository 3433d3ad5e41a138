/**
 * Removes what the Postgres transport needs no more, in batches, so that nobody waits for long: messages that are past their
 * retention and settled by all, and what waits for subscriptions that are gone.
 */
import type { Clock } from '../../core/clock.ts'
import { loop } from '../../core/loop.ts'
import { execute, one, type Queryable } from '../../postgres/database.ts'
import { dropSubscription, sweepDeliveries, sweepMessages, type TransportTables } from './transport.sql.ts'

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
  ended(): Promise<void> | undefined
}

const batchSize = 10_000
const everyMs = 60_000

export function createSweeper({ db, tables, retentionMs, clock, signal }: SweeperDeps): Sweeper {
  let sweeping: Promise<void> | undefined
  const sweep = async (): Promise<number> => {
    await execute(db, sweepDeliveries(tables, batchSize))
    return (await one(db, sweepMessages(tables, retentionMs, batchSize))).swept
  }
  return {
    sweep,
    unsubscribe: async (topic, consumer) => {
      await execute(db, dropSubscription(tables, { topic, consumer }))
      let swept = batchSize
      while (swept === batchSize) swept = await execute(db, sweepDeliveries(tables, batchSize))
    },
    start: (onError) => {
      const pace = { idleMs: () => everyMs, onError: (error: unknown) => onError(error as Error), clock }
      sweeping ??= loop(
        async () => ((await sweep()) === batchSize ? 'more' : 'idle'),
        { stopping: signal, aborting: signal },
        pace,
      )
    },
    ended: () => sweeping,
  }
}
