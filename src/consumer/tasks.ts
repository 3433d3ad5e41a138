/**
 * What runs in a consumer side by side, and how it is paused and stopped.
 *
 *   receive    keeps the receivers open, except in a pause
 *   look       redriven letters, released messages, and whether an operator has paused the consumer
 *   process    the lanes of stored mode, as many at once as `concurrency`
 *
 * The loops do not wait for the broker: what is stored, redriven or waiting needs the database only, and so does a pause.
 *
 * Stopping: no new deliveries, batches under way are finished and acknowledged, then the receivers disconnect. Aborting
 * gives up the rest; the broker delivers it again.
 */
import type { Lifetime } from '../core/service/lifetime.ts'
import { loop, type createWaker, type Pace, type Pass } from '../core/service/loop.ts'
import type { ConsumerSettings } from './model/consumer-options.ts'
import type { ConsumerObserver } from './model/observer.ts'
import type { Batcher } from './receive/batcher.ts'
import type { Entry } from './receive/direct.ts'
import type { Subscriptions } from './receive/subscriptions.ts'
import type { StoredProcessor } from './stored/process.ts'
import type { StoredWork } from './stored/redrive-and-release.ts'

/** The parts of a running consumer that its tasks call. */
export interface Engine {
  readonly waker: ReturnType<typeof createWaker>
  readonly subscriptions: Subscriptions
  /** Redriven letters and released messages. */
  readonly stored: StoredWork
  /** The lanes of stored mode. */
  readonly processor: StoredProcessor
  readonly inFlight: Batcher<Entry>['inFlight']
  /** Resolves when no batch is under way, not even one that was given up, and the broker has answered the acks. */
  readonly ended: () => Promise<void>
}

export interface TaskDeps {
  readonly settings: ConsumerSettings
  readonly life: Lifetime
  readonly watch: ConsumerObserver
  /** Aborted when one of the tasks fails. */
  readonly failed: AbortController
  /** Whether an operator had paused the consumer when it started. */
  readonly isPaused: boolean
}

/** Runs a consumer until it is stopped or one of its tasks fails. */
export async function runTasks(deps: TaskDeps, engine: Engine): Promise<void> {
  const { settings, watch, life, failed } = deps
  const { subscriptions, processor } = engine
  const report = createInFlightReport(settings, engine)
  const pace = paceOf(settings, engine)
  let { isPaused } = deps
  let closing: Promise<void> | undefined
  const tellPaused = (): void => settings.signals.emit('consumer.paused', { consumer: settings.name, paused: isPaused })
  const look: Pass = async () => {
    report()
    const { found, paused } = await engine.stored.pass()
    // Batches under way are finished first, however long they take; the loop goes round meanwhile.
    if (paused === isPaused || closing !== undefined) return found ? 'more' : 'idle'
    isPaused = paused
    if (paused) {
      const closed = subscriptions.close().then(tellPaused)
      closing = closed.catch((error: unknown) => pace.onError(error, 1, 0)).finally(() => (closing = undefined))
    } else {
      engine.waker.wake()
      tellPaused()
    }
    return found ? 'more' : 'idle'
  }
  const keepOpen: Pass = async () => {
    if (!isPaused && !subscriptions.isOpen()) await subscriptions.open(life.stopping)
    return 'idle'
  }
  const receive = async (): Promise<void> => {
    // A refusal of the broker at the start ends the consumer; later it is tried again.
    await keepOpen(life.aborting)
    await loop(keepOpen, life, pace)
  }
  const process: Pass = async () => (isPaused ? 'idle' : await processor.pass())
  const processes = settings.mode === 'stored' ? Array.from({ length: settings.concurrency }, () => process) : []
  try {
    if (processes.length > 0) await processor.prepare()
    if (isPaused) tellPaused()
    const passes = [watch.pulse?.around(look) ?? look, ...processes]
    await together([receive, ...passes.map((pass) => () => loop(pass, life, pace))], failed)
  } finally {
    await closing
    await subscriptions.close()
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
