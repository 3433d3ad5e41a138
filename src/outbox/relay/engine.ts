/**
 * One life of a relay: the leases, the pass and the loops around them.
 *
 * Three loops share one set of leases. The pass loop does the work; the renewing loop keeps the lanes while a batch is under
 * way, but not for ever: a batch that hangs loses them; the watching loop reads pauses and reports the backlog. None of them waits
 * without end for a connection that is dead and nobody has said so.
 */
import { backoffMs } from '../../core/service/backoff.ts'
import { createBreaker, type Breaker, type BreakerState } from '../../core/service/breaker.ts'
import { defaults } from '../../core/defaults.ts'
import { WaybillError } from '../../core/errors.ts'
import type { Lifetime } from '../../core/service/lifetime.ts'
import { loop, type Pace, type Pass, type Waker } from '../../core/service/loop.ts'
import type { Pulse } from '../../core/service/heartbeat.ts'
import { signedPublisher } from '../../core/event/signing.ts'
import type { AnyStream } from '../../core/event/stream.ts'
import { one, type Queryable } from '../../postgres/query/database.ts'
import { createLaneLeases, type LaneLeases } from '../../postgres/lanes/lane-leases.ts'
import { answerGraceMs, withDeadlines } from '../../postgres/transaction/deadline.ts'
import { readRemaining } from '../tables/backlog.sql.ts'
import { createBatchWatch, type BatchWatch } from './batch-deadline.ts'
import { createLaneHints, type LaneHints } from '../wake-up/lane-hints.ts'
import { createLaneWindows } from './read-sizes.ts'
import { createOutboxWatch, type OutboxWatch } from '../backlog/watch.ts'
import type { RelaySettings } from './relay-options.ts'
import { idling, lingering, yielding } from './pace.ts'
import { relayPass } from './pass.ts'
import { pausedForMs } from '../tables/pause.sql.ts'
import type { OutcomeRules } from './plan.ts'
import { relaySteps, type RelaySteps } from './steps.ts'
import { createTopicGates, type TopicGates } from './topic-breakers.ts'

export interface RelayEngine {
  /** Works until `stopping`; `pulse` beats with every pass. */
  run(life: Lifetime, waker: Waker, pulse?: Pulse): Promise<void>
  /** Works until nothing is due, or `stopping`; returns how many events went out. */
  drain(life: Lifetime): Promise<number>
  /** Gives the lanes back and ends the heartbeat. A breaker that was told to be open is told to be closed first, whatever becomes of that. */
  leave(): Promise<void>
}

export interface EngineParts {
  /** The relay's own, except in tests that break one of them. @default relaySteps */
  readonly steps?: RelaySteps
  /** What whoever wakes the relay knows. @default none */
  readonly hints?: LaneHints
}

export function createRelayEngine(given: RelaySettings, parts: EngineParts = {}): RelayEngine {
  const settings = { ...given, db: relayDatabase(given) }
  const { steps = relaySteps, hints = createLaneHints(settings.clock, settings.idleMs) } = parts
  const { db, outbox, name, leaseMs, renewMs, clock, random, signals } = settings
  const leases = createLaneLeases({ db, tables: outbox.tables, worker: name, leaseMs, renewMs, clock, signals })
  const batch = createBatchWatch(clock, defaults.relay.batchTimeoutMs)
  // Relays of one outbox may be set up differently for a while; none undoes what another has put off.
  const longestRetryMs = Math.max(settings.backoff.maxMs, defaults.relay.backoff.maxMs, defaults.relay.topicRestMs, pausedForMs)
  const watch = createOutboxWatch({ db, tables: outbox.tables, leases, signals, clock, longestRetryMs })
  const breaker = breakerOf(settings, (state) =>
    signals.emit('relay.breaker', { relay: name, outbox: outbox.tables.schema, state }),
  )
  const topics = gatesOf(settings)
  let published = 0
  const pass = informed(
    watch,
    passOf(settings, { steps, hints, leases, batch, watch, breaker, topics, onPublished: (count) => (published += count) }),
  )
  const renewing: Pass = async () => {
    if (!batch.isStuck()) await leases.renew(batch.range())
    return 'idle'
  }
  const onError = (error: unknown, failures: number, delayMs: number): void =>
    signals.emit('service.failed', { service: `relay ${name}`, error, failures, delayMs })

  /** Keeps the leases, the watch and the count going for as long as `work` takes. */
  const whileRenewing = (aborting: AbortSignal, work: () => Promise<void>): Promise<void> =>
    besides([renewing, watch.pass, watch.count], { aborting, pace: { idleMs: () => renewMs, onError, clock, random } }, work)
  const drainAll = async ({ stopping, aborting }: Lifetime): Promise<void> => {
    const isOver = (): boolean => stopping.aborted || aborting.aborted
    while (!isOver()) {
      const next = await pass(aborting)
      // Before the broker is blamed: it may have been given up because we were told to.
      if (isOver()) return
      if (breaker.state() !== 'closed') throw outOfReach()
      if (next === 'more') continue
      if ((await one(db, readRemaining(outbox.tables, name, leaseMs))).remaining === 0) return assertRoutable(topics)
      // Left over are rows in the lanes of a relay that died; they are free when its leases end.
      await clock.sleep(Math.min(renewMs, leaseMs / 4), stopping)
    }
  }
  return {
    run: async (life, waker, pulse) => {
      const whole = yielding(lingering(pass, settings), { breaker, leases, leaseMs, count: watch.count })
      const working = pulse?.around(whole) ?? whole
      await whileRenewing(life.aborting, () =>
        loop(working, life, { idleMs: idling(settings, breaker), onError, waker, clock, random }),
      )
    },
    drain: async (life) => {
      await whileRenewing(life.aborting, () => drainAll(life))
      return published
    },
    leave: () => {
      // The next life has a breaker of its own, which would never say that what this one told is over.
      breaker.reset()
      return leases.release({ leave: true })
    },
  }
}

