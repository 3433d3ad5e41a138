/**
 * The consumer's options: every one with its default and its range, and what cannot work together refused at start.
 */
import { resolveBackoff, type BackoffOptions } from '../../core/service/backoff.ts'
import { systemClock, type Clock } from '../../core/service/clock.ts'
import { defaults } from '../../core/defaults.ts'
import { WaybillError } from '../../core/errors.ts'
import { oneOf, resolve, wholeBetween } from '../../core/options.ts'
import { systemRandom, type Random } from '../../core/service/random.ts'
import { defaultSignals, type SignalBus } from '../../core/signals.ts'
import type { Verifier } from '../../core/event/signing.ts'
import type { AnyStream } from '../../core/event/stream.ts'
import { createTokens, type Tokens } from '../../core/event/token.ts'
import { noTracing, type Tracing } from '../../core/tracing.ts'
import type { Database } from '../../postgres/query/database.ts'
import type { Transport } from '../../transport/port/transport.ts'
import type { EmittingOutbox } from './handler.ts'

export interface ConsumerOptions<Native = unknown> {
  readonly db: Database<Native>
  readonly transport: Pick<Transport, 'receive'>
  /** Names the subscription, the inbox and the positions. Instances that share it share the work. */
  readonly name: string
  readonly streams: readonly AnyStream[]
  /**
   * Whether messages must be signed (docs/guides/signing.md): `required` refuses all others, `accept` lets unsigned ones in and counts
   * them, while writers begin to sign. What is refused is signalled, kept as a sample and acknowledged. @default 'off'
   */
  readonly verify?: 'required' | 'accept' | 'off'
  /** The keys whose signatures count, with `verify`: `createVerifier({ keys })`. @default none */
  readonly verifier?: Verifier | undefined
  /** Where handlers emit to. */
  readonly outbox?: EmittingOutbox | undefined
  /** The schema that holds the inbox. @default 'waybill' */
  readonly schema?: string
  /** The service that must own the schema. @default whichever the schema is bound to */
  readonly service?: string | undefined
  /** The deployment that the schema must be stamped with: a copy of the whole disk is refused by nothing else. @default whichever it is stamped with */
  readonly deploymentId?: string | undefined
  /**
   * `direct` applies deliveries and then acknowledges them. `stored` writes them down, acknowledges, and applies them from
   * there: for handlers that are slow, or brokers that must not wait. @default 'direct'
   */
  readonly mode?: 'direct' | 'stored'
  /** Stored messages in one transaction, at most. @default 1_000 */
  readonly processBatchSize?: number
  /** How long stored messages, and redriven or released ones, stay with an instance that died. @default 5_000 */
  readonly leaseMs?: number
  /** Keeps stored messages in `inbox_archive` when they are applied, until retention removes them. @default false */
  readonly archive?: boolean
  /** `false` if rows of project(…) and insert(…) are the only effects: versions and keys alone then remove duplicates. @default true */
  readonly inbox?: boolean
  /**
   * Whether a position moves with every event, or only where order needs it. An event whose one effect is a row then costs a
   * third less. Readers with tokens look at the version of the projected row instead, and a rebuild is refused. @default 'every'
   */
  readonly positions?: 'every' | 'needed'
  /**
   * Who remembers how far the consumer is with each partition: the broker, or our database, in the transaction of the effects.
   * `postgres` needs a transport with partitions, such as Kafka; each is then worked in the order of its log, and `inbox: false`
   * is enough for handlers too, unless the stream has no ordering key. @default 'broker'
   */
  readonly offsets?: 'broker' | 'postgres'
  /** Events in one transaction, at most. @default 500 */
  readonly batchSize?: number
  /** Bytes in one transaction, at most. @default 4 MiB */
  readonly batchBytes?: number
  /** How long a batch waits to become fuller. @default 5 */
  readonly lingerMs?: number
  /** Unsettled messages, at most. @default 1_000 */
  readonly maxInFlight?: number
  /** Bytes of unsettled messages, at most. @default 64 MiB */
  readonly maxInFlightBytes?: number
  /**
   * Batches under way at once; each takes one connection. Keep it below the size of the pool. Events that ran out of time have at most
   * half of them. @default 4
   */
  readonly concurrency?: number
  /** A handler may take this long, and so may each statement of it. @default 60_000 */
  readonly handlerTimeoutMs?: number
  /** A statement may take this long. @default 30_000 */
  readonly statementTimeoutMs?: number
  /** A statement may wait this long for a lock, such as a duplicate for the first delivery. @default 5_000 */
  readonly lockTimeoutMs?: number
  /** Failures of one event before it is given up. @default 10 */
  readonly maxAttempts?: number
  /** Deaths of the process while it handled an event, before that is given up. @default 3 */
  readonly maxCrashes?: number
  /** The delay after the nth failure of an event: `firstMs`, `maxMs`, `factor` and `jitter`; those left out are as by default. @default 100 ms × 2 to 60 s, jittered */
  readonly backoff?: Partial<BackoffOptions>
  /** What a given-up event does to the later ones of its aggregate: they wait for an operator, or go on without it. @default 'hold' */
  readonly onDead?: 'hold' | 'pass'
  /** What becomes of an event that keeps failing: a dead letter, or its key stands still until somebody acts. @default 'dead-letter' */
  readonly onPoison?: 'dead-letter' | 'stop'
  /**
   * What becomes of an event whose version another event has taken, as after a fail-over of its owner that lost commits: it is
   * signalled and takes its turn, or it is a dead letter that holds its aggregate, whatever `onDead` says. @default 'signal'
   */
  readonly onFork?: 'signal' | 'dead-letter'
  /**
   * What becomes of an event whose stream no running instance of the consumer reads: it is acknowledged and told of once, or it is a
   * dead letter. One that a running instance of another version reads is put aside for that one. @default 'ignore'
   */
  readonly onUnknownStream?: 'ignore' | 'dead-letter'
  /** Where deltas of an aggregate begin: at version 1, or, for a consumer that joins later, at the first that it sees. @default 'first' */
  readonly deltaStart?: 'first' | 'any'
  /** How far a version may be ahead of the last one that was seen of its aggregate. The first one that is seen is not measured. @default 1_000_000 */
  readonly maxVersionJump?: number
  /**
   * What becomes of an event whose version is further ahead: it is signalled and takes its turn, or it is taken for forged, as a dead
   * letter that neither moves nor holds its aggregate. @default 'signal'
   */
  readonly onVersionJump?: 'signal' | 'dead-letter'
  /** A message that waits for its predecessor for longer is reported as a gap. @default 60_000 */
  readonly gapAlertMs?: number
  /** The longest wait between two looks at released messages, redriven dead letters and the register. @default 1_000 */
  readonly pollMs?: number
  /** Reads the consistency tokens that `read` and `waitFor` are given: the writer's, with the same secrets. @default unsigned tokens */
  readonly tokens?: Tokens
  /** How long a reader waits for its token unless it says otherwise. @default 500 */
  readonly waitMs?: number
  /** The pause between two looks at all that readers wait for. @default 10 */
  readonly waitPollMs?: number
  /** Readers that wait at once, at most; the next one is OVERLOADED. @default 10_000 */
  readonly maxWaiters?: number
  /** Readers for whom the owner is asked at once (`otherwise`), at most; the next one is OVERLOADED. @default 1_000 */
  readonly maxFallbacks?: number
  /** Not ready while events are older than this when they are applied. @default 30_000 */
  readonly readyLagMs?: number
  readonly signals?: SignalBus
  /** Continues the traces of events, such as `openTelemetryTracing()`. @default none */
  readonly tracing?: Tracing
  readonly clock?: Clock
  readonly random?: Random
}

