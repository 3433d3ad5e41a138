/**
 * The work of a rebuild: the consumer's own engine on shadow tables, fed from the broker or the owner's outbox, until the new
 * generation is as far as the live one. It goes on following until it is stopped.
 */
import type { Consumer } from '../../consumer/consumer.ts'
import { runConsumer } from '../../consumer/engine.ts'
import { othersOf, verified } from '../../consumer/receive/verified.ts'
import type { Clock } from '../../core/service/clock.ts'
import { WaybillError } from '../../core/errors.ts'
import { type SignalBus, createSignals, type SignalName, type Signals } from '../../core/signals.ts'
import { outboxTables } from '../../outbox/tables/outbox.sql.ts'
import { execute, one, type Database, type Queryable } from '../../postgres/query/database.ts'
import { saveOperation, type SavedOperation } from '../../postgres/operation.sql.ts'
import { ReadinessWatch } from '../../projection/readiness.ts'
import type { Transport } from '../../transport/port/transport.ts'
import type { ReplayCursor } from './replay.sql.ts'
import { voidDiscarded } from './discarded.ts'
import { parseFrom, brokerFeed, outboxFeed, type RebuildFeed, seekerOf } from './source.ts'
import { shadowRoutes, type Shadow } from './shadow.ts'
import { countReached, type RebuildScope } from './rebuild.sql.ts'
import { redactedMessage } from '../../core/redact.ts'

/** A rebuild whose shadows are there. */
export interface StartedRebuild {
  readonly consumer: Consumer
  readonly db: Database
  readonly scope: RebuildScope
  readonly shadows: readonly Shadow[]
  readonly operationId: string
  readonly from: string
  /** Where an earlier run stopped: in the outbox; `'through'` once all of it was read, or the subscription was moved back. */
  readonly cursor: ReplayCursor | 'through' | undefined
}

export interface RebuildProgress {
  /** Aggregates with which the new generation is as far as the live one. */
  readonly reached: number
  readonly total: number
  /** `undefined` until there is a rate to judge by. */
  readonly etaMs: number | undefined
}

export interface RunOptions {
  readonly transport: Pick<Transport, 'receive' | 'seek' | 'seekToSnapshot'> | undefined
  readonly owner: { readonly db: Queryable; readonly schema: string }
  readonly signal: AbortSignal
  readonly onProgress: (progress: RebuildProgress) => void
  readonly stallMs: number
  readonly pollMs: number
  readonly clock: Clock
}

export interface RunningRebuild {
  /** Resolves when the new generation is there. Rejects if that cannot be, or if it was told to stop. */
  reached(): Promise<RebuildProgress>
  stop(): Promise<void>
}

/** With the broker: this close behind the newest event is caught up. */
const closeMs = 5_000
/** An aggregate that the live generation got this recently is on its way, not missing. */
export const freshMs = 5_000
const pageSize = 500

export function runRebuild(started: StartedRebuild, options: RunOptions): RunningRebuild {
  const stopping = new AbortController()
  let failure: { readonly error: unknown } | undefined
  const stop = (): void => stopping.abort()
  const fail = (error: unknown): void => {
    failure ??= { error }
    stop()
  }
  options.signal.addEventListener('abort', stop, { once: true })
  const { clock } = options
  const { db, scope } = started
  const { backoff } = started.consumer.settings
  const watch = new ReadinessWatch({
    db,
    schema: scope.tables.schema,
    consumer: scope.consumer,
    clock,
    readyLagMs: closeMs,
    backoff,
  })
  const headway = new Headway(clock.monotonicMs())
  const feed = openFeed(started, options, () => watch.isCaughtUp() === true)
  const work = feed
    .then((open) => {
      const engine = runEngine(started, { feed: open, watch, signals: headway.signals, stopping: stopping.signal })
      return Promise.all([engine, open.run(stopping.signal)])
    })
    .catch(fail)
  if (options.signal.aborted) stop()
  return {
    reached: async () => {
      const open = await feed
      return await follow(started, options, {
        isThrough: () => open.isThrough(),
        headway,
        stopping: stopping.signal,
        failure: () => failure,
      })
    },
    stop: async () => {
      stop()
      options.signal.removeEventListener('abort', stop)
      await work
    },
  }
}

