/**
 * The parts of a Kafka client whose requests are answered by a function, and never leave the process.
 */
import { type Ask, type ClientParts, KafkaConnections } from '../../src/transport/kafka/client/connections.ts'

const options = {
  brokers: [],
  clientId: 'waybill',
  tls: undefined,
  sasl: undefined,
  connectTimeoutMs: 1_000,
  requestTimeoutMs: 1_000,
  compression: 'none',
  maxInflatedBytes: 1_000_000,
  addressOf: (node: { readonly host: string; readonly port: number }) => node,
} as const

export function answeredParts(answerTo: (api: string, args: readonly unknown[]) => unknown): ClientParts {
  return {
    options,
    connections: new KafkaConnections(options),
    ask: (({ api, args = [] }) => Promise.resolve(answerTo(api, args))) as Ask,
    check: () => Promise.resolve(),
    nameOf: (code) => Promise.resolve(`error ${code}`),
  }
}
