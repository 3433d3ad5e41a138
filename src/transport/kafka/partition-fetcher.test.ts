import { expect, test } from 'vitest'
import { FakeKafka } from '../../../test/kafka/fake-kafka.ts'
import { eventually } from '../../testing/eventually.ts'
import { kafka } from './kafka.ts'

test('a partition with a long backlog keeps none of the others waiting, however little fits into an answer', async () => {
  const perPartition = 40
  const broker = new FakeKafka(4)
  for (let partition = 0; partition < 4; partition += 1)
    for (let i = 0; i < perPartition; i += 1) broker.append(partition, `k${i}`)
  const transport = kafka({ brokers: ['nowhere:1'], client: () => broker.client(), fetchMaxBytes: 50 })
  const partitions: string[] = []
  await transport.receive({
    topic: 'orders',
    consumer: 'ledger',
    maxMessages: 10,
    maxBytes: 1_000_000,
    onDelivery: (delivery) => {
      partitions.push(delivery.message.position?.partition ?? '')
      void delivery.ack()
    },
    onError: () => undefined,
  })
  await eventually(() => partitions.length === 4 * perPartition)
  // An answer has room for about ten records: after four of them everybody has had a turn.
  expect(new Set(partitions.slice(0, perPartition))).toEqual(new Set(['0', '1', '2', '3']))
  await transport.close()
})
