import { expect, test } from 'vitest'
import { message, openBroker, publishAll, unhurried } from '../../../../test/e2e/pubsub-broker.ts'
import { eventually } from '../../../testing/kit/eventually.ts'
import { createFakeClock } from '../../../testing/kit/fake-clock.ts'
import { startFaultProxy } from '../../../testing/faults/fault-proxy.ts'
import { pubsub } from '../pubsub.ts'
import type { Delivery, Receiver, Transport } from '../../port/transport.ts'

async function hold(
  transport: Transport,
  maxMessages = 100,
): Promise<{ readonly held: Delivery[]; readonly receiver: Receiver }> {
  const held: Delivery[] = []
  const receiver = await transport.receive({
    topic: 'video.events',
    consumer: 'catalog',
    maxMessages,
    maxBytes: 1_000_000,
    onError: () => {},
    onDelivery: (delivery) => held.push(delivery),
  })
  return { held, receiver }
}

const names = (deliveries: readonly Delivery[]): string[] =>
  deliveries.map(({ message: { attributes } }) => attributes['name'] ?? '')

test('what follows a nacked message under its key is lost to its handlers, and comes again behind it', async () => {
  const { transport, close } = await openBroker(unhurried)
  try {
    const { held } = await hold(transport)
    await publishAll(transport, [message('a', 1), message('a', 2), message('a', 3), message('b', 1)])
    await eventually(() => expect(held).toHaveLength(4))
    const [a1, a2, a3, b1] = held.toSorted((x, y) => (names([x])[0]! < names([y])[0]! ? -1 : 1)) as [
      Delivery,
      Delivery,
      Delivery,
      Delivery,
    ]
    void a1.nack(250)
    expect([a1, a2, a3, b1].map(({ lost }) => lost.aborted)).toEqual([false, true, true, false])
    expect(await a2.ack()).toBe('lost')
    expect(await b1.ack()).toBe('confirmed')
    await eventually(() => expect(names(held.slice(4))).toEqual(['a:1', 'a:2', 'a:3']))
  } finally {
    await close()
  }
})

test.each([1, 2])('a nack with a long delay leaves room for other keys, also with %i at a time', async (maxMessages) => {
  const { transport, close } = await openBroker(unhurried)
  try {
    const acked: string[] = []
    const { promise: nacked, resolve } = Promise.withResolvers<void>()
    await transport.receive({
      topic: 'video.events',
      consumer: 'catalog',
      maxMessages,
      maxBytes: 1_000_000,
      onError: () => {},
      onDelivery: (delivery) => {
        if (delivery.message.orderingKey === 'a') return void delivery.nack(3_600_000).finally(resolve)
        acked.push(...names([delivery]))
        void delivery.ack()
      },
    })
    await publishAll(transport, [message('a', 1)])
    await nacked
    await publishAll(transport, [message('b', 1), message('c', 1)])
    await eventually(() => expect(acked.toSorted()).toEqual(['b:1', 'c:1']))
  } finally {
    await close()
  }
})

test('with one at a time, what is nacked for long comes again once a second, and others come between', async () => {
  const clock = createFakeClock()
  const { transport, close } = await openBroker({ clock })
  try {
    const seen: string[] = []
    await transport.receive({
      topic: 'video.events',
      consumer: 'catalog',
      maxMessages: 1,
      maxBytes: 1_000_000,
      onError: () => {},
      onDelivery: (delivery) => {
        seen.push(...names([delivery]))
        void (delivery.message.orderingKey === 'a' ? delivery.nack(3_600_000) : delivery.ack())
      },
    })
    await publishAll(transport, [message('a', 1)])
    await eventually(() => seen.length > 0)
    for (let second = 1; second <= 5; second += 1) {
      await publishAll(transport, [message('b', second)])
      await clock.advance(999)
      expect(seen).toHaveLength(2 * second - 1)
      await clock.advance(1)
      await eventually(() => expect(seen.slice(-2)).toEqual([`b:${second}`, 'a:1']))
    }
  } finally {
    await close()
  }
})

