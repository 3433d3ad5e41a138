/**
 * A running consumer: one receiver a topic, the pump between them and the batches, and the loop over what is stored.
 *
 * The loops do not wait for the broker: what is stored, redriven or waiting needs the database only, and so does a pause.
 *
 * Stopping: no new deliveries, batches under way are finished and acknowledged, then the receivers disconnect. Aborting
 * gives up the rest; the broker delivers it again.
 */
import type { Lifetime } from '../core/service/lifetime.ts'
import { createWaker, loop, type Pace, type Pass } from '../core/service/loop.ts'
import { underSignals } from '../core/service/abort.ts'
import type { Database } from '../postgres/query/database.ts'
import { answerGraceMs, withDeadlines } from '../postgres/transaction/deadline.ts'
import type { Delivery } from '../transport/port/transport.ts'
import { workBatch } from './batch/process-batch.ts'
import type { ConsumerSettings } from './model/consumer-options.ts'
import { bytesOf } from './model/decode.ts'
import { inOrder, placeOfDelivery, settleForeign, toEntry, workDelivered, type Entry } from './receive/direct.ts'
import type { EngineWatch } from './model/observer.ts'
import type { InboxTables, Scope } from './tables/inbox.sql.ts'
import { keepsLine, lineOf, type Applied, type Item, type UnreadItem } from './model/batch-item.ts'
import { createLeasedWork } from './stored/leased-work.ts'
import { createPatience, longestPauseMs } from './failure/outage-backoff.ts'
import { Pump } from './receive/batcher.ts'
import type { Readers } from './batch/readers.ts'
import { isForeign, readEvent, type ForeignMessage, type ReceivedEvent } from './model/received-event.ts'
import { createReceiving, type ReceivingDeps } from './receive/subscriptions.ts'
import type { Routes } from './model/routes.ts'
import { createStoredProcessor, type LeasedBatch, type StoredProcessor } from './stored/process.ts'
import { createStoredReceiver } from './stored/store.ts'
import { createStoredWork } from './stored/redrive-and-release.ts'
import { createStrangers } from './receive/strangers.ts'
import { createSuspicion, type Suspicion } from './failure/crash-suspects.ts'
import { createUndertaker, type Undertaker } from './failure/settle.ts'

export interface EngineDeps {
  readonly settings: ConsumerSettings
  readonly routes: Routes
  readonly tables: InboxTables
  readonly registered: { readonly generation: number; readonly paused: boolean }
  readonly life: Lifetime
  /** What the other instances read. @default nobody is asked */
  readonly readers?: Readers | undefined
  /** Told of what the consumer does, for readers and readiness. */
  readonly watch: EngineWatch
}

export async function runConsumer(deps: EngineDeps): Promise<void> {
  // Whoever waited on a connection that is dead, while others live, would keep what it has in hand for ever.
  const settings = { ...deps.settings, db: heardDatabase(deps.settings) }
  // When one of the tasks fails, the others stop, and so does what they have in hand.
  const failed = new AbortController()
  await underSignals([deps.life.stopping, failed.signal], (stopping) =>
    runTasks({ ...deps, settings, life: { ...deps.life, stopping } }, failed),
  )
}

async function runTasks(deps: EngineDeps, failed: AbortController): Promise<void> {
  const { settings, watch, life } = deps
  const engine = createEngine(deps)
  const onAlive = (): void => watch.pulse?.beat()
  const work = createLeasedWork({ settings, scope: engine.scope, work: (items) => engine.work(items, { onAlive }) })
  const stored = createStoredWork({ ...deps, scope: engine.scope, work })
  const receiving = createReceiving({ ...deps, ...engine, aborting: life.aborting })
  const report = createInFlightReport(settings, engine)
  const pace = paceOf(settings, engine)
  let isPaused = deps.registered.paused
  let closing: Promise<void> | undefined
  const tellPaused = (): void => settings.signals.emit('consumer.paused', { consumer: settings.name, paused: isPaused })
  const look: Pass = async () => {
    report()
    const { found, paused } = await stored.pass()
    // Batches under way are finished first, however long they take; the loop goes round meanwhile.
    if (paused === isPaused || closing !== undefined) return found ? 'more' : 'idle'
    isPaused = paused
    if (paused) {
      const closed = receiving.close().then(tellPaused)
      closing = closed.catch((error: unknown) => pace.onError(error, 1, 0)).finally(() => (closing = undefined))
    } else {
      engine.waker.wake()
      tellPaused()
    }
    return found ? 'more' : 'idle'
  }
  const workLanes: Pass = async () => (isPaused ? 'idle' : await engine.processor.pass())
  const processors = settings.mode === 'stored' ? Array.from({ length: settings.concurrency }, () => workLanes) : []
  try {
    if (processors.length > 0) await engine.processor.prepare()
    if (isPaused) tellPaused()
    const passes = [watch.pulse?.around(look) ?? look, ...processors]
    const receive = async (): Promise<void> => {
      const keepOpen: Pass = async () => {
        if (!isPaused && !receiving.isOpen()) await receiving.open(life.stopping)
        return 'idle'
      }
      // What the broker refuses at the start ends the consumer; later it is tried again.
      await keepOpen(life.aborting)
      await loop(keepOpen, life, pace)
    }
    await together([receive, ...passes.map((pass) => () => loop(pass, life, pace))], failed)
  } finally {
    await closing
    await receiving.close()
    await engine.ended()
  }
}

