import { expect, test } from 'vitest'
import { createFakeClock } from '../../../../src/testing/kit/fake-clock.ts'
import type { FakeClock } from '../../../../src/testing/kit/fake-clock.ts'
import { Message } from '../model/message.ts'
import type { DeliveryPolicy } from './delivery-policy.ts'
import type { Entry } from './entry.ts'
import { Receiver } from './receiver.ts'
import { SubscriptionQueue } from './subscription-queue.ts'
import { TimerWheel } from './timer-wheel.ts'

const dayMs = 86_400_000
const all = { messages: 1_000, bytes: 1_000_000 }

const plain: DeliveryPolicy = {
  isOrdered: false,
  isExactlyOnce: false,
  retainsAcked: false,
  retentionMs: 7 * dayMs,
  retry: null,
  maxDeliveryAttempts: 0,
}

interface Harness {
  readonly queue: SubscriptionQueue
  readonly clock: FakeClock
  readonly settled: number[]
  readonly deadLettered: number[]
  readonly pick: { next: number }
  readonly ready: { count: number }
}

function open(policy: Partial<DeliveryPolicy> = {}): Harness {
  const clock = createFakeClock(0)
  const settled: number[] = []
  const deadLettered: number[] = []
  const pick = { next: 0 }
  const ready = { count: 0 }
  let nonce = 0
  const queue = new SubscriptionQueue(
    { ...plain, ...policy },
    {
      timers: new TimerWheel(clock),
      newNonce: () => ++nonce,
      onReady: () => (ready.count += 1),
      onSettled: ({ number }) => settled.push(number),
      deadLetter: ({ message }) => deadLettered.push(message.number) > 0,
      pick: () => pick.next,
    },
  )
  return { queue, clock, settled, deadLettered, pick, ready }
}

function message(number: number, orderingKey = ''): Message {
  const block = { bytes: Buffer.alloc(10), publishMs: number, firstNumber: number }
  return new Message(block, 0, { frameStart: 0, start: 0, end: 10 }, orderingKey)
}

const stream = (): Receiver => new Receiver(true, 10_000)
const numbers = (entries: readonly Entry[]): number[] => entries.map((entry) => entry.message.number)

test('a message is leased to one receiver at a time and gone once acknowledged', () => {
  const { queue, settled } = open()
  queue.add(message(1))
  const [entry] = queue.take(stream(), all)
  expect(queue.take(stream(), all)).toEqual([])
  expect(queue.ack(entry?.leaseId ?? 0)).toBe('done')
  expect(queue.ack(entry?.leaseId ?? 0)).toBe('invalid')
  expect(settled).toEqual([1])
  expect(queue.unackedMessages).toBe(0)
  expect([...queue.retained()]).toEqual([])
})

test('a lease that ends brings the message back under another lease, and the old one is worth nothing', async () => {
  const { queue, clock } = open()
  queue.add(message(1))
  const [first] = queue.take(stream(), all)
  const oldLease = first?.leaseId ?? 0
  await clock.advance(9_999)
  expect(queue.take(stream(), all)).toEqual([])
  await clock.advance(20)
  const [second] = queue.take(stream(), all)
  expect(second?.message.number).toBe(1)
  expect(second?.leaseId).not.toBe(oldLease)
  expect(queue.ack(oldLease)).toBe('invalid')
  expect(queue.unackedMessages).toBe(1)
})

test('a new deadline counts from now, and zero gives the message back at once', async () => {
  const { queue, clock } = open()
  queue.add(message(1))
  const receiver = stream()
  const [entry] = queue.take(receiver, all)
  await clock.advance(9_000)
  expect(queue.modify(entry?.leaseId ?? 0, 30)).toBe('done')
  await clock.advance(29_000)
  expect(queue.take(receiver, all)).toEqual([])
  expect(queue.modify(entry?.leaseId ?? 0, 0)).toBe('done')
  expect(numbers(queue.take(receiver, all))).toEqual([1])
})

test('the delay before redelivery doubles from the minimum and stops at the maximum', async () => {
  const { queue, clock } = open({ retry: { minMs: 1_000, maxMs: 3_000 } })
  queue.add(message(1))
  const receiver = stream()
  for (const delayMs of [1_000, 2_000, 3_000, 3_000]) {
    const [entry] = queue.take(receiver, all)
    queue.modify(entry?.leaseId ?? 0, 0)
    await clock.advance(delayMs - 10)
    expect(queue.take(receiver, all)).toEqual([])
    await clock.advance(20)
  }
  expect(numbers(queue.take(receiver, all))).toEqual([1])
})

