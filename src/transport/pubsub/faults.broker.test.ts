import { credentials } from '@grpc/grpc-js'
import { describe, expect, test } from 'vitest'
import { message, openBroker, publishAll, unhurried } from '../../../test/e2e/pubsub-broker.ts'
import type { FaultName } from 'waybill-pubsub-server'
import { eventually } from '../../testing/kit/eventually.ts'
import { createFakeClock } from '../../testing/kit/fake-clock.ts'
import { startFaultProxy } from '../../testing/faults/fault-proxy.ts'
import type { PubsubDelivery } from './receive/delivery.ts'
import { pubsub } from './pubsub.ts'
import type { OutgoingMessage, Transport } from '../port/transport.ts'

/** Receives and acks everything; remembers the order in which each key's messages came first. */
async function collect(transport: Transport, maxMessages = 100) {
  const firsts = new Map<string, number[]>()
  const seen = new Set<string>()
  const counts = { deliveries: 0, errors: 0 }
  const receiver = await transport.receive({
    topic: 'video.events',
    consumer: 'catalog',
    maxMessages,
    maxBytes: 10_000_000,
    onError: () => (counts.errors += 1),
    onDelivery: (delivery) => {
      const [key = '', n] = (delivery.message.attributes['name'] ?? '').split(':')
      counts.deliveries += 1
      if (!seen.has(`${key}:${n}`)) {
        seen.add(`${key}:${n}`)
        firsts.set(key, [...(firsts.get(key) ?? []), Number(n)])
      }
      void delivery.ack()
    },
  })
  return { receiver, firsts, seen, counts }
}

const keys = Array.from({ length: 20 }, (_, i) => `k${i}`)
const count = 15
const versions = (from: number, to: number): OutgoingMessage[] =>
  Array.from({ length: to - from }, (_, i) => keys.map((key) => message(key, from + i))).flat()

async function survives(fault: FaultName, probability: number, isExactlyOnce: boolean): Promise<void> {
  const { server, transport, close } = await openBroker({ isExactlyOnce })
  try {
    const received = await collect(transport)
    server.faults.set({ [fault]: probability })
    // Version by version, so that many requests and many responses are struck.
    for (let n = 0; n < 8; n += 1) await publishAll(transport, versions(n, n + 1))
    await eventually(() => expect(server.faults.fired[fault]).toBeGreaterThan(0))
    server.faults.clear()
    await publishAll(transport, versions(8, count))
    await eventually(() => expect(received.seen.size).toBe(keys.length * count))
    for (const key of keys) expect(received.firsts.get(key)).toEqual(Array.from({ length: count }, (_, i) => i))
    await eventually(() => expect(server.stats().subscriptions[0]?.unackedMessages).toBe(0))
    await received.receiver.close()
  } finally {
    await close()
  }
}

const faults: readonly (readonly [FaultName, number])[] = [
  ['duplicate', 0.3],
  ['delay', 0.3],
  ['dropAcks', 0.2],
  ['reorder', 0.5],
  ['publishError', 0.3],
  ['refuse', 0.3],
  ['cutStreams', 0.5],
]

describe.each([false, true])('with exactly-once delivery %s, nothing is lost and every key is in order', (isExactlyOnce) => {
  // Exactly-once delivery never duplicates, so that fault cannot strike there.
  test.each(faults.filter(([fault]) => !isExactlyOnce || fault !== 'duplicate'))('through %s', async (fault, probability) => {
    await survives(fault, probability, isExactlyOnce)
  })
})

test('a handler that takes three times the lease gets its message once', async () => {
  const clock = createFakeClock()
  const leaseMs = 12_000
  const { server, transport, close } = await openBroker({ clock, transport: { leaseMs } })
  try {
    const deliveries: PubsubDelivery[] = []
    const receiver = await transport.receive({
      topic: 'video.events',
      consumer: 'catalog',
      maxMessages: 10,
      maxBytes: 1_000_000,
      onError: () => {},
      onDelivery: (delivery) => deliveries.push(delivery as PubsubDelivery),
    })
    await publishAll(transport, [message('slow', 1)])
    await eventually(() => expect(deliveries).toHaveLength(1))
    // Every third of a lease it is extended, and time goes on when the service has confirmed that.
    for (let third = 1; third <= 9; third += 1) {
      await clock.advance(leaseMs / 3)
      await eventually(() => expect(deliveries[0]?.leaseUntilMs).toBe(clock.monotonicMs() + leaseMs))
    }
    expect(await deliveries[0]?.ack()).toBe('confirmed')
    await receiver.close()
    expect(deliveries).toHaveLength(1)
    expect(server.stats().subscriptions[0]?.unackedMessages).toBe(0)
  } finally {
    await close()
  }
})

