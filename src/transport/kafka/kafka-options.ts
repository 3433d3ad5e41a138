/**
 * The options of the Kafka transport, their defaults and what they may be.
 */
import { systemClock, type Clock } from '../../core/service/clock.ts'
import { defaults } from '../../core/defaults.ts'
import { WaybillError } from '../../core/errors.ts'
import { oneOf, resolve, wholeBetween, type Checks } from '../../core/options.ts'
import { systemRandom, type Random } from '../../core/service/random.ts'
import { defaultSignals, type SignalBus } from '../../core/signals.ts'
import type { AnyStream } from '../../core/event/stream.ts'
import { connectKafka, type KafkaConnectionOptions } from './client/connect.ts'
import type { KafkaClient } from './client/kafka-client.ts'

export interface KafkaOptions extends KafkaConnectionOptions {
  /** Replicas that must be in sync for a message to be confirmed; a topic that asks for fewer is refused. 0 asks for nothing. @default 2 */
  readonly minInsyncReplicas?: number
  /** The largest message: body, attributes and key. The topic's `max.message.bytes` must have room for it. @default 1_000_000 */
  readonly maxBytes?: number
  /** The longest a message may be on its way before it counts as failed. @default 10_000 */
  readonly publishTimeoutMs?: number
  /** The largest publish request. @default 8_388_608 */
  readonly maxRequestBytes?: number
  /** Streams of whole states, each alone on a compacted topic: a tombstone gets a null value, so that the topic forgets the aggregate. @default [] */
  readonly compacted?: readonly AnyStream[]
  /** The consumer group's name. No two consumers may share one. @default `<topic>.<consumer>` */
  readonly groupId?: (topic: string, consumer: string) => string
  /** Static membership: a name for this process that it keeps over restarts. A restart then costs no rebalance. */
  readonly instanceId?: string
  /** A member that is silent for this long loses its partitions. @default 45_000 */
  readonly sessionTimeoutMs?: number
  /** @default 3_000 */
  readonly heartbeatMs?: number
  /** How long the group waits for its members to join again. @default 60_000 */
  readonly rebalanceTimeoutMs?: number
  /** How long a rebalance waits for what is in hand. Below `rebalanceTimeoutMs`. @default 30_000 */
  readonly drainTimeoutMs?: number
  /** With so many messages of a partition read and not committed no more are fetched: how far other keys go on while one is held. @default 10_000 */
  readonly maxWindow?: number
  /** How long a fetch waits for data. @default 500 */
  readonly fetchMaxWaitMs?: number
  /** The largest answer to a fetch; it is read in one go, while nothing else runs. @default 2_097_152 */
  readonly fetchMaxBytes?: number
  /** How often the number of partitions is looked at. @default 60_000 */
  readonly metadataMaxAgeMs?: number
  /** How often `transport.lag` is reported. @default 10_000 */
  readonly lagMs?: number
  /** Another Kafka client; called for publishing and for each receiver. @default one over `@platformatic/kafka` */
  readonly client?: () => KafkaClient
  /** @default reports on node:diagnostics_channel only */
  readonly signals?: SignalBus
  /** @default the system's clock */
  readonly clock?: Clock
  /** @default the system's randomness */
  readonly random?: Random
}

type Optional = 'tls' | 'sasl' | 'instanceId'
export type KafkaSettings = Required<Omit<KafkaOptions, Optional | 'client'>> & {
  readonly [Name in Optional]: KafkaOptions[Name] | undefined
} & { readonly client: () => KafkaClient }

/** Fills, checks, and refuses what does not go together. */
export function resolveKafkaOptions(given: KafkaOptions): KafkaSettings {
  const settings: KafkaSettings = resolve<KafkaSettings>(
    'kafka',
    { ...plain, client: () => connectKafka(settings) },
    given,
    checks,
  )
  for (const [smaller, larger] of [
    ['heartbeatMs', 'sessionTimeoutMs'],
    ['drainTimeoutMs', 'rebalanceTimeoutMs'],
  ] as const) {
    if (settings[smaller] < settings[larger]) continue
    throw new WaybillError(
      'INVALID_OPTION',
      `kafka.${smaller}: must be below ${larger} (${settings[larger]}), got ${settings[smaller]}.`,
    )
  }
  return settings
}

const plain: Omit<KafkaSettings, 'client'> = {
  brokers: [],
  clientId: 'waybill',
  tls: undefined,
  sasl: undefined,
  addressOf: (broker) => broker,
  minInsyncReplicas: 2,
  maxBytes: 1_000_000,
  compression: 'none',
  ...defaults.kafka,
  publishTimeoutMs: 10_000,
  maxRequestBytes: 8_388_608,
  compacted: [],
  groupId: (topic, consumer) => `${topic}.${consumer}`,
  instanceId: undefined,
  sessionTimeoutMs: 45_000,
  heartbeatMs: 3_000,
  rebalanceTimeoutMs: 60_000,
  drainTimeoutMs: 30_000,
  maxWindow: 10_000,
  fetchMaxWaitMs: 500,
  fetchMaxBytes: 2_097_152,
  metadataMaxAgeMs: 60_000,
  lagMs: 10_000,
  requestTimeoutMs: 10_000,
  connectTimeoutMs: 5_000,
  signals: defaultSignals,
  clock: systemClock,
  random: systemRandom,
}

/** Compaction keeps the last record of a key: the key must be the aggregate, and nobody else's, and each record the whole state. */
function compactable(streams: readonly AnyStream[]): true | string {
  if (!Array.isArray(streams)) return 'must be a list of streams'
  const owners = new Map<string, string>()
  for (const { topic, aggregateType, ordering, events } of streams as readonly AnyStream[]) {
    const delta = Object.values(events).find(({ kind }) => kind === 'delta')
    const owner = owners.get(topic) ?? aggregateType
    if (ordering !== 'aggregate') return `stream ${aggregateType} has ordering '${ordering}'; compaction needs 'aggregate'`
    if (delta !== undefined) return `stream ${aggregateType} has the delta ${delta.name}, which compaction would lose`
    if (owner !== aggregateType)
      return `streams ${owner} and ${aggregateType} share topic ${topic}, where compaction would take their equal ids for one`
    owners.set(topic, owner)
  }
  return true
}

const milliseconds = wholeBetween(1, 3_600_000)
const checks: Checks<KafkaSettings> = {
  minInsyncReplicas: wholeBetween(0, 100),
  maxBytes: wholeBetween(1, 1_000_000_000),
  compression: oneOf('none', 'gzip', 'snappy', 'lz4', 'zstd'),
  maxInflatedBytes: wholeBetween(1, 1_000_000_000),
  publishTimeoutMs: milliseconds,
  maxRequestBytes: wholeBetween(1, 100_000_000),
  compacted: compactable,
  sessionTimeoutMs: milliseconds,
  heartbeatMs: milliseconds,
  rebalanceTimeoutMs: milliseconds,
  drainTimeoutMs: milliseconds,
  maxWindow: wholeBetween(1, 10_000_000),
  fetchMaxWaitMs: milliseconds,
  fetchMaxBytes: wholeBetween(1, 1_000_000_000),
  metadataMaxAgeMs: milliseconds,
  lagMs: milliseconds,
  requestTimeoutMs: milliseconds,
  connectTimeoutMs: milliseconds,
}
