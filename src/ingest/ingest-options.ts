/**
 * The options of an ingest: every one with its default and its range.
 */
import { resolveBackoff, type BackoffOptions } from '../core/service/backoff.ts'
import type { BusinessKey } from '../core/event/id.ts'
import { systemClock, type Clock } from '../core/service/clock.ts'
import { defaults } from '../core/defaults.ts'
import { WaybillError } from '../core/errors.ts'
import type { EventData } from '../core/event/event.ts'
import { resolve, wholeBetween } from '../core/options.ts'
import { systemRandom, type Random } from '../core/service/random.ts'
import { defaultSignals, type SignalBus } from '../core/signals.ts'
import { isSigner, type Signer } from '../core/event/signing.ts'
import type { AnyEventType, FactName } from './fact.ts'
import type { FactTarget } from './fact-sink.ts'

export interface IngestOptions<Type extends AnyEventType = AnyEventType> {
  /** The event that a fact becomes. Its stream belongs to these facts alone: the aggregate is the business key, at version 1. */
  readonly event: Type
  /** The business key of valid data: the same fact gives the same key, whoever sends it. */
  readonly key: (data: EventData<Type>) => BusinessKey
  /** A transport, or `{ db, outbox }`. */
  readonly to: FactTarget
  /** Whether a fact has arrived where it was meant to: asks a projection, an inbox (`processedBy`), or your own table. `'conflict'`: another one under its key. */
  readonly processed?: ((fact: FactName) => boolean | 'conflict' | Promise<boolean | 'conflict'>) | undefined
  /** Headers for every message, such as the trace context of the moment. */
  readonly headers?: () => Readonly<Record<string, string>>
  /** Signs every message to a broker, for consumers that verify. What goes to an outbox is signed by its relay. @default none: messages are not signed */
  readonly signer?: Signer | undefined
  /** Facts that wait for the broker, at most; more are refused with 429. @default 10_000 */
  readonly maxInFlight?: number
  /** Bytes of those facts, at most. @default 64 MiB */
  readonly maxInFlightBytes?: number
  /** Once a fact has waited longer for the broker, new ones are refused with 429. @default 2_000 */
  readonly slowMs?: number
  /** A batch that the broker has not confirmed by then is answered with 503. @default 10_000 */
  readonly publishTimeoutMs?: number
  /** Facts in one call to the broker, at most. @default 500 */
  readonly batchSize?: number
  /** Bytes in one call to the broker, at most. @default 1 MiB */
  readonly batchBytes?: number
  /** Calls to the broker under way at once. @default 4 */
  readonly concurrency?: number
  /** The largest request of `fetchIngest` and `honoIngest`; Fastify and Express have limits of their own. A request may have a value for every four of these bytes. @default 1 MiB */
  readonly maxBodyBytes?: number
  /** Facts in one request, at most. @default 1_000 */
  readonly maxFacts?: number
  /** What a refused sender is told to wait. @default 1_000 */
  readonly retryAfterMs?: number
  /** How long nothing is tried after the broker could not be reached: `firstMs`, `maxMs`, `factor` and `jitter`; those left out are as by default. @default 250 ms × 2 to 5 s, jittered */
  readonly breakerBackoff?: Partial<BackoffOptions>
  readonly signals?: SignalBus
  readonly clock?: Clock
  readonly random?: Random
}

/** The options filled. */
export interface IngestSettings extends Required<Omit<IngestOptions, 'breakerBackoff'>> {
  readonly breakerBackoff: BackoffOptions
}

/** The options filled and checked, or INVALID_OPTION. */
export function resolveIngestOptions<Type extends AnyEventType>(given: IngestOptions<Type>): IngestSettings {
  const { event, key, to } = given as unknown as IngestOptions
  const breakerBackoff = resolveBackoff('ingest.breakerBackoff', defaults.ingest.breakerBackoff, given.breakerBackoff)
  const settings = resolve<IngestSettings>(
    'ingest',
    {
      event,
      key,
      to,
      processed: undefined,
      signer: undefined,
      headers: () => ({}),
      ...defaults.ingest,
      signals: defaultSignals,
      clock: systemClock,
      random: systemRandom,
    },
    { ...(given as unknown as IngestOptions), breakerBackoff },
    checks,
  )
  if (typeof event?.codec?.encode !== 'function' || event.kind === 'tombstone')
    throw invalid('event: must be a state or delta of a stream, such as readings.ReadingTaken')
  if (typeof key !== 'function') throw invalid('key: must be a function from the data to its business key')
  if (!isTarget(to)) throw invalid('to: must be a transport such as kafka({ … }), or { db, outbox }')
  if ('outbox' in to && settings.signer !== undefined)
    throw invalid('signer: signs what goes to a broker; what goes to an outbox is signed by its relay: give that the signer')
  return settings
}

const checks = {
  signer: isSigner,
  maxInFlight: wholeBetween(1, 1_000_000),
  maxInFlightBytes: wholeBetween(1, 10_000_000_000),
  slowMs: wholeBetween(1, 600_000),
  publishTimeoutMs: wholeBetween(1, 600_000),
  batchSize: wholeBetween(1, 10_000),
  batchBytes: wholeBetween(1, 1_000_000_000),
  concurrency: wholeBetween(1, 256),
  maxBodyBytes: wholeBetween(1, 1_000_000_000),
  maxFacts: wholeBetween(1, 100_000),
  retryAfterMs: wholeBetween(1, 600_000),
} as const

function isTarget(to: unknown): to is FactTarget {
  const { publish, outbox, db } = (to ?? {}) as Record<string, unknown>
  if (typeof publish === 'function') return true
  const { addMany } = (outbox ?? {}) as Record<string, unknown>
  return typeof addMany === 'function' && typeof (db as { attempt?: unknown } | undefined)?.attempt === 'function'
}

function invalid(message: string): WaybillError {
  return new WaybillError('INVALID_OPTION', `ingest.${message}.`)
}