async function openFeed(started: StartedRebuild, options: RunOptions, isCaughtUp: () => boolean): Promise<RebuildFeed> {
  const { db, scope, shadows, cursor } = started
  const from = parseFrom(started.from)
  const onProgress = (reached: ReplayCursor | 'through'): Promise<void> => save(started, { cursor: reached })
  if (from === 'outbox') {
    const { owner, pollMs, clock } = options
    const outbox = outboxTables(owner.schema)
    const topics = new Map(shadows.map(({ live }) => [live.stream.aggregateType, live.stream.topic]))
    return outboxFeed({ owner: owner.db, outbox, db, scope, topics, after: cursor, onProgress, pageSize, pollMs, clock })
  }
  const { transport } = options
  if (transport === undefined)
    throw new WaybillError('INVALID_OPTION', `rebuild from ${started.from}: pass the transport whose messages are replayed.`)
  const subscription = subscriptionOf(scope.consumer, scope.next)
  if (cursor === undefined) {
    await seekerOf(transport, from, topicsOf(shadows))(subscription)
    await onProgress('through')
  }
  return brokerFeed({ transport, subscription, isCaughtUp })
}

/** The name of a rebuild's own subscription. */
export function subscriptionOf(consumer: string, generation: number): string {
  return `${consumer}.g${generation}`
}

export function topicsOf(shadows: readonly Shadow[]): readonly string[] {
  return [...new Set(shadows.map(({ live }) => live.stream.topic))]
}

interface EngineDeps {
  readonly feed: RebuildFeed
  readonly watch: ReadinessWatch
  readonly signals: SignalBus
  readonly stopping: AbortSignal
}

async function runEngine(
  { consumer, db, scope, shadows, from }: StartedRebuild,
  { feed, watch, signals, stopping }: EngineDeps,
): Promise<void> {
  const routes = consumer.routes()
  // The owner's outbox is as good as its signature; what a broker retains is verified before it is looked up.
  const believed =
    parseFrom(from) === 'outbox' ? feed : verified({ transport: feed, settings: consumer.settings, isOthers: othersOf(routes) })
  // Versions alone decide, for nothing but versioned upserts is done.
  const settings = {
    ...consumer.settings,
    inbox: false,
    positions: 'every' as const,
    offsets: 'broker' as const,
    mode: 'direct' as const,
    onUnknownStream: 'ignore' as const,
    transport: voidDiscarded({ feed: believed, db, scope }),
    verify: 'off' as const,
    signals,
  }
  await runConsumer({
    settings,
    routes: shadowRoutes(routes, shadows),
    tables: scope.tables,
    registered: { generation: scope.next, paused: false },
    life: { stopping, aborting: new AbortController().signal },
    watch: {
      opened: (isIdle) => watch.opened(isIdle),
      closed: () => watch.closed(),
      committed: (items) => watch.applied(Math.max(...items.map(({ event }) => event.occurredAtMs))),
    },
  })
}

interface Followed {
  readonly isThrough: () => boolean
  readonly headway: Headway
  readonly stopping: AbortSignal
  readonly failure: () => { readonly error: unknown } | undefined
}

async function follow(started: StartedRebuild, options: RunOptions, feed: Followed): Promise<RebuildProgress> {
  const { db, scope } = started
  const { clock, pollMs, stallMs, onProgress } = options
  const startMs = clock.monotonicMs()
  let startedWith: number | undefined
  let throughMs: number | undefined
  for (;;) {
    const failure = feed.failure()
    if (failure !== undefined) throw failure.error
    if (feed.stopping.aborted)
      throw new WaybillError('ABORTED', `The rebuild of ${scope.consumer} was stopped. Call it again, and it goes on.`)
    const isThrough = feed.isThrough()
    const { total, reached, missing } = await one(db, countReached(scope, freshMs))
    startedWith ??= reached
    const nowMs = clock.monotonicMs()
    const perMs = (reached - startedWith) / (nowMs - startMs)
    const progress = { reached, total, etaMs: perMs > 0 ? Math.round((total - reached) / perMs) : undefined }
    onProgress(progress)
    await save(started, { progress })
    if (!isThrough) throughMs = undefined
    else throughMs ??= nowMs
    // Under live traffic something is always on its way. What still is after this long was written in the meantime.
    const isOnlyTraffic = missing === 0 && throughMs !== undefined && nowMs - throughMs > freshMs
    if (isThrough && (reached === total || isOnlyTraffic)) return progress
    // What the live generation gets meanwhile is reached as well, and says nothing about what is missing.
    const stillMs = feed.headway.stillMs({ nowMs: clock.monotonicMs(), isThrough, missing })
    if (stillMs > stallMs && (missing > 0 || !isThrough)) throw stalled(started, progress, feed.headway.lastError)
    await clock.sleep(pollMs, feed.stopping)
  }
}

