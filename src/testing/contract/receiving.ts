/** What a transport promises to those who receive: who gets what, in which order, and how much at a time. */
import assert from 'node:assert/strict'
import type { AckOutcome, Delivery } from '../../transport/port/transport.ts'
import { eventually } from '../kit/eventually.ts'
import type { TransportPromise } from './transport-contract.ts'
import { abandoned, interleaved, letTimePass, message, nameOf, probe, publishAll } from './probe.ts'

export const receivingPromises: readonly TransportPromise[] = [
  {
    name: 'two consumers each get everything',
    check: async ({ transport, makeTopic }) => {
      const topic = await makeTopic(['one', 'two'])
      const first = await probe(transport, { topic, consumer: 'one' })
      const second = await probe(transport, { topic, consumer: 'two' })
      await publishAll(transport, interleaved(topic, ['a', 'b'], 20))
      await Promise.all([first.until(40), second.until(40)])
      for (const key of ['a', 'b']) assert.deepEqual(first.ofKey(key), second.ofKey(key))
    },
  },
  {
    name: 'two receivers of one consumer share the messages, and lose none',
    check: async ({ transport, makeTopic }) => {
      const topic = await makeTopic(['one'])
      const held: Delivery[] = []
      const options = { topic, maxMessages: 10, on: (delivery: Delivery) => void held.push(delivery) }
      const left = await probe(transport, options)
      const right = await probe(transport, options)
      const settle = (): void => void held.splice(0).map((delivery) => delivery.ack())
      // Who came first may have it all at first; sooner or later both get something.
      let rounds = 0
      await eventually(async () => {
        rounds += 1
        await publishAll(transport, interleaved(topic, [`a${rounds}.`, `b${rounds}.`, `c${rounds}.`, `d${rounds}.`], 5))
        settle()
        return left.deliveries.length > 0 && right.deliveries.length > 0
      })
      await eventually(() => {
        settle()
        const all = new Set([...left.names(), ...right.names()])
        assert.equal(all.size, rounds * 20)
      })
    },
  },
  {
    name: 'receivers that share keep the order of each key: what is in one hand is not passed over by another',
    needs: 'exclusiveKeys',
    check: async ({ transport, makeTopic }) => {
      const topic = await makeTopic(['one'])
      const seen: string[] = []
      const waiting: Delivery[] = []
      let overlaps = 0
      const receiverOf = (name: string) => ({
        topic,
        maxMessages: 7,
        on: (delivery: Delivery) => {
          const key = delivery.message.orderingKey
          if (waiting.some((other) => other.message.orderingKey === key && holder.get(other) !== name)) overlaps += 1
          holder.set(delivery, name)
          waiting.push(delivery)
          seen.push(nameOf(delivery))
        },
      })
      const holder = new Map<Delivery, string>()
      await probe(transport, receiverOf('left'))
      await probe(transport, receiverOf('right'))
      const keys = ['a', 'b', 'c']
      await publishAll(transport, interleaved(topic, keys, 30))
      await eventually(async () => {
        // The last in hand is settled last, so that later ones of its key would have every chance to be handed elsewhere.
        const settled = waiting.slice(0, Math.ceil(waiting.length / 2))
        await Promise.all(settled.map((delivery) => delivery.ack()))
        waiting.splice(0, settled.length)
        return new Set(seen).size === 90
      })
      assert.equal(overlaps, 0, 'a key was in two hands at once')
      for (const key of keys) {
        const ofKey = [...new Set(seen.filter((name) => name.startsWith(key)))]
        assert.deepEqual(
          ofKey,
          Array.from({ length: 30 }, (_, i) => `${key}${i + 1}`),
        )
      }
    },
  },
  {
    name: 'hands out no more unsettled messages than maxMessages, whatever the backlog',
    check: async ({ transport, makeTopic }) => {
      const topic = await makeTopic(['one'])
      await publishAll(
        transport,
        Array.from({ length: 100 }, (_, i) => message(topic, `m${i}`, i % 2 === 0 ? `k${i % 10}` : undefined)),
      )
      const inHand = new Set<Delivery>()
      let most = 0
      const received = await probe(transport, {
        topic,
        maxMessages: 7,
        on: (delivery) => {
          inHand.add(delivery)
          most = Math.max(most, inHand.size)
        },
      })
      await eventually(() => inHand.size === 7)
      await letTimePass()
      assert.equal(most, 7)
      await eventually(async () => {
        for (const delivery of [...inHand].slice(0, 5)) {
          inHand.delete(delivery)
          await delivery.ack()
        }
        return received.firstNames().length === 100
      })
      assert.ok(most <= 7, `${most} in hand`)
    },
  },
  {
    name: 'hands out no more unsettled bytes than maxBytes, but a larger message still comes alone',
    check: async ({ transport, makeTopic }) => {
      const topic = await makeTopic(['one'])
      const bodies = Array.from({ length: 20 }, (_, i) => ({
        ...message(topic, `m${i}`),
        body: new Uint8Array(i === 10 ? 5_000 : 1_000),
      }))
      await publishAll(transport, bodies)
      const inHand = new Set<Delivery>()
      const bytes = (): number => [...inHand].reduce((sum, each) => sum + each.message.body.byteLength, 0)
      const exceeded: number[] = []
      const received = await probe(transport, {
        topic,
        maxBytes: 3_500,
        on: (delivery) => {
          inHand.add(delivery)
          if (bytes() > 3_500 && inHand.size > 1) exceeded.push(bytes())
        },
      })
      await eventually(async () => {
        const [oldest] = inHand
        if (oldest !== undefined) {
          inHand.delete(oldest)
          await oldest.ack()
        }
        return received.firstNames().length === 20
      })
      assert.deepEqual(exceeded, [])
    },
  },
  {
    name: 'what a receiver gave up without settling comes again, in order, before what follows it',
    check: async ({ transport, makeTopic }) => {
      const topic = await makeTopic(['one'])
      await publishAll(transport, interleaved(topic, ['a'], 3))
      const first = await probe(transport, { topic, on: () => undefined })
      await first.until(3)
      await first.receiver.close(abandoned)
      await publishAll(transport, [message(topic, 'a4', 'a')])
      const second = await probe(transport, { topic })
      await second.until(4)
      assert.deepEqual(second.ofKey('a'), ['a1', 'a2', 'a3', 'a4'])
    },
  },
  {
    name: 'a consumer can be moved to the beginning of what is retained',
    needs: 'seek',
    check: async ({ transport, makeTopic }) => {
      const topic = await makeTopic(['one'])
      await publishAll(transport, interleaved(topic, ['a', 'b'], 5))
      const before = await probe(transport, { topic })
      await before.until(10)
      await before.receiver.close()
      await transport.seek({ topic, consumer: 'one', to: 'earliest' })
      const after = await probe(transport, { topic })
      await after.until(10)
      assert.deepEqual(after.ofKey('a'), ['a1', 'a2', 'a3', 'a4', 'a5'])
    },
  },
  {
    name: 'a consumer can be moved to a moment',
    needs: 'seek',
    check: async ({ transport, makeTopic }) => {
      const topic = await makeTopic(['one'])
      await publishAll(transport, interleaved(topic, ['a'], 3))
      await letTimePass()
      await publishAll(transport, [message(topic, 'a4', 'a'), message(topic, 'a5', 'a')])
      const before = await probe(transport, { topic })
      await before.until(5)
      await before.receiver.close()
      const sinceMs = before.deliveries.find((each) => nameOf(each) === 'a4')?.message.publishedAtMs ?? 0
      await transport.seek({ topic, consumer: 'one', to: { sinceMs } })
      const after = await probe(transport, { topic })
      await after.until(2)
      await letTimePass()
      assert.deepEqual(after.ofKey('a'), ['a4', 'a5'])
    },
  },
  {
    name: 'a consumer that is moved back to a moment skips nothing: what is older and not settled comes first',
    needs: 'rewind',
    // Whoever cannot keep it has no such method, so that nobody relies on it.
    without: async ({ transport }) => assert.equal(typeof transport.rewind, 'undefined'),
    check: async ({ transport, makeTopic }) => {
      const topic = await makeTopic(['one'])
      const acks: Promise<AckOutcome>[] = []
      const before = await probe(transport, {
        topic,
        on: (delivery) => void (nameOf(delivery) === 'a2' || acks.push(delivery.ack())),
      })
      await publishAll(transport, [message(topic, 'a1', 'a')])
      await before.until(1)
      await Promise.all(acks)
      await publishAll(transport, [message(topic, 'a2', 'a')])
      await letTimePass()
      await publishAll(transport, [message(topic, 'a3', 'a')])
      await before.until(3)
      const sinceMs = before.deliveries.find((each) => nameOf(each) === 'a3')?.message.publishedAtMs ?? 0
      await before.receiver.close(abandoned)
      assert.ok(transport.rewind !== undefined, 'there is a rewind')
      await transport.rewind({ topic, consumer: 'one', sinceMs })
      const after = await probe(transport, { topic })
      await after.until(2)
      await letTimePass()
      assert.deepEqual(after.ofKey('a'), ['a2', 'a3'])
    },
  },
]