test('the bounds hold when the stream is cut and the service, which forgot what we have, sends more', async () => {
  const { server, close } = await openBroker(unhurried)
  const proxy = await startFaultProxy({ target: { host: server.host, port: server.port } })
  const transport = pubsub({ projectId: 'faults', emulatorHost: `${proxy.host}:${proxy.port}`, ...unhurried.transport })
  try {
    const { held } = await hold(transport, 5)
    await publishAll(
      transport,
      Array.from({ length: 40 }, (_, i) => message(`k${i}`, 0)),
    )
    await eventually(() => expect(held).toHaveLength(5))
    proxy.cut()
    // The service counts what it leased to either stream.
    await eventually(() => expect(server.stats().subscriptions[0]?.leasedMessages).toBe(10))
    expect(held).toHaveLength(5)
    await eventually(async () => {
      expect(held.length).toBeLessThanOrEqual(5)
      for (const delivery of held.splice(0)) await delivery.ack()
      return server.stats().subscriptions[0]?.unackedMessages === 0
    })
  } finally {
    await transport.close()
    await proxy.stop()
    await close()
  }
})

test.each([false, true])('an ack is repeated until it is confirmed (exactly-once delivery %s)', async (isExactlyOnce) => {
  const { server, transport, close } = await openBroker({ isExactlyOnce, ...unhurried })
  try {
    const { held } = await hold(transport)
    await publishAll(transport, [message('a', 1)])
    await eventually(() => expect(held).toHaveLength(1))
    server.faults.set({ refuse: 1 })
    const acked = held[0]!.ack()
    await eventually(() => expect(server.faults.fired.refuse).toBeGreaterThan(1))
    server.faults.clear()
    expect(await acked).toBe('confirmed')
    expect(server.stats().subscriptions[0]?.unackedMessages).toBe(0)
    expect(held).toHaveLength(1)
  } finally {
    await close()
  }
})

test('with exactly-once delivery, an ack after the lease has ended is reported as lost', async () => {
  const clock = createFakeClock()
  const { server, transport, close } = await openBroker({ isExactlyOnce: true, clock })
  try {
    const { held } = await hold(transport)
    await publishAll(transport, [message('a', 1)])
    await eventually(() => expect(held).toHaveLength(1))
    server.faults.set({ refuse: 1 })
    await clock.advance(90_000)
    const acked = held[0]!.ack()
    server.faults.clear()
    expect(await acked).toBe('lost')
    // What was refused is asked again after a moment.
    await eventually(async () => {
      await clock.advance(100)
      expect(held).toHaveLength(2)
    })
    expect(await held[1]!.ack()).toBe('confirmed')
  } finally {
    await close()
  }
})

test('a close that takes its time hands over what was on its way, and asks the service for nothing more', async () => {
  const { server, close } = await openBroker(unhurried)
  const proxy = await startFaultProxy({ target: { host: server.host, port: server.port } })
  const clock = createFakeClock()
  const through = { projectId: 'faults', emulatorHost: `${proxy.host}:${proxy.port}` }
  const transport = pubsub({ ...through, clock, silentMs: 3_000 })
  const direct = pubsub({ projectId: 'faults', emulatorHost: server.emulatorHost })
  try {
    const { held, receiver } = await hold(transport)
    proxy.stall('toClient')
    await publishAll(direct, [message('a', 0), message('a', 1)])
    await eventually(() => expect(server.stats().subscriptions[0]?.leasedMessages).toBe(2))
    const closing = receiver.close()
    // The moment of the next sign of life is within the farewell.
    await clock.advance(1_500)
    proxy.heal()
    await eventually(() => expect(names(held)).toEqual(['a:0', 'a:1']))
    expect(await Promise.all(held.map((delivery) => delivery.ack()))).toEqual(['confirmed', 'confirmed'])
    await closing
  } finally {
    await transport.close()
    await direct.close()
    await proxy.stop()
    await close()
  }
})

test('a service that is out of reach from the start has accepted nothing, however long it says nothing', async () => {
  const { server, close } = await openBroker(unhurried)
  const clock = createFakeClock()
  const proxy = await startFaultProxy({ target: { host: server.host, port: server.port } })
  const transport = pubsub({ projectId: 'faults', emulatorHost: `${proxy.host}:${proxy.port}`, clock })
  try {
    proxy.stall()
    let isOpen = false
    const opening = hold(transport).then(() => (isOpen = true))
    await eventually(() => expect(proxy.waiting('toServer')).toBeGreaterThan(0))
    await clock.advance(50_000)
    expect(isOpen).toBe(false)
    proxy.heal()
    await opening
  } finally {
    proxy.heal()
    const closing = transport.close()
    await clock.advance(10_000)
    await closing
    await proxy.stop()
    await close()
  }
})
