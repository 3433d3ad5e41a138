/**
 * Any sequence of publishing, taking, acknowledging, giving back, waiting, leaving and coming, against what must always hold:
 * every message is delivered until it is settled, none after it; and of a key, a message is delivered only when all before it
 * are settled or in the same hands.
 */
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { createFakeClock } from '../../../../src/testing/kit/fake-clock.ts'
import { Message } from '../model/message.ts'
import type { Entry } from './entry.ts'
import { Receiver } from './receiver.ts'
import { SubscriptionQueue } from './subscription-queue.ts'
import { TimerWheel } from './timer-wheel.ts'

const action = fc.oneof(
  { weight: 4, arbitrary: fc.record({ do: fc.constant('publish' as const), key: fc.constantFrom('', 'a', 'a', 'b') }) },
  {
    weight: 4,
    arbitrary: fc.record({ do: fc.constant('take' as const), who: fc.nat(2), count: fc.integer({ min: 1, max: 4 }) }),
  },
  { weight: 4, arbitrary: fc.record({ do: fc.constant('ack' as const), which: fc.nat() }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('nack' as const), which: fc.nat() }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('wait' as const), ms: fc.nat(15_000) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('replace' as const), who: fc.nat(2) }) },
)

interface Lease {
  readonly number: number
  readonly key: string
  readonly leaseId: number
  readonly receiver: Receiver
}

test('nothing is lost, nothing settled comes back, and no message overtakes its key', async () => {
  const runs = fc.asyncProperty(
    fc.array(action, { minLength: 30, maxLength: 120 }),
    fc.boolean(),
    fc.boolean(),
    async (actions, isExactlyOnce, hasBackoff) => {
      const clock = createFakeClock(0)
      const settled = new Set<number>()
      let nonce = 0
      const retry = hasBackoff ? { minMs: 100, maxMs: 1_000 } : null
      const policy = { isOrdered: true, isExactlyOnce, retainsAcked: false, retentionMs: 1e12, retry, maxDeliveryAttempts: 0 }
      const queue = new SubscriptionQueue(policy, {
        timers: new TimerWheel(clock),
        newNonce: () => (nonce += 1),
        onReady: () => {},
        onSettled: ({ number }) => settled.add(number),
        deadLetter: () => false,
        pick: () => 0,
      })
      const newReceiver = (index: number): Receiver => new Receiver(index !== 2, 10_000)
      const receivers = [0, 1, 2].map(newReceiver)
      const published: Message[] = []
      let leases: Lease[] = []

      /** Acknowledged before their predecessors: settled with them, unless one of those comes back. */
      const ackedAhead = new Set<number>()
      const comeBack = (lease: Lease): void => {
        leases = leases.filter((other) => other !== lease)
        if (lease.key === '') return
        for (const { number, orderingKey } of published) {
          if (orderingKey === lease.key && number >= lease.number) ackedAhead.delete(number)
        }
      }
      const isHeld = (lease: Lease): boolean => queue.modify(lease.leaseId, 10) === 'done'
      const take = (receiver: Receiver, count: number): void => {
        for (const ended of leases.filter((lease) => !isHeld(lease))) comeBack(ended)
        for (const entry of queue.take(receiver, { messages: count, bytes: 1e9 })) checkDelivery(entry, receiver)
      }
      const checkDelivery = (entry: Entry, receiver: Receiver): void => {
        const { number, orderingKey: key } = entry.message
        expect(settled.has(number)).toBe(false)
        expect(leases.some((lease) => lease.number === number)).toBe(false)
        const earlier = key === '' ? [] : published.filter((one) => one.orderingKey === key && one.number < number)
        for (const one of earlier) {
          const holder = leases.find((lease) => lease.number === one.number)?.receiver
          expect(settled.has(one.number) || holder === receiver || ackedAhead.has(one.number)).toBe(true)
        }
        leases.push({ number, key, leaseId: entry.leaseId, receiver })
      }
      for (const one of actions) {
        if (one.do === 'publish') {
          const number = published.length + 1
          const block = { bytes: Buffer.alloc(1), publishMs: 0, firstNumber: number }
          const message = new Message(block, 0, { frameStart: 0, start: 0, end: 1 }, one.key)
          published.push(message)
          queue.add(message)
        } else if (one.do === 'take') {
          // A Pull call takes once; the next one is another receiver.
          if (one.who === 2) receivers[2] = newReceiver(2)
          take(receivers[one.who] as Receiver, one.count)
        } else if (one.do === 'ack' || one.do === 'nack') {
          const lease = leases[one.which % Math.max(1, leases.length)]
          if (lease === undefined) continue
          const outcome = one.do === 'ack' ? queue.ack(lease.leaseId) : queue.modify(lease.leaseId, 0)
          if (outcome === 'unordered') continue
          if (outcome === 'done' && one.do === 'ack') {
            ackedAhead.add(lease.number)
            leases = leases.filter((other) => other !== lease)
          } else comeBack(lease)
        } else if (one.do === 'wait') await clock.advance(one.ms)
        else {
          queue.detach(receivers[one.who] as Receiver)
          receivers[one.who] = newReceiver(one.who)
        }
      }

      // Whoever is left takes and settles everything; nothing may be missing in the end.
      for (const receiver of receivers) queue.detach(receiver)
      const last = new Receiver(true, 1e9)
      for (let round = 0; queue.unackedMessages > 0; round += 1) {
        expect(round).toBeLessThan(50)
        await clock.advance(20_000)
        for (const { leaseId } of queue.take(last, { messages: 1e9, bytes: 1e9 })) queue.ack(leaseId)
      }
      expect(settled.size).toBe(published.length)
      expect([queue.leasedMessages, queue.orderedKeys, last.heldMessages]).toEqual([0, 0, 0])
      expect([...queue.retained()]).toEqual([])
    },
  )
  await fc.assert(runs, { numRuns: 300 })
})
