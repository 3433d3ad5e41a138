/** StreamingPull on a bare stream: deadlines and flow control. */
import { expect } from 'vitest'
import { eventually } from '../../../src/testing/kit/eventually.ts'
import { data } from './harness.ts'
import type { Case, Harness } from './harness.ts'
import { openStream } from './raw-stream.ts'

const unusedAckId = '0000000000000042'

export const streamCases: readonly Case[] = [
  {
    name: 'StreamingPull',
    accepts: {
      what: 'messages and acknowledgements on one stream',
      run: async (h) => {
        const { topic, subscription } = await h.pair()
        using stream = openStream(h, { subscription })
        await h.publish(topic, ['a', 'b'])
        const received = await stream.take(2)
        stream.write({ ackIds: received.map(({ ackId }) => ackId) })
        await eventually(() => unacked(h, subscription) === 0)
      },
    },
    refuses: {
      what: 'an unknown subscription',
      code: 'NOT_FOUND',
      run: async (h) => openStream(h, { subscription: h.name('subscriptions') }).ended,
    },
  },
  {
    name: 'StreamingPull: stream_ack_deadline_seconds',
    accepts: {
      what: 'the stream’s deadline counts, not the subscription’s',
      run: async (h) => {
        const { topic, subscription } = await h.pair({ ackDeadlineSeconds: 600 })
        using stream = openStream(h, { subscription, streamAckDeadlineSeconds: 10 })
        await h.publish(topic, ['a'])
        await stream.take(1)
        await h.clock.advance(10_100)
        expect(data(await stream.take(2))).toEqual(['a', 'a'])
      },
    },
    refuses: {
      what: '5 seconds',
      code: 'INVALID_ARGUMENT',
      run: async (h) => openStream(h, { subscription: (await h.pair()).subscription, streamAckDeadlineSeconds: 5 }).ended,
    },
  },
  {
    name: 'StreamingPull: deadlines',
    accepts: {
      what: '0 seconds gives a message back, to be delivered again',
      run: async (h) => {
        const { topic, subscription } = await h.pair()
        using stream = openStream(h, { subscription })
        await h.publish(topic, ['a'])
        const [first] = await stream.take(1)
        stream.write({ modifyDeadlineAckIds: [first?.ackId ?? ''], modifyDeadlineSeconds: [0] })
        const [, second] = await stream.take(2)
        expect(second?.ackId).not.toBe(first?.ackId)
      },
    },
    refuses: {
      what: 'more ids than seconds',
      code: 'INVALID_ARGUMENT',
      run: async (h) => {
        const stream = openStream(h, { subscription: (await h.pair()).subscription })
        stream.write({ modifyDeadlineAckIds: [unusedAckId], modifyDeadlineSeconds: [] })
        return stream.ended
      },
    },
  },
  {
    name: 'StreamingPull: flow control',
    accepts: {
      what: 'never more in hand than max_outstanding_messages',
      run: async (h) => {
        const { topic, subscription } = await h.pair()
        await h.publish(topic, ['a', 'b', 'c', 'd', 'e'])
        using stream = openStream(h, { subscription, maxOutstandingMessages: 2 })
        const first = await stream.take(2)
        expect(leased(h, subscription)).toBe(2)
        stream.write({ ackIds: [first[0]?.ackId ?? ''] })
        await stream.take(3)
        expect(leased(h, subscription)).toBe(2)
      },
    },
    refuses: {
      what: 'a second subscription on the same stream',
      code: 'INVALID_ARGUMENT',
      run: async (h) => {
        const { subscription } = await h.pair()
        const stream = openStream(h, { subscription, maxOutstandingBytes: 1_000 })
        stream.write({ subscription })
        return stream.ended
      },
    },
  },
]

const statsOf = (h: Harness, name: string): { unackedMessages: number; leasedMessages: number } | undefined =>
  h.server.stats().subscriptions.find((one) => one.name === name)

const unacked = (h: Harness, name: string): number | undefined => statsOf(h, name)?.unackedMessages
const leased = (h: Harness, name: string): number | undefined => statsOf(h, name)?.leasedMessages