export interface ConsumerSettings<Native = unknown> extends Required<Omit<ConsumerOptions<Native>, 'backoff'>> {
  readonly backoff: BackoffOptions
}

/** The options filled and checked, or INVALID_OPTION. */
export function resolveConsumerOptions<Native>(given: ConsumerOptions<Native>): ConsumerSettings<Native> {
  const settings = resolve<ConsumerSettings<Native>>(
    'consumer',
    {
      db: given.db,
      transport: given.transport,
      name: given.name,
      streams: given.streams,
      verifier: undefined,
      outbox: undefined,
      schema: defaults.schema,
      service: undefined,
      deploymentId: undefined,
      archive: false,
      inbox: true,
      positions: 'every',
      offsets: 'broker',
      tokens: createTokens(),
      ...defaults.consumer,
      signals: defaultSignals,
      tracing: noTracing,
      clock: systemClock,
      random: systemRandom,
    },
    { ...given, backoff: resolveBackoff('consumer.backoff', defaults.consumer.backoff, given.backoff) },
    checks,
  )
  if (typeof settings.db?.attempt !== 'function')
    throw invalid('db: must come from an adapter: fromPg(pool), fromPostgresJs(sql), fromDrizzle(db) …')
  if (typeof settings.transport?.receive !== 'function') throw invalid('transport: must be a transport such as pubsub({ … })')
  assertVerifier('consumer', settings)
  if (settings.offsets === 'postgres' && settings.mode === 'stored')
    throw invalid("offsets: 'postgres' is for mode: 'direct'; stored messages have an order of their own")
  if (settings.onFork === 'dead-letter' && !settings.inbox)
    throw invalid("onFork: 'dead-letter' needs inbox: true, which tells a fork from a repeat")
  if (settings.onFork === 'dead-letter' && settings.positions === 'needed')
    throw invalid("onFork: 'dead-letter' needs positions: 'every', which say what each aggregate has taken")
  const isMeasuring = given.maxVersionJump !== undefined || settings.onVersionJump === 'dead-letter'
  if (isMeasuring && settings.positions === 'needed')
    throw invalid("maxVersionJump and onVersionJump: 'dead-letter' need positions: 'every', which say how far each aggregate is")
  if (settings.archive && settings.mode === 'direct')
    throw invalid("archive: is for mode: 'stored'; direct mode stores no messages")
  if (settings.maxInFlight < settings.batchSize) return { ...settings, batchSize: settings.maxInFlight }
  return settings
}

