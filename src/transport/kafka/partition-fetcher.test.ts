import { expect, test } from 'vitest'
import { FakeKafka } from '../../../test/kafka/fake-kafka.ts'
import { plantMistake } from '../../../test/setup/planted-mistake.ts'
import { eventually } from '../../testing/eventually.ts'
import { createFakeClock } from '../../testing/fake-clock.ts'
import { kafka } from './kafka.ts'
import { PartitionFetcher } from './partition-fetcher.ts'
import { PartitionWindow } from './partition-window.ts'

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

/** What is read of six records when retention has deleted three of them before they were. */
async function readAfterRetention(
  Fetcher: typeof PartitionFetcher = PartitionFetcher,
): Promise<{ readonly read: readonly bigint[]; readonly errors: readonly string[] }> {
  const broker = new FakeKafka(1)
  for (let i = 0; i < 6; i += 1) broker.append(0, `k${i}`)
  broker.deleteBefore(0, 3n)
  const [window, clock, over] = [new PartitionWindow(0, 0n), createFakeClock(), new AbortController()]
  const errors: string[] = []
  const fetcher = new Fetcher({
    client: broker.client(),
    topic: 'orders',
    windows: [window],
    room: () => () => window.end < 6n,
    onRecords: () => undefined,
    onError: ({ message }) => errors.push(message),
    maxWaitMs: 0,
    maxBytes: 1_000_000,
    maxPartitionBytes: 1_000_000,
    clock,
    over: over.signal,
  })
  fetcher.wake()
  await eventually(async () => {
    await clock.advance(0)
    return window.end === 6n
  })
  over.abort()
  const read: bigint[] = []
  for (let entry = window.take(); entry !== undefined; entry = window.take()) read.push(entry.offset)
  return { read, errors }
}

test('what retention deleted is said to be lost, and reading goes on with all that is left', async () => {
  const { read, errors } = await readAfterRetention()
  expect(read).toEqual([3n, 4n, 5n])
  expect(errors).toEqual([expect.stringContaining('records 0 to 2 were deleted before they were read')])
})

test('it is noticed when a fetcher goes on at the end', async () => {
  const file = new URL('partition-fetcher.ts', import.meta.url)
  const { PartitionFetcher: Mistaken } = await plantMistake<{ readonly PartitionFetcher: typeof PartitionFetcher }>(file, {
    from: "at: 'earliest'",
    to: "at: 'latest'",
  })
  expect((await readAfterRetention(Mistaken)).read).toEqual([])
})
