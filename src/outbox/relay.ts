/**
 * The relay as a service: moves committed events from the outbox to the broker, beside any number of other relays.
 *
 * Three loops share one set of leases: the pass loop does the work, the renewing loop keeps the lanes while a batch is under
 * way (but not for ever: a batch that hangs loses them), and the watching loop reads pauses and reports the backlog.
 * Stopping finishes the batch in hand and gives the lanes back, so that others go on at once.
 */
import { randomBytes } from 'node:crypto'
import { backoffMs, type BackoffOptions } from '../core/backoff.ts'
import { createBreaker, type Breaker } from '../core/breaker.ts'
import { systemClock, type Clock } from '../core/clock.ts'
import { defaults } from '../core/defaults.ts'
import { WaybillError } from '../core/errors.ts'
import type { Lifetime, Service } from '../core/lifetime.ts'
import { createWaker, loop, type Pass, type Waker } from '../core/loop.ts'
import { resolve, wholeBetween } from '../core/options.ts'
import { systemRandom, type Random } from '../core/random.ts'
import { defaultSignals, type SignalBus } from '../core/signals.ts'
import type { AnyStream } from '../core/stream.ts'
import { one, type Queryable } from '../postgres/database.ts'
import { assertSchema } from '../postgres/deployment.ts'
import { createLaneLeases, type LaneLeases } from '../postgres/lane-leases.ts'
import type { Publisher } from '../transport/transport.ts'
import { readRemaining } from './backlog.sql.ts'
import { createBatchWatch } from './batch-watch.ts'
import { createLaneWindows } from './lane-windows.ts'
import type { Outbox } from './outbox.ts'
import { createOutboxWatch } from './outbox-watch.ts'
import { relayPass } from './relay-pass.ts'

export interface RelayOptions {
  readonly db: Queryable
  readonly outbox: Outbox
  readonly transport: Publisher
  /** Streams with an ordering, a size limit or a park policy of their own. Events of other streams are relayed as well. */
  readonly streams?: readonly AnyStream[]
  /** The service that must own the schema. @default whichever the schema is bound to */
  readonly service?: string | undefined
  /** Unique among the relays that live at the same time. @default random */
  readonly name?: string
  /** Events in a pass while there is little to do. @default 500 */
  readonly batchSize?: number
  /** Events in a pass while there is a backlog. @default 5_000 */
  readonly drainSize?: number
  /** How long a lane stays ours after the last renewal: a killed relay stalls its lanes this long. @default 5_000 */
  readonly leaseMs?: number
  /** @default 1_500 */
  readonly renewMs?: number
  /** @default 10_000 */
  readonly publishTimeoutMs?: number
  /** The first wait after work, doubling up to `idleMs`. @default 5 */
  readonly busyMs?: number
  /** The longest wait between two looks at the outbox. @default 50 */
  readonly idleMs?: number
  /** Wait this long after a wake-up, for fuller batches. @default 0 */
  readonly lingerMs?: number
  /** Rejections of one event before it is parked. @default 20 */
  readonly maxAttempts?: number
  /** @default 1 s × 2 to 5 min, jittered */
  readonly backoff?: BackoffOptions
  /** What a parked event does to those behind it: they wait, or (for streams of state events only) an empty marker takes its place. @default 'hold' */
  readonly onPark?: 'hold' | 'pass'
  /** Write a receipt per event. @default true */
  readonly receipts?: boolean
  /** Keep published events until retention removes them, or remove each with its confirmation. @default 'events' */
  readonly retain?: 'events' | 'none'
  readonly signals?: SignalBus
  readonly clock?: Clock
  readonly random?: Random
}

export interface Relay extends Service {
  /** Works until nothing is due any more, gives its lanes back and returns how many events it published. */
  once(signal?: AbortSignal): Promise<number>
  /** Says that there is news: shortens the wait under way. */
  nudge(): void
}

type Settings = Required<RelayOptions>

