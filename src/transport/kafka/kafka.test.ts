import { expect, test } from 'vitest'
import type { CommitOffsetsRequest, KafkaClient } from './client/kafka-client.ts'
import { kafka } from './kafka.ts'

/** A topic of four partitions; what is at the moment asked for, at the ends, and committed. */
function clientOf(commits: CommitOffsetsRequest[]): KafkaClient {
  const client: Partial<KafkaClient> = {
    describeTopic: (name) => Promise.resolve({ name, partitions: Array.from({ length: 4 }, () => ({ leader: 1, replicas: 1 })) }),
    listOffsets: ({ partitions, at }) =>
      Promise.resolve(new Map(at === 'latest' ? partitions.map((each) => [each, 90n]) : [0, 1, 2].map((each) => [each, 50n]))),
    committedOffsets: () =>
      Promise.resolve(
        new Map([
          [0, 70n],
          [1, 30n],
          [3, 80n],
        ]),
      ),
    commitOffsets: (request) => Promise.resolve(void commits.push(request)),
    close: () => Promise.resolve(),
  }
  return client as KafkaClient
}

test('a rewind moves a group back and never ahead; where it has committed nothing it still begins with the earliest', async () => {
  const commits: CommitOffsetsRequest[] = []
  const transport = kafka({ brokers: ['unused:9092'], client: () => clientOf(commits) })
  await transport.rewind?.({ topic: 't', consumer: 'c', sinceMs: 1 })
  await transport.seek({ topic: 't', consumer: 'c', to: { sinceMs: 1 } })
  await transport.close()
  expect(commits.map(({ member, offsets }) => [member.group, [...offsets]])).toEqual([
    [
      't.c',
      [
        [0, 50n],
        [1, 30n],
        [3, 80n],
      ],
    ],
    [
      't.c',
      [
        [0, 50n],
        [1, 50n],
        [2, 50n],
        [3, 90n],
      ],
    ],
  ])
})

test('a seek to a time keeps what is appended meanwhile, where nothing is so late yet', async () => {
  const commits: CommitOffsetsRequest[] = []
  let end = 90n
  const client: KafkaClient = {
    ...clientOf(commits),
    listOffsets: ({ partitions, at }) => {
      if (at === 'latest') return Promise.resolve(new Map(partitions.map((each) => [each, end])))
      end += 1n
      return Promise.resolve(new Map())
    },
  }
  const transport = kafka({ brokers: ['unused:9092'], client: () => client })
  await transport.seek({ topic: 't', consumer: 'c', to: { sinceMs: 1 } })
  await transport.close()
  expect(commits.map(({ offsets }) => [...offsets.values()])).toEqual([[90n, 90n, 90n, 90n]])
})
