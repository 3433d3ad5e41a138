/**
 * `waybill/kafka`: Kafka as a transport, and what a test or an operator does to a cluster.
 */
export { kafka } from './transport/kafka/kafka.ts'
export type { KafkaOptions } from './transport/kafka/kafka-options.ts'
export type { KafkaConnectionOptions } from './transport/kafka/client/connect.ts'
export { createKafkaAdmin, type KafkaAdmin } from './transport/kafka/admin.ts'
export type * from './transport/kafka/client/kafka-client.ts'