/** Runs them side by side. When one fails, `failed` is aborted, and when all have ended it rejects as that one did. */
async function together(tasks: readonly (() => Promise<void>)[], failed: AbortController): Promise<void> {
  const supervise = async (task: () => Promise<void>): Promise<void> => {
    try {
      await task()
    } catch (error) {
      failed.abort()
      throw error
    }
  }
  const ends = await Promise.allSettled(tasks.map(supervise))
  const failure = ends.find((end) => end.status === 'rejected')
  if (failure !== undefined) throw failure.reason
}

const reportEveryMs = 2_000

function createInFlightReport({ name, signals, clock }: ConsumerSettings, { inFlight }: Engine): () => void {
  let reportAt = 0
  return () => {
    if (clock.monotonicMs() < reportAt) return
    reportAt = clock.monotonicMs() + reportEveryMs
    signals.emit('consumer.in-flight', { consumer: name, ...inFlight() })
  }
}

function paceOf({ name, pollMs, signals, clock, random }: ConsumerSettings, { waker }: Engine): Pace {
  return {
    idleMs: () => pollMs,
    onError: (error, failures, delayMs) =>
      signals.emit('service.failed', { service: `consumer ${name}`, error, failures, delayMs }),
    waker,
    clock,
    random,
  }
}

interface Engine {
  readonly scope: Scope
  readonly processor: StoredProcessor
  readonly waker: ReturnType<typeof createWaker>
  readonly deliver: ReceivingDeps['deliver']
  readonly fateOf: ReceivingDeps['fateOf']
  readonly work: (items: readonly UnreadItem[], batch?: Partial<LeasedBatch>) => Promise<void>
  readonly isIdle: () => boolean
  /** Resolves when no batch is under way, not even one that was given up, and the broker has answered the acks. */
  readonly ended: () => Promise<void>
  readonly inFlight: () => { readonly messages: number; readonly oldestMs: number }
}

