import { setImmediate } from 'node:timers/promises'
import { expect, onTestFinished, test } from 'vitest'
import { FakeKafka } from '../../../../test/kafka/fake-kafka.ts'
import { plantMistake } from '../../../../test/setup/planted-mistake.ts'
import { systemClock, type Clock } from '../../../core/service/clock.ts'
import { WaybillError } from '../../../core/errors.ts'
import { eventually } from '../../../testing/kit/eventually.ts'
import { createFakeClock } from '../../../testing/kit/fake-clock.ts'
import { kafka } from '../kafka.ts'
import type { FetchedPartition, FetchRequest, KafkaPartition } from '../client/kafka-client.ts'
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

interface AskedFetch {
  readonly request: FetchRequest
  readonly answer: (partitions: readonly FetchedPartition[]) => void
}

/** Two partitions on two nodes, whose fetches are answered by hand; the leaders are what `lead` last said. */
function twoNodes(
  leaders: readonly (number | undefined)[] = [1, 2],
  clock: Clock = systemClock,
): {
  readonly windows: readonly [PartitionWindow, PartitionWindow]
  readonly fetches: readonly AskedFetch[]
  readonly errors: readonly string[]
  /** How often the leaders were looked up. */
  readonly looks: () => number
  readonly lead: (...nodes: readonly (number | undefined)[]) => void
} {
  const windows = [new PartitionWindow(0, 0n), new PartitionWindow(1, 0n)] as const
  const [fetches, errors, over]: [AskedFetch[], string[], AbortController] = [[], [], new AbortController()]
  let partitions: readonly KafkaPartition[] = []
  let looks = 0
  const lead = (...nodes: readonly (number | undefined)[]): void =>
    void (partitions = nodes.map((leader) => ({ leader, replicas: 1 })))
  lead(...leaders)
  new PartitionFetcher({
    client: {
      describeTopic: (name) => {
        looks += 1
        return Promise.resolve({ name, partitions })
      },
      fetch: (request) => new Promise((answer) => fetches.push({ request, answer })),
      listOffsets: () => Promise.resolve(new Map([[0, 5n]])),
    },
    topic: 'orders',
    windows,
    room: () => () => true,
    onRecords: () => undefined,
    onError: ({ message }) => errors.push(message),
    maxWaitMs: 0,
    maxBytes: 1_000_000,
    maxPartitionBytes: 1_000_000,
    clock,
    over: over.signal,
  }).wake()
  onTestFinished(() => over.abort())
  return { windows, fetches, errors, looks: () => looks, lead }
}

test('a partition that cannot be read rests and is told of, and the others of its node go on', async () => {
  const { windows, fetches, errors } = twoNodes([1, 1])
  await eventually(() => fetches.length === 1)
  const record = { offset: 0n, timestampMs: 0, key: null, value: null, headers: [] }
  fetches[0]?.answer([
    { partition: 0, error: undefined, unreadable: new WaybillError('CORRUPT', 'no'), nextOffset: 0n, records: [] },
    { partition: 1, error: undefined, nextOffset: 1n, records: [record] },
  ])
  await eventually(() => fetches.length === 2)
  expect(errors).toEqual(['no'])
  expect([...(fetches[1]?.request.from ?? [])]).toEqual([[1, 1n]])
  expect(windows.map(({ end }) => end)).toEqual([0n, 1n])
})

test('a partition that cannot be read is asked for and told of every five seconds, and its leader is not looked up again', async () => {
  const clock = createFakeClock()
  const { fetches, errors, looks } = twoNodes([1, 2], clock)
  await eventually(() => fetches.length === 2)
  const answerAll = async (): Promise<void> => {
    const unreadable = new WaybillError('CORRUPT', 'no')
    for (const { request, answer } of fetches)
      if (request.from.has(0)) answer([{ partition: 0, error: undefined, unreadable, nextOffset: 0n, records: [] }])
    await setImmediate()
  }
  await answerAll()
  await clock.advance(4_999)
  expect([fetches.length, errors]).toEqual([2, ['no']])
  await clock.advance(1)
  await answerAll()
  expect([fetches.length, errors]).toEqual([3, ['no', 'no']])
  expect(looks()).toBe(1)
})

/** Asks a second leader for what the first has not answered yet: returns both fetches of partition 0. */
async function askedTwice({ fetches, lead }: ReturnType<typeof twoNodes>): Promise<readonly [AskedFetch, AskedFetch]> {
  await eventually(() => fetches.length === 2)
  const [slow, moved] = fetches as readonly [AskedFetch, AskedFetch]
  lead(3, 3)
  moved.answer([{ partition: 1, error: 'NOT_LEADER_OR_FOLLOWER', nextOffset: 0n, records: [] }])
  const isAgain = ({ request }: AskedFetch): boolean => request.leader === 3 && request.from.has(0)
  await eventually(() => fetches.some(isAgain))
  return [slow, fetches.find(isAgain) as AskedFetch]
}

test('what the old and the new leader of a partition both answer is taken once', async () => {
  const nodes = twoNodes()
  const [slow, again] = await askedTwice(nodes)
  const upTo = (nextOffset: bigint): readonly FetchedPartition[] => {
    const offsets = Array.from({ length: Number(nextOffset) }, (_, i) => BigInt(i))
    const records = offsets.map((offset) => ({ offset, timestampMs: 0, key: null, value: null, headers: [] }))
    return [{ partition: 0, error: undefined, nextOffset, records }]
  }
  again.answer(upTo(2n))
  await eventually(() => nodes.windows[0].end === 2n)
  slow.answer(upTo(3n))
  // All that follows from an answer has happened when the loop turns.
  await setImmediate()
  const read: bigint[] = []
  for (let entry = nodes.windows[0].take(); entry !== undefined; entry = nodes.windows[0].take()) read.push(entry.offset)
  expect(read).toEqual([0n, 1n])
})

test('what retention deleted is told once, also when two leaders say so', async () => {
  const nodes = twoNodes()
  const told = nodes.errors.length
  for (const { answer } of await askedTwice(nodes))
    answer([{ partition: 0, error: 'OFFSET_OUT_OF_RANGE', nextOffset: 0n, records: [] }])
  await eventually(() => nodes.fetches.some(({ request }) => request.from.get(0) === 5n))
  expect(nodes.errors.slice(told).filter((text) => text.includes('orders/0'))).toEqual([expect.stringContaining('were deleted')])
})

test('a partition that has no leader is told of, and read as soon as it has one', async () => {
  const { fetches, errors, lead } = twoNodes([undefined, 2])
  const nodesOf = (partition: number): readonly number[] =>
    fetches.filter(({ request }) => request.from.has(partition)).map(({ request }) => request.leader)
  await eventually(() => errors.length > 0)
  expect([nodesOf(0), nodesOf(1)]).toEqual([[], [2]])
  expect(errors[0]).toContain('fetch orders/0: LEADER_NOT_AVAILABLE')
  lead(1, 2)
  await eventually(() => nodesOf(0).length > 0)
  expect([nodesOf(0), nodesOf(1)]).toEqual([[1], [2]])
})
