/** Subscriptions and their settings. */
import { expect } from 'vitest'
import { data } from './harness.ts'
import type { Case, Harness, Subscription } from './harness.ts'

async function settingsOf(h: Harness, settings: Subscription): ReturnType<typeof get> {
  const { subscription } = await h.pair(settings)
  return get(h, subscription)
}

async function get(h: Harness, subscription: string): Promise<Subscription> {
  const [resource] = await h.subscriber.getSubscription({ subscription })
  return resource
}

/** A setting: a value that is kept, and one that is refused. */
function setting(name: string, passes: readonly [string, Subscription], fails: readonly [string, Subscription]): Case {
  return {
    name: `Subscription: ${name}`,
    accepts: { what: passes[0], run: async (h) => expect(await settingsOf(h, passes[1])).toMatchObject(passes[1]) },
    refuses: { what: fails[0], code: 'INVALID_ARGUMENT', run: async (h) => h.pair(fails[1]) },
  }
}

export const subscriptionCases: readonly Case[] = [
  {
    name: 'CreateSubscription',
    accepts: {
      what: 'the documented defaults',
      run: async (h) => {
        const resource = await settingsOf(h, {})
        expect(resource).toMatchObject({ ackDeadlineSeconds: 10, state: 'ACTIVE', detached: false, enableMessageOrdering: false })
        expect(Number(resource.messageRetentionDuration?.seconds)).toBe(7 * 86_400)
        expect(Number(resource.expirationPolicy?.ttl?.seconds)).toBe(31 * 86_400)
      },
    },
    refuses: {
      what: 'a topic that is not there',
      code: 'NOT_FOUND',
      run: async (h) => h.pair({ topic: h.name('topics') }),
    },
  },
  {
    name: 'Subscription names',
    accepts: { what: 'one per project', run: async (h) => void (await h.pair()) },
    refuses: {
      what: 'a name that is taken',
      code: 'ALREADY_EXISTS',
      run: async (h) => {
        const { topic, subscription } = await h.pair()
        return h.subscriber.createSubscription({ name: subscription, topic })
      },
    },
  },
  {
    name: 'GetSubscription',
    accepts: { what: 'an existing one', run: async (h) => void (await settingsOf(h, {})) },
    refuses: { what: 'an unknown one', code: 'NOT_FOUND', run: async (h) => get(h, h.name('subscriptions')) },
  },
  {
    name: 'UpdateSubscription',
    accepts: {
      what: 'only what the mask names is changed; an absent value clears',
      run: async (h) => {
        const { subscription: name } = await h.pair({ labels: { a: 'b' }, retryPolicy: { minimumBackoff: { seconds: 1 } } })
        const subscription = { name, ackDeadlineSeconds: 60, labels: { a: 'c' } }
        await h.subscriber.updateSubscription({ subscription, updateMask: { paths: ['ack_deadline_seconds', 'retry_policy'] } })
        const changed = await get(h, name)
        expect(changed).toMatchObject({ ackDeadlineSeconds: 60, labels: { a: 'b' } })
        expect(changed.retryPolicy).toBeNull()
      },
    },
    refuses: {
      what: 'changing the filter',
      code: 'INVALID_ARGUMENT',
      run: async (h) => {
        const { subscription: name } = await h.pair()
        return h.subscriber.updateSubscription({
          subscription: { name, filter: 'attributes:a' },
          updateMask: { paths: ['filter'] },
        })
      },
    },
  },
  {
    name: 'ListSubscriptions',
    accepts: {
      what: 'all of the project, over several pages',
      run: async (h) => {
        const topic = await h.topic()
        const names = ['s1aa', 's2aa', 's3aa'].map((id) => `projects/paging/subscriptions/${id}`)
        for (const name of names) await h.subscriber.createSubscription({ name, topic })
        const [found] = await h.subscriber.listSubscriptions({ project: 'projects/paging', pageSize: 2 })
        expect(found.map(({ name }) => name)).toEqual(names)
      },
    },
    refuses: {
      what: 'a project that is not named as one',
      code: 'INVALID_ARGUMENT',
      run: async (h) => h.subscriber.listSubscriptions({ project: 'paging' }),
    },
  },
  {
    name: 'DeleteSubscription',
    accepts: {
      what: 'the name is free again, without the old messages',
      run: async (h) => {
        const { topic, subscription } = await h.pair()
        await h.publish(topic, ['old'])
        await h.subscriber.deleteSubscription({ subscription })
        await h.subscriber.createSubscription({ name: subscription, topic })
        expect(await h.pull(subscription)).toEqual([])
      },
    },
    refuses: {
      what: 'an unknown one',
      code: 'NOT_FOUND',
      run: async (h) => h.subscriber.deleteSubscription({ subscription: h.name('subscriptions') }),
    },
  },
  {
    name: 'ModifyPushConfig',
    accepts: {
      what: 'no endpoint: pull',
      run: async (h) => {
        const { subscription } = await h.pair()
        await h.subscriber.modifyPushConfig({ subscription, pushConfig: {} })
      },
    },
    refuses: {
      what: 'an endpoint: push is not served',
      code: 'UNIMPLEMENTED',
      run: async (h) => {
        const { subscription } = await h.pair()
        return h.subscriber.modifyPushConfig({ subscription, pushConfig: { pushEndpoint: 'https://example.com/push' } })
      },
    },
  },
  {
    name: 'Subscription: export configurations',
    accepts: { what: 'none', run: async (h) => void (await h.pair({ bigqueryConfig: null })) },
    refuses: { what: 'BigQuery', code: 'UNIMPLEMENTED', run: async (h) => h.pair({ bigqueryConfig: { table: 'p.d.t' } }) },
  },
  setting('ack_deadline_seconds', ['600', { ackDeadlineSeconds: 600 }], ['601', { ackDeadlineSeconds: 601 }]),
  setting('labels', ['lower case', { labels: { team: 'orders', env: 'dev-1' } }], ['upper case', { labels: { Team: 'orders' } }]),
  setting(
    'retry_policy',
    ['absent', { retryPolicy: null }],
    ['a minimum above the maximum', { retryPolicy: { minimumBackoff: { seconds: 20 }, maximumBackoff: { seconds: 10 } } }],
  ),
  setting(
    'message_retention_duration',
    ['absent means 7 days', {}],
    ['32 days', { messageRetentionDuration: { seconds: 32 * 86_400 } }],
  ),
  {
    name: 'Subscription: expiration_policy',
    accepts: {
      what: 'never: a policy without a time',
      run: async (h) => expect((await settingsOf(h, { expirationPolicy: {} })).expirationPolicy).toEqual({ ttl: null }),
    },
    refuses: {
      what: 'less than a day',
      code: 'INVALID_ARGUMENT',
      run: async (h) => h.pair({ expirationPolicy: { ttl: { seconds: 3600 } } }),
    },
  },
  {
    name: 'Subscription: filter',
    accepts: {
      what: 'only matching messages are delivered',
      run: async (h) => {
        const { topic, subscription } = await h.pair({
          filter: 'attributes.kind = "order" AND NOT hasPrefix(attributes.id, "test-")',
        })
        const message = (text: string, attributes: Record<string, string>): object => ({ data: Buffer.from(text), attributes })
        const messages = [
          message('a', { kind: 'order', id: '1' }),
          message('b', { kind: 'order', id: 'test-2' }),
          message('c', { kind: 'video' }),
        ]
        await h.publisher.publish({ topic, messages })
        expect(data(await h.pull(subscription))).toEqual(['a'])
      },
    },
    refuses: { what: 'a filter on data', code: 'INVALID_ARGUMENT', run: async (h) => h.pair({ filter: 'data = "x"' }) },
  },
  {
    name: 'Subscription: dead_letter_policy',
    accepts: {
      what: '5 attempts by default, and an existing topic',
      run: async (h) => {
        const deadLetterTopic = await h.topic()
        const { deadLetterPolicy } = await settingsOf(h, { deadLetterPolicy: { deadLetterTopic } })
        expect(deadLetterPolicy).toEqual({ deadLetterTopic, maxDeliveryAttempts: 5 })
      },
    },
    refuses: {
      what: '4 attempts',
      code: 'INVALID_ARGUMENT',
      run: async (h) => h.pair({ deadLetterPolicy: { deadLetterTopic: await h.topic(), maxDeliveryAttempts: 4 } }),
    },
  },
  {
    name: 'Subscription: dead-letter topic',
    accepts: {
      what: 'removed by an update',
      run: async (h) => {
        const { subscription: name } = await h.pair({ deadLetterPolicy: { deadLetterTopic: await h.topic() } })
        await h.subscriber.updateSubscription({ subscription: { name }, updateMask: { paths: ['dead_letter_policy'] } })
        expect((await get(h, name)).deadLetterPolicy).toBeNull()
      },
    },
    refuses: {
      what: 'one that is not there',
      code: 'NOT_FOUND',
      run: async (h) => h.pair({ deadLetterPolicy: { deadLetterTopic: h.name('topics') } }),
    },
  },
]