test('a delivery that outlives its longest lease is lost to its handler, and comes again', async () => {
  const clock = createFakeClock()
  const leaseMs = 12_000
  const { transport, close } = await openBroker({ clock, transport: { leaseMs, maxLeaseMs: 15_000 } })
  try {
    const deliveries: PubsubDelivery[] = []
    await transport.receive({
      topic: 'video.events',
      consumer: 'catalog',
      maxMessages: 1,
      maxBytes: 1_000_000,
      onError: () => {},
      onDelivery: (delivery) => deliveries.push(delivery as PubsubDelivery),
    })
    await publishAll(transport, [message('stuck', 1)])
    await eventually(() => expect(deliveries).toHaveLength(1))
    for (let third = 1; third <= 3; third += 1) {
      await clock.advance(leaseMs / 3)
      await eventually(() => expect(deliveries[0]?.leaseUntilMs).toBe(clock.monotonicMs() + leaseMs))
    }
    expect(deliveries[0]?.lost.aborted).toBe(false)
    await clock.advance(leaseMs / 3)
    await eventually(() => expect(deliveries.map(({ lost }) => lost.aborted)).toEqual([true, false]))
    expect(await deliveries[1]?.ack()).toBe('confirmed')
  } finally {
    await close()
  }
})

test.each([
  { isExactlyOnce: false, leaseMs: 15_000 },
  { isExactlyOnce: true, leaseMs: 60_000 },
])(
  'what a killed consumer held goes to another after $leaseMs ms unless told otherwise (exactly once: $isExactlyOnce)',
  async (kind) => {
    const { isExactlyOnce, leaseMs } = kind
    const clock = createFakeClock()
    const { server, close } = await openBroker({ clock, isExactlyOnce })
    const proxy = await startFaultProxy({ target: { host: server.host, port: server.port } })
    const options = { projectId: 'faults', exactlyOnce: isExactlyOnce }
    const killed = pubsub({ ...options, emulatorHost: `${proxy.host}:${proxy.port}` })
    const other = pubsub({ ...options, emulatorHost: server.emulatorHost, clock })
    try {
      const bounds = { topic: 'video.events', consumer: 'catalog', maxMessages: 10, maxBytes: 1_000_000, onError: () => {} }
      let held = 0
      await killed.receive({ ...bounds, onDelivery: () => (held += 1) })
      await publishAll(other, [message('held', 0), message('held', 1)])
      await eventually(() => expect(held).toBe(2))
      proxy.refuse()
      proxy.cut()
      await eventually(() => expect(proxy.connections).toBe(0))
      const received = await collect(other)
      await clock.advance(leaseMs - 1)
      await publishAll(other, [message('free', 0)])
      await eventually(() => expect([...received.seen]).toEqual(['free:0']))
      await clock.advance(1)
      await eventually(() => expect([...received.seen]).toEqual(['free:0', 'held:0', 'held:1']))
    } finally {
      await killed.close()
      await other.close()
      await proxy.stop()
      await close()
    }
  },
)

test('a stream that falls silent without an end is replaced, and what waited arrives', async () => {
  const { server, clock, close } = await openBroker()
  const proxy = await startFaultProxy({ target: { host: server.host, port: server.port } })
  const transport = pubsub({
    projectId: 'faults',
    emulatorHost: `${proxy.host}:${proxy.port}`,
    silentMs: 10_000,
    callTimeoutMs: 500,
    clock,
  })
  try {
    const received = await collect(transport)
    await publishAll(transport, [message('a', 0)])
    await eventually(() => expect(received.seen.size).toBe(1))
    // Old connections forward nothing any more and are never told; new ones work.
    proxy.stall()
    const direct = pubsub({ projectId: 'faults', emulatorHost: server.emulatorHost })
    await publishAll(direct, [message('a', 1), message('b', 0)])
    await direct.close()
    await eventually(() => expect(proxy.connections).toBeGreaterThan(2))
    proxy.heal()
    await eventually(() => expect(received.seen.size).toBe(3))
  } finally {
    await transport.close()
    await proxy.stop()
    await close()
  }
})

test('a connection on which a publish was given up unanswered is replaced', async () => {
  const { server, close } = await openBroker()
  const proxy = await startFaultProxy({ target: { host: server.host, port: server.port } })
  const transport = pubsub({ projectId: 'faults', emulatorHost: `${proxy.host}:${proxy.port}`, publishTimeoutMs: 600_000 })
  const maySend = (): boolean => true
  try {
    await publishAll(transport, [message('a', 0)])
    proxy.stall()
    const given = new AbortController()
    const unanswered = transport.publish([message('a', 1)], { signal: given.signal, maySend })
    await eventually(() => proxy.waiting('toServer') > 0)
    given.abort()
    expect(await unanswered).toMatchObject([{ status: 'unavailable' }])
    const again = transport.publish([message('a', 1)], { signal: AbortSignal.timeout(60_000), maySend })
    await eventually(() => expect(proxy.connections).toBe(2))
    proxy.heal()
    expect(await again).toMatchObject([{ status: 'confirmed' }])
  } finally {
    await transport.close()
    await proxy.stop()
    await close()
  }
})