/**
 * The relay's database, with an end to every wait. All that it sends are single statements. After the time of a batch and of a lease
 * the lanes that one was for are lost, so nobody needs its answer, and none waits for a lock so long.
 *
 * A statement that was given up may land all the same, like one whose connection broke. Fenced by the tokens of its lanes, and naming
 * rows by their identity, it does what it would have done in time, or nothing. Those without a token may land whenever they like:
 * lanes that were taken unheard are free when that lease ends, a heartbeat counts for a lease, a farewell is made good by the next
 * heartbeat of that name, and a retry that is woken was to be tried anyway.
 */
export function relayDatabase({ db, leaseMs, clock }: Pick<RelaySettings, 'db' | 'leaseMs' | 'clock'>): Queryable {
  return withDeadlines(db, { statementMs: defaults.relay.batchTimeoutMs + leaseMs + answerGraceMs, clock })
}

/** Runs each of these passes again and again for as long as `work` takes. */
async function besides(
  passes: readonly Pass[],
  { aborting, pace }: { readonly aborting: AbortSignal; readonly pace: Pace },
  work: () => Promise<void>,
): Promise<void> {
  const ended = new AbortController()
  const loops = passes.map((each) => loop(each, { stopping: ended.signal, aborting }, pace))
  try {
    await work()
  } finally {
    ended.abort()
    await Promise.all(loops)
  }
}

/** Before the pauses are known, a pass could publish what an operator holds back. */
function informed(watch: OutboxWatch, pass: Pass): Pass {
  return async (aborting) => {
    if (!watch.isInformed()) await watch.pass(aborting)
    return await pass(aborting)
  }
}

interface Parts {
  readonly steps: RelaySteps
  readonly hints: LaneHints
  readonly leases: LaneLeases
  readonly batch: BatchWatch
  readonly watch: OutboxWatch
  readonly breaker: Breaker
  readonly topics: TopicGates
  readonly onPublished: (count: number) => void
}

function passOf(settings: RelaySettings, { watch, ...parts }: Parts): Pass {
  return relayPass({
    ...parts,
    db: settings.db,
    tables: settings.outbox.tables,
    relay: settings.name,
    publisher: signedPublisher(settings.transport, settings.signer),
    windows: createLaneWindows(settings.batchSize, settings.drainSize),
    isAllPaused: () => watch.isAllPaused(),
    planRules: {
      orderingOf: orderingOf(settings.streams),
      isPaused: (aggregateType, aggregateId) => watch.isPaused(aggregateType, aggregateId),
    },
    outcomeRules: {
      maxAttempts: settings.maxAttempts,
      backoffMs: (failures) => backoffMs(settings.backoff, failures, settings.random),
      onPark: onParkOf(settings),
    },
    keep: { receipts: settings.receipts, events: settings.retain === 'events' },
    publishTimeoutMs: settings.publishTimeoutMs,
    signals: settings.signals,
    tracing: settings.tracing,
    clock: settings.clock,
  })
}

function outOfReach(): WaybillError {
  return new WaybillError(
    'UNAVAILABLE',
    'The broker is out of reach; nothing was lost. Run the relay again when the broker is back.',
  )
}

function assertRoutable(topics: TopicGates): void {
  const [cause] = topics.errors()
  if (cause === undefined) return
  throw new WaybillError(
    'UNAVAILABLE',
    `${cause.message} The events of such topics wait; everything else went out. Run the relay again when that is mended.`,
    { cause },
  )
}

function breakerOf({ clock, random }: RelaySettings, onChange: (state: BreakerState) => void = () => {}): Breaker {
  return createBreaker({ backoff: defaults.relay.breakerBackoff, clock, random, onChange })
}

function gatesOf(settings: RelaySettings): TopicGates {
  const rest = { firstMs: defaults.relay.topicRestMs, maxMs: defaults.relay.topicRestMs }
  return createTopicGates({ newBreaker: () => breakerOf(settings), restMs: () => backoffMs(rest, 1, settings.random) })
}

/** An event that the relay does not know may be a delta, which must not be passed over; a known delta is refused at start. */
function onParkOf({ streams, onPark }: RelaySettings): OutcomeRules['onPark'] {
  return ({ aggregate_type: type, event_type: event }) =>
    streams.some(({ aggregateType, events }) => aggregateType === type && Object.hasOwn(events, event)) ? onPark : 'hold'
}

function orderingOf(streams: readonly AnyStream[]): (aggregateType: string) => AnyStream['ordering'] {
  const known = new Map(streams.map((stream) => [stream.aggregateType, stream.ordering]))
  return (aggregateType) => known.get(aggregateType) ?? 'aggregate'
}