/** Another process may work on the same rebuild, and has ended it then: what it left there is not written over. */
async function save({ db, scope, operationId }: StartedRebuild, saved: SavedOperation): Promise<void> {
  if ((await execute(db, saveOperation(scope.tables.schema, { id: operationId }, saved))) === 0)
    throw goneMeanwhile(scope.consumer)
}

export function goneMeanwhile(consumer: string): WaybillError {
  return new WaybillError('REFUSED', `The rebuild of ${consumer} was swapped in or abandoned by somebody else.`)
}

function stalled(
  { scope: { consumer }, from }: StartedRebuild,
  { reached, total }: RebuildProgress,
  error: string | undefined,
): WaybillError {
  const heard = error === undefined ? '' : ` The last error: ${error}`
  return new WaybillError(
    'REFUSED',
    `The rebuild of ${consumer} from ${from} has ${reached} of ${total} aggregates, and nothing more comes: the rest is not retained there, or its events fail. See the dead letters of its generation; otherwise let the owner write the missing ones again (waybill backfill), or abandon it and begin from elsewhere.${heard}`,
    { details: { reached, total, error } },
  )
}

/**
 * Whether a rebuild gets on, and what its engine last complained of.
 *
 * It does if less is missing than ever before. Until the feed is through it does with every batch and every dead letter as well:
 * an aggregate with a long history is missing until the end of it. After that such are new traffic, or come again and again, as
 * those of an aggregate that is held. A message that is given back for ever is none of it. While the consumer is paused nothing
 * can get on, and that time does not count.
 */
export interface Look {
  readonly nowMs: number
  readonly isThrough: boolean
  /** Aggregates with which the new generation is behind, and not only since a moment ago. */
  readonly missing: number
}

class Headway {
  /** For the engine: its own, because those of the consumer tell of another lag. */
  readonly signals: SignalBus = createSignals()
  #settled = 0
  #isPaused = false
  #lastError: string | undefined
  #before: { readonly settled: number; readonly missing: number; readonly isThrough: boolean; readonly movedMs: number }

  constructor(nowMs: number) {
    this.#before = { settled: 0, missing: Infinity, isThrough: false, movedMs: nowMs }
    this.signals.on('consumer.applied', () => (this.#settled += 1))
    this.signals.on('consumer.dead', () => (this.#settled += 1))
    this.signals.on('consumer.paused', ({ paused }) => (this.#isPaused = paused))
    this.signals.onAny((event) => (this.#lastError = complaint(event) ?? this.#lastError))
  }

  /** Takes a look, and tells for how long it has not got on. */
  stillMs({ nowMs, isThrough, missing }: Look): number {
    const before = this.#before
    const settled = this.#settled
    const isFed = !before.isThrough && settled > before.settled
    const movedMs = isFed || missing < before.missing || this.#isPaused ? nowMs : before.movedMs
    this.#before = { settled, missing: Math.min(missing, before.missing), isThrough, movedMs }
    return nowMs - movedMs
  }

  get lastError(): string | undefined {
    return this.#lastError
  }
}

function complaint(event: Signals[SignalName]): string | undefined {
  if (!('error' in event) || event.error === undefined) return undefined
  const error = redactedMessage(event.error)
  return 'eventType' in event && 'aggregateId' in event ? `${event.eventType} ${event.aggregateId}: ${error}` : error
}