function createEngine(deps: EngineDeps): Engine {
  const { settings, routes, tables, registered } = deps
  const scope: Scope = { tables, consumer: settings.name, generation: registered.generation }
  const waker = createWaker()
  const strangers = createStrangers({ ...deps, ...deps.life, scope })
  const [acks, decisions] = [createUnderWay(), createUnderWay()]
  const onAcking = acks.add
  const giveBackLine: GiveBack = (item, restMs) => {
    deps.watch.disturbed?.(restMs)
    if (item.origin.kind !== 'delivery' || !keepsLine(item)) return
    const follows = ({ delivery }: Entry): boolean => keepsLine({ message: delivery.message, origin: item.origin })
    for (const { delivery } of pump.purge(lineOf(item), follows)) void delivery.nack()
  }
  const { work, undertaker, onAgain, isSlow } = createWork(deps, { scope, giveBackLine, onAcking })
  const processor = createStoredProcessor({ settings, routes, scope, work, onAgain, isSlow })
  const store = createStoredReceiver({ settings, scope, onGivenBack: giveBackLine, onAcking, ...deps.life })
  const pump = new Pump<Entry>({
    ...settings,
    work: async (batch) => {
      if (settings.mode === 'stored') {
        await store(batch)
        return waker.wake()
      }
      await workDelivered({ settings, routes, undertaker, work }, batch)
    },
  })
  const push = (delivery: Delivery, event: ReceivedEvent | ForeignMessage): void => {
    // What is stored as it comes is fetched by nobody yet.
    const bytes = settings.mode === 'stored' ? delivery.message.body.byteLength : bytesOf(delivery.message, event, routes)
    // What is stored as it comes is not tried by the pump.
    const isSuspect = settings.mode === 'direct' && !isForeign(event) && isSlow({ event })
    pump.push(toEntry(delivery, event, { bytes, isSuspect, sinceMs: settings.clock.monotonicMs() }))
  }
  const settleStranger = async (delivery: Delivery, event: ReceivedEvent): Promise<void> => {
    const fate = await strangers.fateOf(event, delivery.message)
    if (fate === 'aside') push(delivery, event)
    else if (fate === 'dead-letter') await settleForeign({ undertaker, settings, routes }, delivery, event)
    else void (fate === 'ignore' ? delivery.ack() : delivery.nack())
  }
  const deliver = (delivery: Delivery): void => {
    const event = readEvent(delivery.message)
    if (placeOfDelivery(delivery) !== undefined) return push(delivery, event)
    if (isForeign(event)) return void settleForeign({ undertaker, settings, routes }, delivery, event)
    if (routes.stream(event.aggregateType) !== undefined) return push(delivery, event)
    decisions.add(settleStranger(delivery, event))
  }
  return {
    scope,
    processor,
    waker,
    deliver,
    fateOf: (message) => {
      if (routes.stream(message.attributes['aggregate_type'] ?? '') !== undefined) return undefined
      const event = readEvent(message)
      return isForeign(event) ? undefined : strangers.fateOf(event, message)
    },
    work,
    ended: async () => {
      await decisions.ended()
      await strangers.ended()
      await pump.ended()
      await acks.ended()
    },
    inFlight: () => pump.inFlight(),
    isIdle: () => pump.isIdle && strangers.count === 0 && (settings.mode === 'direct' || processor.isIdle()),
  }
}

/** The consumer's database, whose answers are waited for no longer than a batch may take. */
export function heardDatabase({ db, clock, statementTimeoutMs, handlerTimeoutMs }: ConsumerSettings): Database {
  return withDeadlines(db, { statementMs: statementTimeoutMs + handlerTimeoutMs + answerGraceMs, clock })
}

/** Gives back what is behind this one, which rests, in line. */
type GiveBack = (item: Pick<UnreadItem, 'key' | 'message' | 'origin'>, restMs: number) => void

interface WorkDeps {
  readonly scope: Scope
  readonly giveBackLine: GiveBack
  readonly onAcking: (acked: Promise<void>) => void
}

interface Work {
  readonly work: (items: readonly UnreadItem[], batch?: Partial<LeasedBatch>) => Promise<void>
  readonly undertaker: Undertaker
  /** Told of an item that may have failed in another process. */
  readonly onAgain: (item: UnreadItem) => void
  /** Its time was over before. */
  readonly isSlow: Suspicion['isSlow']
}

/** The work on batches, with what it has to remember of those that failed. */
function createWork({ settings, routes, life, watch, readers }: EngineDeps, { scope, giveBackLine, onAcking }: WorkDeps): Work {
  const suspicion = createSuspicion(settings.maxInFlight)
  const undertaker = createUndertaker({
    settings,
    scope,
    onGivenBack: (item, restMs) => {
      suspicion.charged(item)
      giveBackLine(item, restMs)
    },
  })
  const onCommitted = (items: readonly Item[], applied: Applied): void => {
    suspicion.committed(items, applied)
    watch.committed(items)
  }
  const patience = createPatience(settings, longestPauseMs)
  const { isSuspect, isSlow, timedOut: onTimedOut } = suspicion
  const told = { isSuspect, isSlow, onTimedOut, onCommitted, onAcking }
  const worker = { settings, routes, scope, readers, emitting: true, patience, ...told, ...life }
  return {
    work: (items, batch) => workBatch({ ...worker, ...batch, undertaker: undertaker.guardedBy(batch?.guard) }, inOrder(items)),
    undertaker,
    onAgain: suspicion.charged,
    isSlow,
  }
}

/** Work under way that no batch waits for. */
function createUnderWay(): { readonly add: (work: Promise<void>) => void; readonly ended: () => Promise<void> } {
  const underWay = new Set<Promise<void>>()
  return {
    add: (work) => {
      underWay.add(work)
      void work.then(() => underWay.delete(work))
    },
    ended: async () => void (await Promise.all(underWay)),
  }
}
