/**
 * The transport that service and consumer share: Kafka where KAFKA_BROKERS names one, otherwise the Pub/Sub server at BROKER.
 *
 * The times are short, so that a process that was killed is missed soon. One replica is enough for a Kafka of one node; a real
 * cluster keeps the default of two.
 */
import type { Transport } from 'waybill'
import { kafka } from 'waybill/kafka'
import { pubsub } from 'waybill/pubsub'

export function openTransport(): Transport {
  const { KAFKA_BROKERS, BROKER = '' } = process.env
  if (KAFKA_BROKERS === undefined) return pubsub({ projectId: 'ingest', emulatorHost: BROKER, publishTimeoutMs: 2_000 })
  return kafka({
    brokers: KAFKA_BROKERS.split(','),
    minInsyncReplicas: 1,
    publishTimeoutMs: 2_000,
    sessionTimeoutMs: 6_000,
    heartbeatMs: 1_000,
  })
}
