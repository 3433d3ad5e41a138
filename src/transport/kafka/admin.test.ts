import { afterEach, expect, test, vi } from 'vitest'
import { adminOf } from './admin.ts'
import type { KafkaClient, KafkaTopic } from './client/kafka-client.ts'
import { kafkaError } from './client/errors.ts'

afterEach(() => void vi.useRealTimers())

/** Nodes that are asked in turn; each hears of a new topic only after it was asked so many times in vain. */
function clusterOf(vain: number[]): KafkaClient {
  let turn = 0
  const client: Partial<KafkaClient> = {
    addresses: () => vain.length,
    createTopic: () => Promise.resolve(),
    describeTopic: async (name): Promise<KafkaTopic> => {
      const node = (turn += 1) % vain.length
      const left = vain[node] as number
      if (left === 0) return { name, partitions: [{ leader: 1, replicas: 3 }] }
      vain[node] = left - 1
      throw kafkaError('UNKNOWN_TOPIC_OR_PARTITION', `topic ${name}`)
    },
  }
  return client as KafkaClient
}

const topic = { name: 'orders', partitions: 1, replicationFactor: 3 }

test('a topic is made when every node knows it, whichever is asked', async () => {
  vi.useFakeTimers()
  const vain = [3, 0, 2]
  const made = adminOf(clusterOf(vain)).createTopic(topic)
  await vi.runAllTimersAsync()
  await made
  expect(vain).toEqual([0, 0, 0])
})

test('a node that never hears of a topic is waited for no longer than a while, unless no other knows it', async () => {
  vi.useFakeTimers()
  const made = Promise.allSettled([[0, Infinity], [Infinity]].map((vain) => adminOf(clusterOf(vain)).createTopic(topic)))
  await vi.runAllTimersAsync()
  expect(await made).toMatchObject([
    { status: 'fulfilled' },
    { status: 'rejected', reason: { details: { kafka: 'LEADER_NOT_AVAILABLE' } } },
  ])
})