test('what a receiver holds never exceeds its room in messages or bytes', () => {
  const { queue } = open()
  for (let number = 1; number <= 10; number += 1) queue.add(message(number))
  const byCount = stream()
  byCount.maxMessages = 3
  expect(numbers(queue.take(byCount, all))).toEqual([1, 2, 3])
  expect(queue.take(byCount, all)).toEqual([])
  const byBytes = stream()
  byBytes.maxBytes = 15
  const taken = queue.take(byBytes, all)
  expect(numbers(taken)).toEqual([4])
  expect(queue.take(byBytes, all)).toEqual([])
  queue.ack(taken[0]?.leaseId ?? 0)
  expect(byBytes.heldBytes).toBe(0)
  expect(numbers(queue.take(byBytes, all))).toEqual([5])
})

test('a message larger than all the room of a receiver goes to it alone, and others of its key wait', () => {
  const { queue } = open({ isOrdered: true })
  for (const number of [1, 2]) queue.add(message(number, 'a'))
  const small = stream()
  small.maxBytes = 5
  const [one] = queue.take(small, all)
  expect(one?.message.number).toBe(1)
  expect(queue.take(small, all)).toEqual([])
  queue.ack(one?.leaseId ?? 0)
  expect(numbers(queue.take(small, all))).toEqual([2])
})

test('a receiver that was full is offered more as soon as there is room', () => {
  const { queue, ready } = open()
  for (const number of [1, 2]) queue.add(message(number))
  const receiver = stream()
  receiver.maxBytes = 15
  const [one] = queue.take(receiver, all)
  const before = ready.count
  queue.ack(one?.leaseId ?? 0)
  expect(ready.count).toBe(before + 1)
})

test('messages of a key go out in order to one stream until everything sent is settled', () => {
  const { queue } = open({ isOrdered: true })
  const [first, second] = [stream(), stream()]
  for (const number of [1, 2]) queue.add(message(number, 'a'))
  queue.add(message(3, 'b'))
  expect(numbers(queue.take(first, { ...all, messages: 2 }))).toEqual([1, 2])
  queue.add(message(4, 'a'))
  expect(numbers(queue.take(second, all))).toEqual([3])
  expect(numbers(queue.take(first, all))).toEqual([4])
})

test('a Pull gets no more of a key while an earlier Pull has not settled its batch', () => {
  const { queue } = open({ isOrdered: true })
  for (const number of [1, 2, 3]) queue.add(message(number, 'a'))
  const first = queue.take(new Receiver(false, 10_000), { ...all, messages: 2 })
  expect(numbers(first)).toEqual([1, 2])
  expect(queue.take(new Receiver(false, 10_000), all)).toEqual([])
  for (const { leaseId } of first) queue.ack(leaseId)
  expect(numbers(queue.take(new Receiver(false, 10_000), all))).toEqual([3])
})

test('a message that comes back brings all its successors back in order, acknowledged ones too', () => {
  const { queue, settled } = open({ isOrdered: true })
  const receiver = stream()
  for (const number of [1, 2, 3, 4]) queue.add(message(number, 'a'))
  const [one, two, three] = queue.take(receiver, { ...all, messages: 3 })
  queue.ack(one?.leaseId ?? 0)
  const leaseOfThree = three?.leaseId ?? 0
  queue.ack(leaseOfThree)
  expect(settled).toEqual([1])
  queue.modify(two?.leaseId ?? 0, 0)
  expect(numbers(queue.take(receiver, all))).toEqual([2, 3, 4])
  expect(two?.failures).toBe(1)
  expect(three?.failures).toBe(0)
  expect(queue.ack(leaseOfThree)).toBe('invalid')
})

test('an acknowledgement ahead of its predecessors counts once they are settled', () => {
  const { queue, settled } = open({ isOrdered: true })
  for (const number of [1, 2, 3]) queue.add(message(number, 'a'))
  const [one, two, three] = queue.take(stream(), all)
  queue.ack(three?.leaseId ?? 0)
  queue.ack(two?.leaseId ?? 0)
  expect(settled).toEqual([])
  queue.ack(one?.leaseId ?? 0)
  expect(settled).toEqual([1, 2, 3])
  expect(queue.orderedKeys).toBe(0)
})

test('with exactly-once delivery an acknowledgement out of order is refused and may be repeated', () => {
  const { queue } = open({ isOrdered: true, isExactlyOnce: true })
  for (const number of [1, 2]) queue.add(message(number, 'a'))
  const [one, two] = queue.take(stream(), all)
  expect(queue.ack(two?.leaseId ?? 0)).toBe('unordered')
  expect(queue.ack(one?.leaseId ?? 0)).toBe('done')
  expect(queue.ack(two?.leaseId ?? 0)).toBe('done')
})