export function createRelay(options: RelayOptions): Relay {
  const settings = resolveOptions(options)
  assertStreams(settings)
  const waker = createWaker()
  return {
    name: `relay ${settings.name}`,
    nudge: () => waker.wake(),
    run: async (life) => {
      await assertSchema(settings.db, { schema: settings.outbox.tables.schema, service: settings.service })
      const engine = createEngine(settings)
      const unsubscribe = settings.outbox.onCommitted(() => waker.wake())
      try {
        await engine.run(life, waker)
      } finally {
        unsubscribe()
        await engine.leases.release({ leave: true })
      }
    },
    once: async (signal = new AbortController().signal) => {
      await assertSchema(settings.db, { schema: settings.outbox.tables.schema, service: settings.service })
      const engine = createEngine(settings)
      try {
        return await engine.drain(signal)
      } finally {
        await engine.leases.release({ leave: true })
      }
    },
  }
}

interface Engine {
  readonly leases: LaneLeases
  run(life: Lifetime, waker: Waker): Promise<void>
  drain(signal: AbortSignal): Promise<number>
}

function createEngine(settings: Settings): Engine {
  const { db, outbox, name, leaseMs, renewMs, clock, signals } = settings
  const leases = createLaneLeases({ db, tables: outbox.tables, worker: name, leaseMs, renewMs, clock, signals })
  const batch = createBatchWatch(clock, defaults.relay.batchTimeoutMs)
  const watch = createOutboxWatch({ db, tables: outbox.tables, leases, signals, clock })
  const breaker = breakerOf(settings)
  let published = 0
  const pass = relayPass({
    db,
    tables: outbox.tables,
    relay: name,
    publisher: settings.transport,
    leases,
    windows: createLaneWindows(settings.batchSize, settings.drainSize),
    breaker,
    planRules: { orderingOf: orderingOf(settings.streams), isPaused: watch.isPaused },
    outcomeRules: {
      maxAttempts: settings.maxAttempts,
      backoffMs: (failures) => backoffMs(settings.backoff, failures, settings.random),
      onPark: () => settings.onPark,
    },
    keep: { receipts: settings.receipts, events: settings.retain === 'events' },
    publishTimeoutMs: settings.publishTimeoutMs,
    batch,
    signals,
    clock,
    onPublished: (count) => (published += count),
  })
  const renewing: Pass = async () => {
    if (!batch.isStuck()) await leases.renew(batch.range())
    return 'idle'
  }
  const onError = (error: unknown, failures: number, delayMs: number): void =>
    signals.emit('service.failed', { service: `relay ${name}`, error, failures, delayMs })
  /** Keeps the leases and the watch going for as long as `work` takes. */
  const whileRenewing = async (aborting: AbortSignal, work: () => Promise<void>): Promise<void> => {
    const ended = new AbortController()
    const life: Lifetime = { stopping: ended.signal, aborting }
    const renewal = loop(renewing, life, { idleMs: () => renewMs, onError, clock })
    const watching = loop(watch.pass, life, { idleMs: () => renewMs, onError, clock })
    try {
      await work()
    } finally {
      ended.abort()
      await Promise.all([renewal, watching])
    }
  }
  return {
    leases,
    run: async (life, waker) => {
      const working = yielding(lingering(pass, settings), { breaker, leases, leaseMs })
      await whileRenewing(life.aborting, () => loop(working, life, { idleMs: idling(settings, breaker), onError, waker, clock }))
    },
    drain: async (signal) => {
      await watch.pass(signal)
      await whileRenewing(signal, async () => {
        while (!signal.aborted) {
          if (breaker.waitMs() > 0) throw outOfReach()
          if ((await pass(signal)) === 'more') continue
          if ((await one(db, readRemaining(outbox.tables, name, leaseMs))).remaining === 0) return
          // Left over are rows in the lanes of a relay that died; they are free when its leases end.
          await clock.sleep(Math.min(renewMs, leaseMs / 4), signal)
        }
      })
      return published
    },
  }
}

/** A relay that cannot publish must not sit on its lanes: after three leases it gives them back, and tries again later. */
function yielding(
  pass: Pass,
  { breaker, leases, leaseMs }: { readonly breaker: Breaker; readonly leases: LaneLeases; readonly leaseMs: number },
): Pass {
  return async (aborting) => {
    const hopeless = breaker.waitMs() > 0 && breaker.openForMs() > 3 * leaseMs
    if (!hopeless) return await pass(aborting)
    if (leases.held().length > 0) await leases.release({ leave: true })
    return 'idle'
  }
}

