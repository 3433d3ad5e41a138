/**
 * How a Kafka cluster is reached, and the client that reaches it.
 */
import { defaults } from '../../../core/defaults.ts'
import { WaybillError } from '../../../core/errors.ts'
import type { KafkaClient } from './kafka-client.ts'
import type { KafkaAddress } from './connections.ts'
import { platformaticClient } from './requests.ts'

export interface KafkaConnectionOptions {
  /** `host:port` of some brokers; the others are found through them. */
  readonly brokers: readonly string[]
  /** @default 'waybill' */
  readonly clientId?: string
  /** Options of `node:tls`; `{}` for TLS with the system's authorities. @default no TLS */
  readonly tls?: object | undefined
  /** Of `@platformatic/kafka`: `{ mechanism: 'SCRAM-SHA-512', username, password }` … @default no authentication */
  readonly sasl?: object | undefined
  /** Where a broker that calls itself so is reached from here: for tunnels and forwarded ports. @default as it calls itself */
  readonly addressOf?: (broker: KafkaAddress) => KafkaAddress
  /** @default 'none' */
  readonly compression?: 'none' | 'gzip' | 'snappy' | 'lz4' | 'zstd'
  /** What an answer to a fetch may become when its batches are inflated. A batch that is larger by itself cannot be read. @default 64 MiB */
  readonly maxInflatedBytes?: number
  /** The longest a request other than a publish, a fetch or a join may take. @default 10_000 */
  readonly requestTimeoutMs?: number
  /** @default 5_000 */
  readonly connectTimeoutMs?: number
}

/** A client of the cluster. It connects at the first use. */
export function connectKafka(options: KafkaConnectionOptions): KafkaClient {
  if (options.brokers.length === 0) throw new WaybillError('INVALID_OPTION', 'kafka.brokers: name at least one, as host:port.')
  return platformaticClient({
    brokers: options.brokers.map(parseBroker),
    clientId: options.clientId ?? 'waybill',
    tls: options.tls,
    sasl: options.sasl,
    addressOf: options.addressOf ?? ((broker) => broker),
    compression: options.compression ?? 'none',
    maxInflatedBytes: options.maxInflatedBytes ?? defaults.kafka.maxInflatedBytes,
    requestTimeoutMs: options.requestTimeoutMs ?? 10_000,
    connectTimeoutMs: options.connectTimeoutMs ?? 5_000,
  })
}

function parseBroker(broker: string): KafkaAddress {
  const [, host, port] = /^(?:\w+:\/\/)?(.+?)(?::(\d+))?$/.exec(broker) ?? []
  if (host === undefined)
    throw new WaybillError('INVALID_OPTION', `kafka.brokers: must be host:port, got ${JSON.stringify(broker)}.`)
  return { host, port: Number(port ?? 9092) }
}
