/**
 * The relay's options: every one with its default and its range, and what cannot work together refused at start.
 */
import { randomBytes } from 'node:crypto'
import { resolveBackoff, type BackoffOptions } from '../../core/service/backoff.ts'
import { systemClock, type Clock } from '../../core/service/clock.ts'
import { defaults } from '../../core/defaults.ts'
import { WaybillError } from '../../core/errors.ts'
import { oneOf, resolve, wholeBetween } from '../../core/options.ts'
import { systemRandom, type Random } from '../../core/service/random.ts'
import { defaultSignals, type SignalBus } from '../../core/signals.ts'
import { isSigner, signatureBytes, type Signer } from '../../core/event/signing.ts'
import type { AnyStream } from '../../core/event/stream.ts'
import { noTracing, type Tracing } from '../../core/tracing.ts'
import type { Queryable } from '../../postgres/query/database.ts'
import type { Publisher } from '../../transport/port/transport.ts'
import type { Outbox } from '../outbox.ts'

export interface RelayOptions {
  readonly db: Queryable
  readonly outbox: Outbox
  readonly transport: Publisher
  /** The streams that it knows: their ordering, and whether their sizes and kinds fit the transport and `onPark`. Events of others are relayed as well, in the order of each aggregate. */
  readonly streams?: readonly AnyStream[]
  /** The service that must own the schema. @default whichever the schema is bound to */
  readonly service?: string | undefined
  /** The deployment that the schema must be stamped with: a copy of the whole disk is refused by nothing else. @default whichever it is stamped with */
  readonly deploymentId?: string | undefined
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
  /** An address straight to the server: commits that `notifyAfterCommit` announces there wake this relay. @default none: it polls */
  readonly listen?: string | undefined
  /** Rejections of one event before it is parked. @default 20 */
  readonly maxAttempts?: number
  /** The delay after the nth rejection of an event: `firstMs`, `maxMs`, `factor` and `jitter`; those left out are as by default. @default 1 s × 2 to 5 min, jittered */
  readonly backoff?: Partial<BackoffOptions>
  /** What a parked event does to those behind it: they wait, or (for events of `streams`, none of which may be a delta) an empty marker takes its place. @default 'hold' */
  readonly onPark?: 'hold' | 'pass'
  /** Signs every message, for consumers that verify (docs/guides/signing.md). @default none: messages are not signed */
  readonly signer?: Signer | undefined
  /** Write a receipt per event. @default true */
  readonly receipts?: boolean
  /** Keep published events until retention removes them, or remove each with its confirmation. @default 'events' */
  readonly retain?: 'events' | 'none'
  readonly signals?: SignalBus
  /** Continues the traces of events, such as `openTelemetryTracing()`. @default none */
  readonly tracing?: Tracing
  readonly clock?: Clock
  readonly random?: Random
}

export interface RelaySettings extends Required<Omit<RelayOptions, 'backoff'>> {
  readonly backoff: BackoffOptions
}

/** The options filled and checked, or INVALID_OPTION. */
export function resolveRelayOptions(given: RelayOptions): RelaySettings {
  const { leaseMs, renewMs, batchSize, drainSize, publishTimeoutMs, busyMs, idleMs, maxAttempts, backoff } = defaults.relay
  const settings = resolve<RelaySettings>(
    'relay',
    {
      db: given.db,
      outbox: given.outbox,
      transport: given.transport,
      streams: [],
      service: undefined,
      deploymentId: undefined,
      name: randomBytes(8).toString('hex'),
      batchSize,
      drainSize,
      leaseMs,
      renewMs,
      publishTimeoutMs,
      busyMs,
      idleMs,
      lingerMs: 0,
      listen: undefined,
      maxAttempts,
      backoff,
      onPark: 'hold',
      signer: undefined,
      receipts: true,
      retain: 'events',
      signals: defaultSignals,
      tracing: noTracing,
      clock: systemClock,
      random: systemRandom,
    },
    { ...given, backoff: resolveBackoff('relay.backoff', backoff, given.backoff) },
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
      onPark: oneOf('hold', 'pass'),
      signer: isSigner,
      receipts: oneOf(true, false),
      retain: oneOf('events', 'none'),
    },
  )
  if (settings.renewMs * 2 > settings.leaseMs)
    throw new WaybillError(
      'INVALID_OPTION',
      'relay.renewMs: must be at most half of leaseMs, so that one lost renewal does not lose the lanes.',
    )
  assertStreams(settings)
  return settings
}

function assertStreams({ streams, transport, onPark, signer }: RelaySettings): void {
  const maxBytes = transport.maxBytes - (signer === undefined ? 0 : signatureBytes)
  for (const stream of streams) {
    if (stream.maxBytes > maxBytes) {
      throw new WaybillError(
        'INVALID_OPTION',
        `relay: stream ${stream.aggregateType} allows events of ${stream.maxBytes} bytes, but the transport takes ${maxBytes}${signer === undefined ? '' : ' beside a signature'}. Lower the stream's maxBytes, or use a claim check.`,
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