test('with exactly-once delivery a repeated acknowledgement succeeds again, and one whose lease has ended does not', () => {
  const { queue, settled } = open({ isExactlyOnce: true })
  for (const number of [1, 2]) queue.add(message(number))
  const [one, two] = queue.take(stream(), all).map(({ leaseId }) => leaseId)
  expect([queue.ack(one ?? 0), queue.ack(one ?? 0)]).toEqual(['done', 'done'])
  queue.modify(two ?? 0, 0)
  expect(queue.ack(two ?? 0)).toBe('invalid')
  expect(settled).toEqual([1])
})

test('a failing head delays its own key and no other', async () => {
  const { queue, clock } = open({ isOrdered: true, retry: { minMs: 5_000, maxMs: 5_000 } })
  const receiver = stream()
  queue.add(message(1, 'a'))
  queue.add(message(2, 'a'))
  const [one] = queue.take(receiver, { ...all, messages: 1 })
  queue.modify(one?.leaseId ?? 0, 0)
  queue.add(message(3, 'b'))
  queue.add(message(4, 'a'))
  expect(numbers(queue.take(receiver, all))).toEqual([3])
  await clock.advance(5_010)
  expect(numbers(queue.take(receiver, all))).toEqual([1, 2, 4])
})

test('when a stream goes, its keys wait for its leases and then go to another, from the start', async () => {
  const { queue, clock } = open({ isOrdered: true })
  const [gone, other] = [stream(), stream()]
  for (const number of [1, 2, 3]) queue.add(message(number, 'a'))
  expect(numbers(queue.take(gone, { ...all, messages: 2 }))).toEqual([1, 2])
  queue.detach(gone)
  expect(queue.take(other, all)).toEqual([])
  await clock.advance(10_010)
  expect(numbers(queue.take(other, all))).toEqual([1, 2, 3])
})

test('a message is dead-lettered after as many failures as attempts are allowed, and lets its successors pass', () => {
  const { queue, deadLettered, settled } = open({ isOrdered: true, maxDeliveryAttempts: 5 })
  const receiver = stream()
  for (const number of [1, 2]) queue.add(message(number, 'a'))
  for (let attempt = 1; attempt <= 5; attempt += 1) {
    const [one] = queue.take(receiver, { ...all, messages: 1 })
    expect(one?.message.number).toBe(1)
    queue.modify(one?.leaseId ?? 0, 0)
  }
  expect(deadLettered).toEqual([1])
  expect(settled).toEqual([1])
  expect(numbers(queue.take(receiver, all))).toEqual([2])
})

test('messages past their retention are dropped, whether waiting or leased', () => {
  const { queue, settled } = open({ retentionMs: 1_000 })
  for (const number of [1, 2, 3_000]) queue.add(message(number))
  const [one] = queue.take(stream(), { ...all, messages: 1 })
  queue.dropExpired(2_000)
  expect(settled).toEqual([1, 2])
  expect(queue.ack(one?.leaseId ?? 0)).toBe('invalid')
  expect(numbers(queue.take(stream(), all))).toEqual([3_000])
})

test('a reset invalidates every lease and delivers what it says, in order', () => {
  const { queue } = open({ isOrdered: true, retainsAcked: true })
  const messages = [message(1, 'a'), message(2, 'a'), message(3, 'b')]
  for (const one of messages) queue.add(one)
  const receiver = stream()
  const taken = queue.take(receiver, all)
  for (const { leaseId } of taken.slice(0, 2)) queue.ack(leaseId)
  expect([...queue.retained()].map(({ isAcked }) => isAcked)).toEqual([true, true, false])
  queue.reset(messages.map((one) => ({ message: one, isAcked: one.number === 1 })))
  expect(receiver.heldMessages).toBe(0)
  expect(queue.ack(taken[2]?.leaseId ?? 0)).toBe('invalid')
  expect(numbers(queue.take(receiver, all))).toEqual([2, 3])
  expect([...queue.retained()].map(({ isAcked }) => isAcked)).toEqual([true, false, false])
})

test('picking from anywhere in the backlog reorders keys and never a key', () => {
  const { queue, pick } = open({ isOrdered: true })
  for (let number = 1; number <= 9; number += 1) queue.add(message(number, 'abc'[number % 3]))
  pick.next = 2
  const taken = queue.take(stream(), all)
  expect(numbers(taken)).not.toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9])
  for (const key of ['a', 'b', 'c']) {
    const own = numbers(taken.filter((entry) => entry.message.orderingKey === key))
    expect(own).toEqual(own.toSorted((a, b) => a - b))
    expect(own).toHaveLength(3)
  }
})