test('an aborted close does not wait for a service that answers nothing', async () => {
  const { server, close } = await openBroker(unhurried)
  const proxy = await startFaultProxy({ target: { host: server.host, port: server.port } })
  const transport = pubsub({ projectId: 'faults', emulatorHost: `${proxy.host}:${proxy.port}`, callTimeoutMs: 600_000 })
  try {
    let inHand = 0
    const receiver = await transport.receive({
      topic: 'video.events',
      consumer: 'catalog',
      maxMessages: 10,
      maxBytes: 1_000_000,
      onError: () => {},
      onDelivery: () => (inHand += 1),
    })
    await publishAll(transport, [message('a', 0)])
    await eventually(() => expect(inHand).toBe(1))
    proxy.stall()
    await receiver.close(AbortSignal.abort())
    proxy.heal()
  } finally {
    await transport.close()
    await proxy.stop()
    await close()
  }
})

test('an aborted close does not wait for a connection that never opens, nor do the give-backs that need it', async () => {
  const { server, close } = await openBroker(unhurried)
  const clock = createFakeClock()
  const proxy = await startFaultProxy({ target: { host: server.host, port: server.port } })
  let asked = 0
  const getUniverseDomain = (): Promise<string> => {
    asked += 1
    return asked === 1 ? Promise.resolve('googleapis.com') : new Promise(() => {})
  }
  const clientOptions = { sslCreds: credentials.createInsecure(), auth: { getUniverseDomain } }
  const endpoint = { apiEndpoint: `${proxy.host}:${proxy.port}`, clientOptions }
  const transport = pubsub({ projectId: 'faults', ...endpoint, silentMs: 10_000, callTimeoutMs: 600_000, clock })
  const direct = pubsub({ projectId: 'faults', emulatorHost: server.emulatorHost })
  try {
    let inHand = 0
    const receiver = await transport.receive({
      topic: 'video.events',
      consumer: 'catalog',
      maxMessages: 10,
      maxBytes: 1_000_000,
      onError: () => {},
      onDelivery: () => (inHand += 1),
    })
    await publishAll(direct, [message('a', 0)])
    await eventually(() => expect(inHand).toBe(1))
    // The stream falls silent and is replaced, on a connection whose credentials never come. Closing the old one asks for some too.
    proxy.stall()
    await eventually(async () => {
      await clock.advance(1_000)
      expect(asked).toBeGreaterThanOrEqual(3)
    })
    let isClosed = false
    void receiver.close(AbortSignal.abort()).then(() => (isClosed = true))
    await eventually(async () => {
      await clock.advance(1_000)
      expect(isClosed).toBe(true)
    })
  } finally {
    const closing = transport.close()
    await clock.advance(10_000)
    await closing
    await direct.close()
    await proxy.stop()
    await close()
  }
})

test('a backlog of 100,000 never puts more in hand than the bounds', async () => {
  const { server, transport, close } = await openBroker(unhurried)
  try {
    const total = 100_000
    const messages = Array.from({ length: total }, (_, i): OutgoingMessage => ({ ...message('', i), orderingKey: undefined }))
    await publishAll(transport, messages)
    const bounds = { maxMessages: 700, maxBytes: 20_000 }
    let inHand = 0
    let bytes = 0
    const handled = new Set<string>()
    const most = { messages: 0, bytes: 0 }
    const receiver = await transport.receive({
      topic: 'video.events',
      consumer: 'catalog',
      ...bounds,
      onError: () => {},
      onDelivery: (delivery) => {
        const name = delivery.message.attributes['name'] ?? ''
        const size = delivery.message.body.byteLength + 'name'.length + name.length
        inHand += 1
        bytes += size
        most.messages = Math.max(most.messages, inHand)
        most.bytes = Math.max(most.bytes, bytes)
        setImmediate(() => {
          inHand -= 1
          bytes -= size
          handled.add(name)
          void delivery.ack()
        })
      },
    })
    await eventually(() => expect(handled.size).toBe(total))
    await receiver.close()
    expect(most.messages).toBeLessThanOrEqual(bounds.maxMessages)
    expect(most.bytes).toBeLessThanOrEqual(bounds.maxBytes)
    expect(most.messages).toBeGreaterThan(100)
    await eventually(() => expect(server.stats().subscriptions[0]?.unackedMessages).toBe(0))
  } finally {
    await close()
  }
})
