/** Topics and publishing. */
import { expect } from 'vitest'
import { data } from './harness.ts'
import type { Case, Harness } from './harness.ts'

const megabytes10 = 10_000_000

async function publishOne(h: Harness, message: object): Promise<void> {
  const { topic, subscription } = await h.pair()
  await h.publisher.publish({ topic, messages: [message] })
  expect(await h.pull(subscription)).toHaveLength(1)
}

const attributes = (count: number, keyBytes = 4, valueBytes = 1): Record<string, string> =>
  Object.fromEntries(Array.from({ length: count }, (_, i) => [String(i).padStart(keyBytes, 'k'), 'v'.repeat(valueBytes)]))

/** A request of one message that is so long when encoded: a tag and a length precede topic, message and data. */
function requestOf(encodedBytes: number, topic: string): { topic: string; messages: { data: Buffer }[] } {
  const besideData = 2 + Buffer.byteLength(topic) + 5 + 5
  return { topic, messages: [{ data: Buffer.alloc(encodedBytes - besideData) }] }
}

/** A limit of a publish: the largest message that passes, and one that is just too large. */
function limit(name: string, passes: readonly [string, () => object], fails: readonly [string, () => object]): Case {
  return {
    name: `Publish: ${name}`,
    accepts: { what: passes[0], run: async (h) => publishOne(h, passes[1]()) },
    refuses: {
      what: fails[0],
      code: 'INVALID_ARGUMENT',
      run: async (h) => h.publisher.publish({ topic: await h.topic(), messages: [fails[1]()] }),
    },
  }
}

