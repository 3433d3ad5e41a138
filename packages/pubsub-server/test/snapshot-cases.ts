/** Snapshots and seeking. */
import { expect } from 'vitest'
import { data } from './harness.ts'
import type { Case, Harness } from './harness.ts'

async function snapshotOf(h: Harness, subscription: string): Promise<string> {
  const [snapshot] = await h.subscriber.createSnapshot({ name: h.name('snapshots'), subscription, labels: { a: 'b' } })
  return snapshot.name ?? ''
}

const timestamp = (ms: number): { seconds: number; nanos: number } => ({
  seconds: Math.floor(ms / 1000),
  nanos: (ms % 1000) * 1e6,
})

export const snapshotCases: readonly Case[] = [
  {
    name: 'CreateSnapshot',
    accepts: {
      what: 'expires after 7 days less the age of the backlog',
      run: async (h) => {
        const { topic, subscription } = await h.pair()
        await h.publish(topic, ['a'])
        await h.clock.advance(3_600_000)
        const [snapshot] = await h.subscriber.createSnapshot({ name: h.name('snapshots'), subscription })
        expect(snapshot.topic).toBe(topic)
        const leftSeconds = Number(snapshot.expireTime?.seconds) - Math.floor(h.clock.nowMs() / 1000)
        expect(leftSeconds).toBeGreaterThan(7 * 86_400 - 3_700)
        expect(leftSeconds).toBeLessThanOrEqual(7 * 86_400 - 3_600)
      },
    },
    refuses: {
      what: 'a name that is taken',
      code: 'ALREADY_EXISTS',
      run: async (h) => {
        const { subscription } = await h.pair()
        return h.subscriber.createSnapshot({ name: await snapshotOf(h, subscription), subscription })
      },
    },
  },
  {
    name: 'CreateSnapshot: of what',
    accepts: { what: 'a subscription with a topic', run: async (h) => void (await snapshotOf(h, (await h.pair()).subscription)) },
    refuses: {
      what: 'a subscription whose topic is gone',
      code: 'FAILED_PRECONDITION',
      run: async (h) => {
        const { topic, subscription } = await h.pair()
        await h.publisher.deleteTopic({ topic })
        return snapshotOf(h, subscription)
      },
    },
  },
  {
    name: 'GetSnapshot',
    accepts: {
      what: 'an existing one, with labels',
      run: async (h) => {
        const snapshot = await snapshotOf(h, (await h.pair()).subscription)
        expect((await h.subscriber.getSnapshot({ snapshot }))[0].labels).toEqual({ a: 'b' })
      },
    },
    refuses: {
      what: 'one that has expired',
      code: 'NOT_FOUND',
      run: async (h) => {
        const snapshot = await snapshotOf(h, (await h.pair()).subscription)
        const expireTime = timestamp(h.clock.nowMs() + 1_000)
        await h.subscriber.updateSnapshot({ snapshot: { name: snapshot, expireTime }, updateMask: { paths: ['expire_time'] } })
        await h.clock.advance(2_000)
        return h.subscriber.getSnapshot({ snapshot })
      },
    },
  },
  {
    name: 'UpdateSnapshot',
    accepts: {
      what: 'labels by mask',
      run: async (h) => {
        const name = await snapshotOf(h, (await h.pair()).subscription)
        const [changed] = await h.subscriber.updateSnapshot({
          snapshot: { name, labels: { c: 'd' } },
          updateMask: { paths: ['labels'] },
        })
        expect(changed.labels).toEqual({ c: 'd' })
      },
    },
    refuses: {
      what: 'no mask',
      code: 'INVALID_ARGUMENT',
      run: async (h) => h.subscriber.updateSnapshot({ snapshot: { name: await snapshotOf(h, (await h.pair()).subscription) } }),
    },
  },
  {
    name: 'ListSnapshots',
    accepts: {
      what: 'all of the project, over several pages',
      run: async (h) => {
        const { subscription } = await h.pair()
        const names = ['n1aa', 'n2aa', 'n3aa'].map((id) => `projects/paging/snapshots/${id}`)
        for (const name of names) await h.subscriber.createSnapshot({ name, subscription })
        const [found] = await h.subscriber.listSnapshots({ project: 'projects/paging', pageSize: 2 })
        expect(found.map(({ name }) => name)).toEqual(names)
      },
    },
    refuses: {
      what: 'a negative page size',
      code: 'INVALID_ARGUMENT',
      run: async (h) => h.subscriber.listSnapshots({ project: 'projects/paging', pageSize: -1 }),
    },
  },
  {
    name: 'DeleteSnapshot',
    accepts: {
      what: 'an existing one',
      run: async (h) =>
        void (await h.subscriber.deleteSnapshot({ snapshot: await snapshotOf(h, (await h.pair()).subscription) })),
    },
    refuses: {
      what: 'an unknown one',
      code: 'NOT_FOUND',
      run: async (h) => h.subscriber.deleteSnapshot({ snapshot: h.name('snapshots') }),
    },
  },
  {
    name: 'Seek to a snapshot',
    accepts: {
      what: 'what was unacknowledged then, and everything published since',
      run: async (h) => {
        const { topic, subscription } = await h.pair()
        await h.publish(topic, ['before', 'open'])
        const received = await h.pull(subscription)
        await h.ack(subscription, received.slice(0, 1))
        const snapshot = await snapshotOf(h, subscription)
        await h.publish(topic, ['since'])
        await h.ack(subscription, [...received.slice(1), ...(await h.pull(subscription))])
        expect(await h.pull(subscription)).toEqual([])
        await h.subscriber.seek({ subscription, snapshot })
        expect(data(await h.pull(subscription))).toEqual(['open', 'since'])
      },
    },
    refuses: {
      what: 'a snapshot of another topic',
      code: 'INVALID_ARGUMENT',
      run: async (h) => {
        const snapshot = await snapshotOf(h, (await h.pair()).subscription)
        return h.subscriber.seek({ subscription: (await h.pair()).subscription, snapshot })
      },
    },
  },
  {
    name: 'Seek to a time',
    accepts: {
      what: 'back to retained acknowledged messages, and forward over the backlog',
      run: async (h) => {
        const { topic, subscription } = await h.pair({ retainAckedMessages: true })
        await h.publish(topic, ['1'])
        await h.clock.advance(10_000)
        const time = timestamp(h.clock.nowMs())
        await h.publish(topic, ['2', '3'])
        await h.ack(subscription, await h.pull(subscription))
        await h.subscriber.seek({ subscription, time })
        expect(data(await h.pull(subscription))).toEqual(['2', '3'])
        await h.subscriber.seek({ subscription, time: timestamp(h.clock.nowMs() + 1) })
        expect(await h.pull(subscription)).toEqual([])
      },
    },
    refuses: {
      what: 'no target',
      code: 'INVALID_ARGUMENT',
      run: async (h) => h.subscriber.seek({ subscription: (await h.pair()).subscription }),
    },
  },
  {
    name: 'Subscription: retain_acked_messages',
    accepts: {
      what: 'off: acknowledged messages cannot be had back',
      run: async (h) => {
        const { topic, subscription } = await h.pair({ retainAckedMessages: false })
        await h.publish(topic, ['gone', 'open'])
        await h.ack(subscription, await h.pull(subscription, 1))
        await h.subscriber.seek({ subscription, time: timestamp(h.clock.nowMs() - 60_000) })
        expect(data(await h.pull(subscription))).toEqual(['open'])
      },
    },
    refuses: {
      what: 'seeking on a detached subscription',
      code: 'FAILED_PRECONDITION',
      run: async (h) => {
        const { subscription } = await h.pair({ retainAckedMessages: true })
        await h.publisher.detachSubscription({ subscription })
        return h.subscriber.seek({ subscription, time: timestamp(0) })
      },
    },
  },
]
