/**
 * A running consumer, wired: receivers, the batcher between them and the batches, and the work on what is stored.
 *
 *   subscriptions ──▶ arrivals ──▶ batcher ──▶ process-batch, or the store of stored mode
 *   redriven letters, released messages ─────▶ process-batch ◀── the processor of stored mode
 *
 * What runs it, pauses it and ends it is in tasks.ts.
 */
import type { Lifetime } from '../core/service/lifetime.ts'
import { createWaker } from '../core/service/loop.ts'
import { underSignals } from '../core/service/abort.ts'
import type { Database } from '../postgres/query/database.ts'
import { answerGraceMs, withDeadlines } from '../postgres/transaction/deadline.ts'
import { processBatch, type BatchDeps } from './batch/process-batch.ts'
import type { Readers } from './batch/readers.ts'
import { createCrashSuspects } from './failure/crash-suspects.ts'
import { createOutageBackoff, longestPauseMs } from './failure/outage-backoff.ts'
import { isOrdered, orderKey, type UnreadItem } from './model/batch-item.ts'
import type { ConsumerSettings } from './model/consumer-options.ts'
import type { BatchEvents, ConsumerObserver } from './model/observer.ts'
import type { Routes } from './model/routes.ts'
import { createArrivals, createUnderWay } from './receive/arrivals.ts'
import { Batcher } from './receive/batcher.ts'
import { inOrder, workDelivered, type Entry } from './receive/direct.ts'
import { createSubscriptions } from './receive/subscriptions.ts'
import { createStoredProcessor, type LeasedBatch } from './stored/process.ts'
import { createLeasedWork, createStoredWork } from './stored/redrive-and-release.ts'
import { createStoredReceiver } from './stored/store.ts'
import type { InboxTables, Scope } from './tables/inbox.sql.ts'
import { runTasks, type Engine } from './tasks.ts'

export interface EngineDeps {
  readonly settings: ConsumerSettings
  readonly routes: Routes
  readonly tables: InboxTables
  readonly registered: { readonly generation: number; readonly paused: boolean }
  readonly life: Lifetime
  /** What the other instances read. @default they are not asked */
  readonly readers?: Readers | undefined
  /** Told of what the consumer does, for readers and readiness. */
  readonly watch: ConsumerObserver
}

export async function runConsumer(deps: EngineDeps): Promise<void> {
  // Work that waited on a connection that is dead, while others live, would keep what it has in hand for ever.
  const settings = { ...deps.settings, db: withBatchDeadlines(deps.settings) }
  // When one of the tasks fails, the others stop, and so does what they have in hand.
  const failed = new AbortController()
  await underSignals([deps.life.stopping, failed.signal], async (stopping) => {
    const wired = { ...deps, settings, life: { ...deps.life, stopping } }
    await runTasks({ ...wired, failed, isPaused: deps.registered.paused }, createEngine(wired))
  })
}

/** The consumer's database, whose answers are waited for no longer than a batch may take. */
export function withBatchDeadlines({ db, clock, statementTimeoutMs, handlerTimeoutMs }: ConsumerSettings): Database {
  return withDeadlines(db, { statementMs: statementTimeoutMs + handlerTimeoutMs + answerGraceMs, clock })
}

function createEngine(deps: EngineDeps): Engine {
  const { settings, routes, tables, registered, readers, watch, life } = deps
  const scope: Scope = { tables, consumer: settings.name, generation: registered.generation }
  const waker = createWaker()
  const acks = createUnderWay()
  const suspects = createCrashSuspects(settings.maxInFlight)
  const batcher = new Batcher<Entry>(settings)
  const returnLine = createReturnLine(batcher, watch)
  const events: BatchEvents = {
    committed: (items, applied) => {
      suspects.committed(items, applied)
      watch.committed(items)
    },
    timedOut: suspects.timedOut,
    returned: (item, restMs) => {
      suspects.markFailed(item)
      returnLine(item, restMs)
    },
    acking: acks.add,
  }
  const common = { settings, routes, scope, readers, suspects, events, ...life }
  const outageBackoff = createOutageBackoff(settings)
  const roundBackoff = createOutageBackoff(settings, longestPauseMs)
  const batches: BatchDeps = { ...common, emitting: true, outageBackoff, roundBackoff }
  const work = async (items: readonly UnreadItem[], leased?: Partial<LeasedBatch>): Promise<void> =>
    await processBatch({ ...batches, ...leased }, inOrder(items))
  const arrivals = createArrivals({ ...common, batcher })
  const processor = createStoredProcessor({ ...common, work })
  const isStored = settings.mode === 'stored'
  const isIdle = (): boolean => batcher.isIdle && arrivals.isIdle() && (!isStored || processor.isIdle())
  const store = createStoredReceiver({ ...common, returnLine })
  batcher.start(
    isStored
      ? async (batch) => {
          await store(batch)
          waker.wake()
        }
      : async (batch) => await workDelivered({ ...common, work }, batch),
  )
  const onAlive = (): void => watch.pulse?.beat()
  const redriven = createLeasedWork({ settings, scope, work: (items) => work(items, { onAlive }) })
  return {
    waker,
    subscriptions: createSubscriptions({ ...common, deliver: arrivals.deliver, fateOf: arrivals.fateOf, watch, isIdle }),
    stored: createStoredWork({ ...common, work: redriven }),
    processor,
    inFlight: () => batcher.inFlight(),
    ended: async () => {
      await arrivals.ended()
      await batcher.ended()
      await acks.ended()
    },
  }
}

/** Gives back what is behind an item that rests, in line. */
function createReturnLine(
  batcher: Batcher<Entry>,
  watch: ConsumerObserver,
): (item: Pick<UnreadItem, 'key' | 'message' | 'origin'>, restMs: number) => void {
  return (item, restMs) => {
    watch.disturbed?.(restMs)
    const { origin } = item
    if (origin.kind !== 'delivery' || !isOrdered(item)) return
    const follows = ({ delivery }: Entry): boolean => isOrdered({ message: delivery.message, origin })
    for (const { delivery } of batcher.purge(orderKey(item), follows)) void delivery.nack()
  }
}