export const topicCases: readonly Case[] = [
  {
    name: 'CreateTopic',
    accepts: {
      what: 'a topic with labels and retention',
      run: async (h) => {
        const name = await h.topic({ labels: { team: 'orders' }, messageRetentionDuration: { seconds: 3600 } })
        const [topic] = await h.publisher.getTopic({ topic: name })
        expect(topic.labels).toEqual({ team: 'orders' })
        expect(Number(topic.messageRetentionDuration?.seconds)).toBe(3600)
        expect(topic.state).toBe('ACTIVE')
      },
    },
    refuses: {
      what: 'a name that is taken',
      code: 'ALREADY_EXISTS',
      run: async (h) => h.publisher.createTopic({ name: await h.topic() }),
    },
  },
  {
    name: 'Topic names',
    accepts: {
      what: '255 characters of the allowed set',
      run: async (h) => void (await h.topic({ name: `projects/compat/topics/a${'-_.~+%9'.repeat(36)}zz` })),
    },
    refuses: {
      what: 'a name that starts with goog',
      code: 'INVALID_ARGUMENT',
      run: async (h) => h.publisher.createTopic({ name: 'projects/compat/topics/google' }),
    },
  },
  {
    name: 'UpdateTopic',
    accepts: {
      what: 'only what the mask names is changed',
      run: async (h) => {
        const name = await h.topic({ labels: { a: 'b' } })
        const topic = { name, labels: { a: 'c' }, messageRetentionDuration: { seconds: 600 } }
        const [changed] = await h.publisher.updateTopic({ topic, updateMask: { paths: ['message_retention_duration'] } })
        expect(changed.labels).toEqual({ a: 'b' })
        expect(Number(changed.messageRetentionDuration?.seconds)).toBe(600)
      },
    },
    refuses: {
      what: 'a mask that names a field which cannot change',
      code: 'INVALID_ARGUMENT',
      run: async (h) => h.publisher.updateTopic({ topic: { name: await h.topic() }, updateMask: { paths: ['name'] } }),
    },
  },
  {
    name: 'GetTopic',
    accepts: { what: 'an existing topic', run: async (h) => void (await h.publisher.getTopic({ topic: await h.topic() })) },
    refuses: { what: 'an unknown topic', code: 'NOT_FOUND', run: async (h) => h.publisher.getTopic({ topic: h.name('topics') }) },
  },
  {
    name: 'ListTopics',
    accepts: {
      what: 'pages until the last',
      run: async (h) => {
        const names = ['t1aa', 't2aa', 't3aa'].map((id) => `projects/paging/topics/${id}`)
        for (const name of names) await h.publisher.createTopic({ name })
        const [first, , { nextPageToken }] = await page(h, '')
        const [second, , { nextPageToken: last }] = await page(h, nextPageToken ?? '')
        expect([...first, ...second].map(({ name }) => name)).toEqual(names)
        expect(last).toBe('')
      },
    },
    refuses: { what: 'a page token that the server never gave', code: 'INVALID_ARGUMENT', run: async (h) => page(h, 'nonsense') },
  },
  {
    name: 'ListTopicSubscriptions',
    accepts: {
      what: 'the subscriptions of the topic alone',
      run: async (h) => {
        await h.pair()
        const { topic, subscription } = await h.pair()
        expect((await h.publisher.listTopicSubscriptions({ topic }))[0]).toEqual([subscription])
      },
    },
    refuses: {
      what: 'an unknown topic',
      code: 'NOT_FOUND',
      run: async (h) => h.publisher.listTopicSubscriptions({ topic: h.name('topics') }),
    },
  },
  {
    name: 'ListTopicSnapshots',
    accepts: {
      what: 'the snapshots of the topic',
      run: async (h) => {
        const { topic, subscription } = await h.pair()
        const [snapshot] = await h.subscriber.createSnapshot({ name: h.name('snapshots'), subscription })
        expect((await h.publisher.listTopicSnapshots({ topic }))[0]).toEqual([snapshot.name])
      },
    },
    refuses: {
      what: 'an unknown topic',
      code: 'NOT_FOUND',
      run: async (h) => h.publisher.listTopicSnapshots({ topic: h.name('topics') }),
    },
  },
  {
    name: 'DeleteTopic',
    accepts: {
      what: 'its subscriptions stay, with their messages and topic _deleted-topic_',
      run: async (h) => {
        const { topic, subscription } = await h.pair()
        await h.publish(topic, ['left'])
        await h.publisher.deleteTopic({ topic })
        expect((await h.subscriber.getSubscription({ subscription }))[0].topic).toBe('_deleted-topic_')
        expect(data(await h.pull(subscription))).toEqual(['left'])
      },
    },
    refuses: {
      what: 'an unknown topic',
      code: 'NOT_FOUND',
      run: async (h) => h.publisher.deleteTopic({ topic: h.name('topics') }),
    },
  },
  {
    name: 'DetachSubscription',
    accepts: {
      what: 'it stays, marked as detached',
      run: async (h) => {
        const { subscription } = await h.pair()
        await h.publisher.detachSubscription({ subscription })
        expect((await h.subscriber.getSubscription({ subscription }))[0].detached).toBe(true)
      },
    },
    refuses: {
      what: 'pulling from it',
      code: 'FAILED_PRECONDITION',
      run: async (h) => {
        const { subscription } = await h.pair()
        await h.publisher.detachSubscription({ subscription })
        return h.pull(subscription)
      },
    },
  },
  {
    name: 'Publish',
    accepts: {
      what: '1,000 messages in a request, binary data intact, ids in order',
      run: async (h) => {
        const { topic, subscription } = await h.pair()
        const bytes = Buffer.from(Array.from({ length: 256 }, (_, i) => i))
        const [{ messageIds }] = await h.publisher.publish({
          topic,
          messages: Array.from({ length: 1000 }, () => ({ data: bytes })),
        })
        expect(new Set(messageIds).size).toBe(1000)
        const [{ receivedMessages }] = await h.subscriber.pull({ subscription, maxMessages: 1000, returnImmediately: true })
        expect(receivedMessages?.map(({ message }) => message?.messageId)).toEqual(messageIds)
        expect(Buffer.from(receivedMessages?.[999]?.message?.data as Uint8Array)).toEqual(bytes)
      },
    },
    refuses: {
      what: '1,001 messages in a request',
      code: 'INVALID_ARGUMENT',
      run: async (h) =>
        h.publish(
          await h.topic(),
          Array.from({ length: 1001 }, () => 'x'),
        ),
    },
  },
  {
    name: 'Publish: request',
    accepts: {
      what: '10 MB as it is encoded',
      run: async (h) => {
        const { topic, subscription } = await h.pair()
        await h.publisher.publish(requestOf(megabytes10, topic))
        expect(await h.pull(subscription)).toHaveLength(1)
      },
    },
    refuses: {
      what: '10 MB + 1 byte, also if its message has less',
      code: 'INVALID_ARGUMENT',
      run: async (h) => h.publisher.publish(requestOf(megabytes10 + 1, await h.topic())),
    },
  },
  limit(
    'no data',
    ['0 bytes with an attribute', () => ({ attributes: { a: '' } })],
    ['0 bytes and no attribute', () => ({ orderingKey: 'k' })],
  ),
  limit('attributes', ['100', () => ({ attributes: attributes(100) })], ['101', () => ({ attributes: attributes(101) })]),
  limit(
    'attribute key',
    ['256 bytes', () => ({ attributes: attributes(1, 256) })],
    ['257 bytes', () => ({ attributes: attributes(1, 257) })],
  ),
  limit(
    'attribute value',
    ['1,024 bytes', () => ({ attributes: attributes(1, 4, 1024) })],
    ['1,025 bytes', () => ({ attributes: attributes(1, 4, 1025) })],
  ),
  limit(
    'ordering key',
    ['1,024 bytes', () => ({ data: Buffer.from('x'), orderingKey: 'k'.repeat(1024) })],
    ['1,025 bytes', () => ({ data: Buffer.from('x'), orderingKey: 'k'.repeat(1025) })],
  ),
  {
    name: 'Publish: ordering keys of a request',
    accepts: { what: 'all the same', run: async (h) => void (await h.publish(await h.topic(), ['a', 'b'], 'key')) },
    refuses: {
      what: 'different ones',
      code: 'INVALID_ARGUMENT',
      run: async (h) => {
        const message = { data: Buffer.from('x') }
        return h.publisher.publish({
          topic: await h.topic(),
          messages: [
            { ...message, orderingKey: 'a' },
            { ...message, orderingKey: 'b' },
          ],
        })
      },
    },
  },
  {
    name: 'Topic: message_retention_duration',
    accepts: {
      what: 'a subscription seeks back to what was published before it was made',
      run: async (h) => {
        const topic = await h.topic({ messageRetentionDuration: { seconds: 86_400 } })
        await h.publish(topic, ['early'])
        const { subscription } = await h.pair({ topic })
        expect(await h.pull(subscription)).toEqual([])
        await h.subscriber.seek({ subscription, time: { seconds: Math.floor(h.clock.nowMs() / 1000) - 60 } })
        expect(data(await h.pull(subscription))).toEqual(['early'])
      },
    },
    refuses: {
      what: 'less than 10 minutes',
      code: 'INVALID_ARGUMENT',
      run: async (h) => h.topic({ messageRetentionDuration: { seconds: 599 } }),
    },
  },
  {
    name: 'Topic: ingestion and transforms',
    accepts: { what: 'none', run: async (h) => void (await h.topic({ messageTransforms: [] })) },
    refuses: {
      what: 'ingestion from elsewhere',
      code: 'UNIMPLEMENTED',
      run: async (h) => h.topic({ ingestionDataSourceSettings: { cloudStorage: { bucket: 'b' } } }),
    },
  },
]

function page(h: Harness, pageToken: string) {
  return h.publisher.listTopics({ project: 'projects/paging', pageSize: 2, pageToken }, { autoPaginate: false })
}