/** After an idle wait, news is given a moment to be joined by more. */
function lingering(pass: Pass, { lingerMs, clock }: Settings): Pass {
  if (lingerMs === 0) return pass
  let wasIdle = false
  return async (aborting) => {
    if (wasIdle) await clock.sleep(lingerMs, aborting)
    const next = await pass(aborting)
    wasIdle = next === 'idle'
    return next
  }
}

/** 5 ms after work, doubling to 50 ms; while the broker is down, until it is worth asking again. */
function idling({ busyMs, idleMs, renewMs }: Settings, breaker: Breaker): (idlePasses: number) => number {
  return (idlePasses) =>
    Math.max(Math.min(breaker.waitMs(), renewMs), Math.min(idleMs, busyMs * 2 ** Math.min(idlePasses - 1, 20)))
}

function outOfReach(): WaybillError {
  return new WaybillError(
    'UNAVAILABLE',
    'The broker is out of reach; nothing was lost. Run the relay again when the broker is back.',
  )
}

function breakerOf({ name, clock, random, signals }: Settings): Breaker {
  return createBreaker({
    backoff: defaults.relay.breakerBackoff,
    clock,
    random,
    onChange: (state) => signals.emit('relay.breaker', { relay: name, state }),
  })
}

function orderingOf(streams: readonly AnyStream[]): (aggregateType: string) => AnyStream['ordering'] {
  const known = new Map(streams.map((stream) => [stream.aggregateType, stream.ordering]))
  return (aggregateType) => known.get(aggregateType) ?? 'aggregate'
}

function assertStreams({ streams, transport, onPark }: Settings): void {
  for (const stream of streams) {
    if (stream.maxBytes > transport.maxBytes) {
      throw new WaybillError(
        'INVALID_OPTION',
        `relay: stream ${stream.aggregateType} allows events of ${stream.maxBytes} bytes, but the transport takes ${transport.maxBytes}. Lower the stream's maxBytes, or use a claim check.`,
      )
    }
    const deltas = Object.values(stream.events).filter((event) => event.kind === 'delta')
    if (onPark === 'pass' && deltas.length > 0) {
      throw new WaybillError(
        'INVALID_OPTION',
        `relay.onPark: 'pass' is for streams of state events, but ${deltas[0]?.name} of stream ${stream.aggregateType} is a delta.`,
      )
    }
  }
}

function resolveOptions(given: RelayOptions): Settings {
  const { leaseMs, renewMs, batchSize, drainSize, publishTimeoutMs, busyMs, idleMs, maxAttempts, backoff } = defaults.relay
  const settings = resolve<Settings>(
    'relay',
    {
      db: given.db,
      outbox: given.outbox,
      transport: given.transport,
      streams: [],
      service: undefined,
      name: randomBytes(8).toString('hex'),
      batchSize,
      drainSize,
      leaseMs,
      renewMs,
      publishTimeoutMs,
      busyMs,
      idleMs,
      lingerMs: 0,
      maxAttempts,
      backoff,
      onPark: 'hold',
      receipts: true,
      retain: 'events',
      signals: defaultSignals,
      clock: systemClock,
      random: systemRandom,
    },
    given,
    {
      batchSize: wholeBetween(1, 10_000),
      drainSize: wholeBetween(1, 50_000),
      leaseMs: wholeBetween(100, 600_000),
      renewMs: wholeBetween(20, 300_000),
      publishTimeoutMs: wholeBetween(10, 29_000),
      busyMs: wholeBetween(1, 60_000),
      idleMs: wholeBetween(1, 60_000),
      lingerMs: wholeBetween(0, 1_000),
      maxAttempts: wholeBetween(1, 1_000_000),
    },
  )
  if (settings.renewMs * 2 > settings.leaseMs)
    throw new WaybillError(
      'INVALID_OPTION',
      'relay.renewMs: must be at most half of leaseMs, so that one lost renewal does not lose the lanes.',
    )
  return settings
}
