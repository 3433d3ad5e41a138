import { expect, test } from 'vitest'
import type { KafkaClient } from '../transport/kafka/kafka-client.ts'
import { kafkaError } from '../transport/kafka/kafka-errors.ts'
import { createCrashPoints } from './crash-points.ts'

test('a member of a group passes the places around its requests, and hears of a rebalance by a heartbeat that failed for it', async () => {
  const passed: string[] = []
  const points = createCrashPoints('consumer', { failpoints: { hit: async (name) => void passed.push(name) } })
  const said = ['NETWORK_EXCEPTION', 'REBALANCE_IN_PROGRESS']
  const client = points.kafkaClient({
    commitOffsets: async () => void passed.push('(the commit)'),
    heartbeat: async () => {
      throw kafkaError(said.shift() ?? '', 'heartbeat')
    },
  } as Partial<KafkaClient> as KafkaClient)
  const member = { group: 'g', memberId: 'm', generation: 1, instanceId: undefined }
  await client.commitOffsets({ member, topic: 't', offsets: new Map() })
  await expect(client.heartbeat(member, 10)).rejects.toMatchObject({ details: { kafka: 'NETWORK_EXCEPTION' } })
  await expect(client.heartbeat(member, 10)).rejects.toMatchObject({ details: { kafka: 'REBALANCE_IN_PROGRESS' } })
  expect(passed).toEqual([
    'consumer: offsets committing',
    '(the commit)',
    'consumer: offset commit sent',
    'consumer: offsets committed',
    'consumer: rebalance heard',
  ])
})