/** Whoever gives keys believes that they are used, and whoever asks for signatures that they are looked at. */
export function assertVerifier(component: string, { verify, verifier }: Pick<ConsumerSettings, 'verify' | 'verifier'>): void {
  if (verify === 'off' && verifier === undefined) return
  if (typeof verifier?.verify === 'function' && verify !== 'off') return
  const why =
    verify === 'off'
      ? "a verifier does nothing while verify is 'off'; say verify: 'required', or 'accept' while writers begin to sign"
      : `verify: '${verify}' needs verifier: createVerifier({ keys: [{ keyId, secret }] })`
  throw new WaybillError('INVALID_OPTION', `${component}: ${why}.`)
}

const checks = {
  verify: oneOf('required', 'accept', 'off'),
  name: (value: string) =>
    (typeof value === 'string' && /^[a-z][a-z0-9_.-]{0,127}$/.test(value)) ||
    'must be lower-case letters, digits, "_", "." and "-", starting with a letter',
  streams: (value: readonly AnyStream[]) =>
    (Array.isArray(value) &&
      value.length > 0 &&
      value.every((each: Partial<AnyStream> | undefined) => each?.events !== undefined)) ||
    'must be a list of at least one stream',
  mode: oneOf('direct', 'stored'),
  processBatchSize: wholeBetween(1, 10_000),
  leaseMs: wholeBetween(100, 600_000),
  archive: oneOf(true, false),
  inbox: oneOf(true, false),
  positions: oneOf('every', 'needed'),
  offsets: oneOf('broker', 'postgres'),
  batchSize: wholeBetween(1, 10_000),
  batchBytes: wholeBetween(1, 1_000_000_000),
  lingerMs: wholeBetween(0, 10_000),
  maxInFlight: wholeBetween(1, 100_000),
  maxInFlightBytes: wholeBetween(1, 10_000_000_000),
  concurrency: wholeBetween(1, 256),
  handlerTimeoutMs: wholeBetween(1, 3_600_000),
  statementTimeoutMs: wholeBetween(1, 3_600_000),
  lockTimeoutMs: wholeBetween(1, 3_600_000),
  maxAttempts: wholeBetween(1, 1_000_000),
  maxCrashes: wholeBetween(1, 1_000),
  onDead: oneOf('hold', 'pass'),
  onPoison: oneOf('dead-letter', 'stop'),
  onFork: oneOf('signal', 'dead-letter'),
  onUnknownStream: oneOf('ignore', 'dead-letter'),
  deltaStart: oneOf('first', 'any'),
  maxVersionJump: wholeBetween(1, 1_000_000_000),
  onVersionJump: oneOf('signal', 'dead-letter'),
  gapAlertMs: wholeBetween(1, 86_400_000),
  pollMs: wholeBetween(1, 600_000),
  waitMs: wholeBetween(0, 600_000),
  waitPollMs: wholeBetween(1, 60_000),
  maxWaiters: wholeBetween(1, 1_000_000),
  maxFallbacks: wholeBetween(1, 1_000_000),
  readyLagMs: wholeBetween(1, 86_400_000),
} as const

function invalid(message: string): WaybillError {
  return new WaybillError('INVALID_OPTION', `consumer.${message}`)
}
