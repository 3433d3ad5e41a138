/**
 * The relay stress over Kafka: relay processes publish to a real broker, and what stands in its log is held against what the
 * database committed.
 */
import { stress, type StressOptions, type StressReport } from '../outbox/stress/stress.ts'
import { startKafkaStressBroker, type KafkaStressOptions } from './stress-broker.ts'

type KafkaPart = Pick<KafkaStressOptions, 'brokers' | 'replicationFactor' | 'minInsyncReplicas' | 'struck'>

export interface StressOverKafkaOptions extends Omit<StressOptions, 'startBroker' | 'meanwhile'>, KafkaPart {
  readonly meanwhile: (broker: { readonly topic: string; readonly arrived: () => number }) => Promise<void>
}

export async function stressOverKafka(options: StressOverKafkaOptions): Promise<StressReport> {
  let topic = ''
  return stress({
    leaseMs: 3_000,
    ...options,
    startBroker: async (brokerOptions) => {
      const broker = await startKafkaStressBroker({ ...brokerOptions, ...options })
      topic = broker.topic
      return broker
    },
    meanwhile: ({ arrived }) => options.meanwhile({ topic, arrived }),
  })
}
