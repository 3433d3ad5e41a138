import { expect, test } from 'vitest'
import { systemClock } from '../../../core/service/clock.ts'
import { always, message, statuses } from '../../../testing/contract/probe.ts'
import type { KafkaClient } from '../client/kafka-client.ts'
import { KafkaPublisher } from './publisher.ts'
import { TopicDirectory } from './topic-directory.ts'

test('an aborted publish ends however many of its topics are still looked up, and they are looked up side by side', async () => {
  const asked: string[] = []
  const describeTopic: KafkaClient['describeTopic'] = (name) => {
    asked.push(name)
    return new Promise(() => undefined)
  }
  const client = { describeTopic } as KafkaClient
  const publisher = new KafkaPublisher({
    client,
    topics: new TopicDirectory({ client, minInsyncReplicas: 2, metadataMaxAgeMs: 60_000, nowMs: () => 0 }),
    maxBytes: 1_000,
    publishTimeoutMs: 300,
    maxRequestBytes: 1_000_000,
    compactionOf: () => undefined,
    clock: systemClock,
  })
  const stop = new AbortController()
  const topics = ['orders', 'bills', 'parcels']
  const publishing = publisher.publish(
    topics.map((topic) => message(topic, 'm')),
    { ...always, signal: stop.signal },
  )
  expect(asked).toEqual(topics)
  stop.abort()
  expect(statuses(await publishing)).toEqual(['unavailable', 'unavailable', 'unavailable'])
})
