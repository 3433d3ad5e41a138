/** What a transport promises about the end of a delivery: ack, nack, and a receiver or transport that closes. */
import assert from 'node:assert/strict'
import type { Delivery } from '../../transport/port/transport.ts'
import { eventually } from '../kit/eventually.ts'
import type { TransportPromise } from './transport-contract.ts'
import { interleaved, letTimePass, message, nameOf, probe, publishAll } from './probe.ts'

export const settlingPromises: readonly TransportPromise[] = [
  {
    name: 'an acked message does not come again to the next receiver',
    check: async ({ transport, makeTopic }) => {
      const topic = await makeTopic(['one'])
      await publishAll(transport, interleaved(topic, ['a', 'b'], 10))
      const acks: Promise<string>[] = []
      const first = await probe(transport, { topic, on: (delivery) => void acks.push(delivery.ack()) })
      await first.until(20)
      await first.receiver.close()
      for (const outcome of await Promise.all(acks)) assert.notEqual(outcome, 'lost')
      const second = await probe(transport, { topic })
      await publishAll(transport, [message(topic, 'last')])
      await second.until(1)
      await letTimePass()
      assert.deepEqual(second.names(), ['last'])
    },
  },
  {
    name: 'a nacked message comes again, not before its delay, and its successors behind it; other keys do not wait',
    check: async ({ transport, makeTopic }) => {
      const topic = await makeTopic(['one'])
      const delayMs = 400
      let nackedAt = 0
      let againAt = 0
      const inHand: Delivery[] = []
      const received = await probe(transport, {
        topic,
        on: (delivery) => {
          if (nackedAt === 0) return void inHand.push(delivery)
          if (nameOf(delivery) === 'a1') againAt ||= performance.now()
          void delivery.ack()
        },
      })
      await publishAll(transport, interleaved(topic, ['a'], 3))
      await received.until(3)
      nackedAt = performance.now()
      for (const delivery of inHand) await delivery.nack(delayMs)
      await publishAll(transport, [message(topic, 'b1', 'b')])
      await received.until(4)
      await eventually(() => assert.equal(received.names().length, 7, received.names().join(' ')))
      assert.deepEqual(
        received.names().filter((name) => name !== 'b1'),
        ['a1', 'a2', 'a3', 'a1', 'a2', 'a3'],
      )
      // Timers may be early by a fraction of a millisecond, and two clocks are involved.
      assert.ok(againAt - nackedAt >= delayMs - 20, `came back after ${againAt - nackedAt} ms`)
    },
  },
  {
    name: 'a key that fills the bounds makes room for the others when it is nacked, however long its delay',
    check: async ({ transport, makeTopic }) => {
      const topic = await makeTopic(['one'])
      const delayMs = 60_000
      let isNacking = false
      const received = await probe(transport, {
        topic,
        maxMessages: 4,
        on: (delivery) => {
          if (delivery.message.orderingKey !== 'a') void delivery.ack()
          else if (isNacking) void delivery.nack(delayMs)
        },
      })
      await publishAll(transport, interleaved(topic, ['a'], 4))
      await received.until(4)
      await publishAll(transport, interleaved(topic, ['b', 'c'], 4))
      // They reach the receiver, where it reads ahead, and wait there for room.
      await letTimePass()
      isNacking = true
      await received.deliveries[0]?.nack(delayMs)
      await received.until(12)
    },
  },
  {
    name: 'a nack without a delay brings the message back, and counts the attempt where the broker counts',
    check: async ({ transport, makeTopic }) => {
      const topic = await makeTopic(['one'])
      let deliveries = 0
      const received = await probe(transport, {
        topic,
        on: (delivery) => {
          deliveries += 1
          void (deliveries < 3 ? delivery.nack() : delivery.ack())
        },
      })
      await publishAll(transport, [message(topic, 'm1')])
      await eventually(() => deliveries === 3)
      const attempts = received.deliveries.map((each) => each.message.deliveryAttempt).filter((attempt) => attempt !== undefined)
      assert.ok(attempts.length === 0 || attempts.join() === '1,2,3', `attempts ${attempts.join()}`)
    },
  },
  {
    name: 'a handler that throws has nacked: the message comes again, also with room for one only',
    check: async ({ transport, makeTopic }) => {
      const topic = await makeTopic(['one'])
      let hasThrown = false
      const received = await probe(transport, {
        topic,
        maxMessages: 1,
        on: (delivery) => {
          if (hasThrown) return void delivery.ack()
          hasThrown = true
          throw new Error('The handler threw.')
        },
      })
      await publishAll(transport, [message(topic, 'm1', 'a')])
      await eventually(() => received.names().length > 1)
      await publishAll(transport, [message(topic, 'm2', 'a')])
      await received.until(2)
      assert.deepEqual(received.firstNames(), ['m1', 'm2'])
    },
  },
  {
    name: 'settling twice changes nothing',
    check: async ({ transport, makeTopic }) => {
      const topic = await makeTopic(['one'])
      const received = await probe(transport, { topic, on: () => undefined })
      await publishAll(transport, [message(topic, 'm1', 'a')])
      await received.until(1)
      const [delivery] = received.deliveries as readonly [Delivery]
      assert.notEqual(await delivery.ack(), 'lost')
      await delivery.nack()
      await delivery.ack()
      await publishAll(transport, [message(topic, 'm2', 'a')])
      await received.until(2)
      await letTimePass()
      assert.deepEqual(received.names(), ['m1', 'm2'])
    },
  },
  {
    name: 'closing a receiver waits for what is in hand, takes its acks, and hands out nothing new',
    check: async ({ transport, makeTopic }) => {
      const topic = await makeTopic(['one'])
      await publishAll(transport, interleaved(topic, ['a', 'b'], 10))
      const first = await probe(transport, { topic, maxMessages: 4, on: () => undefined })
      await eventually(() => first.deliveries.length === 4)
      let closed = false
      const closing = first.receiver.close().then(() => (closed = true))
      await letTimePass()
      assert.equal(closed, false, 'it closed with deliveries in hand')
      for (const delivery of first.deliveries) {
        assert.equal(delivery.lost.aborted, false)
        assert.notEqual(await delivery.ack(), 'lost')
      }
      await closing
      assert.equal(first.deliveries.length, 4)
      const settled = new Set(first.names())
      const second = await probe(transport, { topic })
      await second.until(16)
      await letTimePass()
      assert.equal(first.deliveries.length, 4)
      assert.deepEqual(
        second.names().filter((name) => settled.has(name)),
        [],
        'what was acked came again',
      )
    },
  },
  {
    name: 'a receiver that is closed without patience loses what it has in hand, and is told so',
    check: async ({ transport, makeTopic }) => {
      const topic = await makeTopic(['one'])
      await publishAll(transport, interleaved(topic, ['a'], 2))
      const first = await probe(transport, { topic, on: () => undefined })
      await first.until(2)
      const giveUp = new AbortController()
      const closing = first.receiver.close(giveUp.signal)
      giveUp.abort()
      await closing
      const [delivery] = first.deliveries as readonly [Delivery]
      assert.equal(delivery.lost.aborted, true)
      assert.notEqual(await delivery.ack(), 'confirmed')
      const second = await probe(transport, { topic })
      await second.until(2)
      assert.deepEqual(second.ofKey('a'), ['a1', 'a2'])
    },
  },
  {
    name: 'a receiver that waits for what is in hand gives it up when it is closed again with less patience, or its transport is',
    check: async ({ transport, makeTopic }) => {
      const topic = await makeTopic(['one', 'two'])
      await publishAll(transport, [message(topic, 'm1')])
      const [one, two] = [
        await probe(transport, { topic, consumer: 'one', on: () => {} }),
        await probe(transport, { topic, consumer: 'two', on: () => {} }),
      ]
      await Promise.all([one.until(1), two.until(1)])
      const lost = [one, two].map(({ deliveries }) => deliveries[0]?.lost)
      const patient = [one.receiver.close(), two.receiver.close()]
      const giveUp = new AbortController()
      const impatient = one.receiver.close(giveUp.signal)
      giveUp.abort()
      await Promise.all([impatient, patient[0]])
      assert.deepEqual([lost[0]?.aborted, lost[1]?.aborted], [true, false])
      await transport.close()
      await patient[1]
      assert.equal(lost[1]?.aborted, true)
    },
  },
  {
    name: 'after the transport is closed nothing is delivered and nothing is confirmed',
    check: async ({ transport, makeTopic }) => {
      const topic = await makeTopic(['one'])
      await publishAll(transport, interleaved(topic, ['a'], 10))
      const received = await probe(transport, { topic, maxMessages: 2, on: () => undefined })
      await eventually(() => received.deliveries.length === 2)
      await transport.close()
      await letTimePass()
      assert.equal(received.deliveries.length, 2)
      const [outcome] = await transport.publish([message(topic, 'late')], {
        signal: AbortSignal.timeout(1_000),
        maySend: () => true,
      })
      assert.ok(outcome?.status === 'unavailable' || outcome?.status === 'not-sent', outcome?.status)
    },
  },
]
