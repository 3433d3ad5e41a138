/** Pulling, acknowledging, ordering, exactly-once delivery, dead-lettering, back-off and retention. */
import { expect } from 'vitest'
import { eventually } from '../../../src/testing/kit/eventually.ts'
import { data } from './harness.ts'
import type { Case } from './harness.ts'
import { openStream } from './raw-stream.ts'

const invalidAckId = 'not-an-ack-id'
const unusedAckId = '0000000000000042'

export const deliveryCases: readonly Case[] = [
  {
    name: 'Pull',
    accepts: {
      what: 'waits for a first message, and takes no more than asked for',
      run: async (h) => {
        const { topic, subscription } = await h.pair()
        const waiting = h.subscriber.pull({ subscription, maxMessages: 2 })
        await h.publish(topic, ['a', 'b', 'c'])
        expect((await waiting)[0].receivedMessages).toHaveLength(2)
        expect(data(await h.pull(subscription))).toEqual(['c'])
      },
    },
    refuses: {
      what: 'max_messages 0',
      code: 'INVALID_ARGUMENT',
      run: async (h) => h.pull((await h.pair()).subscription, 0),
    },
  },
  {
    name: 'Time-outs',
    accepts: {
      what: 'years, which some clients send for none',
      run: async (h) => {
        const { topic, subscription } = await h.pair()
        const never = { timeout: 27_000 * 3_600_000 }
        await h.publisher.publish({ topic, messages: [{ data: Buffer.from('a') }] }, never)
        expect(await h.pull(subscription)).toHaveLength(1)
      },
    },
    refuses: {
      what: 'an unknown topic, within them',
      code: 'NOT_FOUND',
      run: async (h) =>
        h.publisher.publish({ topic: h.name('topics'), messages: [{ data: Buffer.from('a') }] }, { timeout: 3_600_000 }),
    },
  },
  {
    name: 'Acknowledge',
    accepts: {
      what: 'the message never comes again; an id whose lease has ended is ignored',
      run: async (h) => {
        const { topic, subscription } = await h.pair()
        await h.publish(topic, ['a'])
        const received = await h.pull(subscription)
        await h.ack(subscription, received)
        await h.ack(subscription, received)
        await h.clock.advance(11_000)
        expect(await h.pull(subscription)).toEqual([])
      },
    },
    refuses: {
      what: 'an id that is none',
      code: 'INVALID_ARGUMENT',
      run: async (h) => h.subscriber.acknowledge({ subscription: (await h.pair()).subscription, ackIds: [invalidAckId] }),
    },
  },
  {
    name: 'ModifyAckDeadline',
    accepts: {
      what: 'extends a lease; 0 gives the message back at once',
      run: async (h) => {
        const { topic, subscription } = await h.pair()
        await h.publish(topic, ['a'])
        const received = await h.pull(subscription)
        await h.subscriber.modifyAckDeadline({ subscription, ackIds: received.map(({ ackId }) => ackId), ackDeadlineSeconds: 60 })
        await h.clock.advance(50_000)
        expect(await h.pull(subscription)).toEqual([])
        await h.nack(subscription, received)
        expect(data(await h.pull(subscription))).toEqual(['a'])
      },
    },
    refuses: {
      what: '601 seconds',
      code: 'INVALID_ARGUMENT',
      run: async (h) =>
        h.subscriber.modifyAckDeadline({
          subscription: (await h.pair()).subscription,
          ackIds: [unusedAckId],
          ackDeadlineSeconds: 601,
        }),
    },
  },
  {
    name: 'Ack deadline',
    accepts: {
      what: 'a lease that ends brings the message back',
      run: async (h) => {
        const { topic, subscription } = await h.pair({ ackDeadlineSeconds: 30 })
        await h.publish(topic, ['a'])
        await h.pull(subscription)
        await h.clock.advance(29_000)
        expect(await h.pull(subscription)).toEqual([])
        await h.clock.advance(1_100)
        expect(data(await h.pull(subscription))).toEqual(['a'])
      },
    },
    refuses: { what: '9 seconds', code: 'INVALID_ARGUMENT', run: async (h) => h.pair({ ackDeadlineSeconds: 9 }) },
  },
  {
    name: 'Subscription: enable_message_ordering',
    accepts: {
      what: 'in order within a key; what comes back brings its successors back',
      run: async (h) => {
        const { topic, subscription } = await h.pair({ enableMessageOrdering: true })
        await h.publish(topic, ['1', '2', '3'], 'key')
        const received = await h.pull(subscription)
        expect(data(received)).toEqual(['1', '2', '3'])
        await h.ack(subscription, received.slice(0, 1))
        await h.ack(subscription, received.slice(2))
        await h.nack(subscription, received.slice(1, 2))
        expect(data(await h.pull(subscription))).toEqual(['2', '3'])
      },
    },
    refuses: {
      what: 'switching it on later',
      code: 'INVALID_ARGUMENT',
      run: async (h) => {
        const { subscription: name } = await h.pair()
        const subscription = { name, enableMessageOrdering: true }
        return h.subscriber.updateSubscription({ subscription, updateMask: { paths: ['enable_message_ordering'] } })
      },
    },
  },
  {
    name: 'Subscription: enable_exactly_once_delivery',
    accepts: {
      what: 'an acknowledgement on the stream is confirmed, one after its lease is reported invalid',
      run: async (h) => {
        const { topic, subscription } = await h.pair({ enableExactlyOnceDelivery: true })
        using stream = openStream(h, { subscription })
        await h.publish(topic, ['a', 'b'])
        const [a, b] = await stream.take(2)
        expect(stream.properties()).toMatchObject({ exactlyOnceDeliveryEnabled: true })
        stream.write({ ackIds: [a?.ackId ?? ''] })
        await eventually(() => expect(stream.confirmed().ackIds).toEqual([a?.ackId]))
        await h.clock.advance(11_000)
        stream.write({ ackIds: [b?.ackId ?? ''] })
        await eventually(() => expect(stream.confirmed().invalidAckIds).toEqual([b?.ackId]))
      },
    },
    refuses: {
      what: 'a unary acknowledgement after the lease, with the outcome of each id in its details',
      code: 'FAILED_PRECONDITION',
      run: async (h) => {
        const { topic, subscription } = await h.pair({ enableExactlyOnceDelivery: true })
        await h.publish(topic, ['a'])
        const late = await h.pull(subscription)
        await h.clock.advance(11_000)
        const inTime = await h.pull(subscription)
        return h.ack(subscription, [...late, ...inTime]).catch(async (error: unknown) => {
          const outcomes = {
            [late[0]?.ackId ?? '']: 'PERMANENT_FAILURE_INVALID_ACK_ID',
            [inTime[0]?.ackId ?? '']: 'TRANSIENT_FAILURE_SERVICE_UNAVAILABLE',
          }
          expect(error).toMatchObject({ reason: 'EXACTLY_ONCE_ACKID_FAILURE', errorInfoMetadata: outcomes })
          await h.ack(subscription, inTime)
          throw error
        })
      },
    },
  },
  {
    name: 'Exactly-once, by subscription.on(message)',
    accepts: {
      what: 'ackWithResponse resolves as SUCCESS',
      run: async (h) => {
        const { topic, subscription: name } = await h.pair({ enableExactlyOnceDelivery: true })
        const subscription = h.client.subscription(name)
        const acked = new Promise<string>((resolve, reject) => {
          subscription.once('error', reject)
          subscription.on('message', (message) => void message.ackWithResponse().then(resolve, reject))
        })
        await h.publish(topic, ['a'])
        expect(await acked).toBe('SUCCESS')
        await subscription.close()
      },
    },
    refuses: {
      what: 'a deadline for an unknown subscription',
      code: 'NOT_FOUND',
      run: async (h) =>
        h.subscriber.modifyAckDeadline({ subscription: h.name('subscriptions'), ackIds: [unusedAckId], ackDeadlineSeconds: 10 }),
    },
  },
  {
    name: 'Dead-lettering',
    accepts: {
      what: 'attempts are counted, and the message moves with its attributes and where it came from',
      run: async (h) => {
        const { topic: deadLetterTopic, subscription: morgue } = await h.pair()
        const { topic, subscription } = await h.pair({ deadLetterPolicy: { deadLetterTopic, maxDeliveryAttempts: 5 } })
        await h.publisher.publish({ topic, messages: [{ data: Buffer.from('poison'), attributes: { own: 'kept' } }] })
        for (const attempt of [1, 2, 3, 4, 5]) {
          const received = await h.pull(subscription)
          expect(received).toMatchObject([{ data: 'poison', attempt }])
          await h.nack(subscription, received)
        }
        expect(await h.pull(subscription)).toEqual([])
        const [dead] = await h.pull(morgue)
        expect(dead).toMatchObject({
          data: 'poison',
          attributes: {
            own: 'kept',
            CloudPubSubDeadLetterSourceDeliveryCount: '5',
            CloudPubSubDeadLetterSourceSubscription: subscription.split('/').at(-1),
            CloudPubSubDeadLetterSourceSubscriptionProject: 'compat',
          },
        })
      },
    },
    refuses: {
      what: '101 attempts',
      code: 'INVALID_ARGUMENT',
      run: async (h) => h.pair({ deadLetterPolicy: { deadLetterTopic: await h.topic(), maxDeliveryAttempts: 101 } }),
    },
  },
  {
    name: 'Delivery attempts',
    accepts: {
      what: '0 without a dead-letter policy',
      run: async (h) => {
        const { topic, subscription } = await h.pair()
        await h.publish(topic, ['a'])
        await h.nack(subscription, await h.pull(subscription))
        expect(await h.pull(subscription)).toMatchObject([{ attempt: 0 }])
      },
    },
    refuses: {
      what: 'a policy without a topic',
      code: 'INVALID_ARGUMENT',
      run: async (h) => h.pair({ deadLetterPolicy: { maxDeliveryAttempts: 5 } }),
    },
  },
  {
    name: 'Back-off',
    accepts: {
      what: 'doubles from the minimum, up to the maximum',
      run: async (h) => {
        const { topic, subscription } = await h.pair({
          retryPolicy: { minimumBackoff: { seconds: 10 }, maximumBackoff: { seconds: 15 } },
        })
        await h.publish(topic, ['a'])
        for (const seconds of [10, 15, 15]) {
          await h.nack(subscription, await h.pull(subscription))
          await h.clock.advance(seconds * 1000 - 100)
          expect(await h.pull(subscription)).toEqual([])
          await h.clock.advance(200)
        }
        expect(data(await h.pull(subscription))).toEqual(['a'])
      },
    },
    refuses: {
      what: 'a maximum above 600 seconds',
      code: 'INVALID_ARGUMENT',
      run: async (h) => h.pair({ retryPolicy: { maximumBackoff: { seconds: 601 } } }),
    },
  },
  {
    name: 'Retention of a subscription',
    accepts: {
      what: 'unacknowledged messages are dropped after it',
      run: async (h) => {
        const { topic, subscription } = await h.pair({ messageRetentionDuration: { seconds: 600 } })
        await h.publish(topic, ['old'])
        await h.clock.advance(661_000)
        expect(await h.pull(subscription)).toEqual([])
      },
    },
    refuses: {
      what: '9 minutes',
      code: 'INVALID_ARGUMENT',
      run: async (h) => h.pair({ messageRetentionDuration: { seconds: 540 } }),
    },
  },
]
