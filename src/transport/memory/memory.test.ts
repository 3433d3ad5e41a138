import { describe, expect, test } from 'vitest'
import { seededRandom } from '../../core/service/random.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { createFakeClock } from '../../testing/kit/fake-clock.ts'
import { transportContract } from '../../testing/contract/transport-contract.ts'
import { memory, type MemoryTransport } from './memory.ts'
import type { AckOutcome, Delivery, OutgoingMessage, PublishOptions, ReceiveOptions } from '../port/transport.ts'

let topics = 0

transportContract('memory', {
  describe,
  test,
  open: () => {
    const transport = memory()
    return Promise.resolve({
      transport,
      makeTopic: () => Promise.resolve(`topic-${++topics}`),
      outage: () => {
        transport.setOutage('refuse')
        return Promise.resolve(() => Promise.resolve(transport.setOutage('none')))
      },
      close: () => transport.close(),
    })
  },
})

const forever: PublishOptions = { signal: new AbortController().signal, maySend: () => true }

function messages(count: number, keys = 3): readonly OutgoingMessage[] {
  return Array.from({ length: count }, (_, i) => ({
    topic: 'nasty',
    orderingKey: `k${i % keys}`,
    attributes: { name: `m${i}` },
    body: Buffer.from(`m${i}`),
  }))
}

const landed = (broker: MemoryTransport): readonly (string | undefined)[] =>
  broker.published.map(({ attributes }) => attributes['name'])

describe('on a bad day', () => {
  test('a request lands twice, and every message is confirmed once', async () => {
    const broker = memory({ nasty: { duplicatePublish: 1 } })
    const outcomes = await broker.publish(messages(30), forever)
    await broker.quiet()
    expect(outcomes.every(({ status }) => status === 'confirmed')).toBe(true)
    expect(broker.publishedCount).toBe(60)
    expect(broker.struck.duplicatePublish).toBe(3)
  })

  test('a request fails and nothing of it lands', async () => {
    const broker = memory({ nasty: { failPublish: 1 } })
    const outcomes = await broker.publish(messages(3), forever)
    expect(outcomes.map(({ status }) => status)).toEqual(['unavailable', 'unavailable', 'unavailable'])
    expect(landed(broker)).toEqual([])
  })

  test('a request lands, or its beginning does, though it is reported as unavailable', async () => {
    const broker = memory({ nasty: { lieOnPublish: 1 } })
    const outcomes = await broker.publish(messages(40, 1), forever)
    expect(new Set(outcomes.map(({ status }) => status))).toEqual(new Set(['unavailable']))
    expect(broker.publishedCount).toBeGreaterThan(0)
    expect(landed(broker)).toEqual(messages(broker.publishedCount).map(({ attributes }) => attributes['name']))
  })

  test('a request that was given up lands later', async () => {
    const broker = memory({ nasty: { landLate: 1 } })
    const outcomes = await broker.publish(messages(1), forever)
    expect(outcomes.map(({ status }) => status)).toEqual(['unavailable'])
    expect(landed(broker)).toEqual([])
    await broker.quiet()
    expect(landed(broker)).toEqual(['m0'])
  })

  test('keys overtake each other, but nobody overtakes within a key', async () => {
    const broker = memory({ nasty: { reorderKeys: 0.5 } })
    const names = await receiveAll(broker, messages(60, 6))
    expect(names).not.toEqual(messages(60).map(({ attributes }) => attributes['name']))
    for (let key = 0; key < 6; key += 1) {
      const ofKey = names.filter((name) => Number(name.slice(1)) % 6 === key)
      expect(ofKey).toEqual(ofKey.toSorted((a, b) => Number(a.slice(1)) - Number(b.slice(1))))
    }
    expect(broker.struck.reorderKeys).toBeGreaterThan(0)
  })

  test('an ack gets lost and the message comes again', async () => {
    const broker = memory({ nasty: { dropAck: 0.5 } })
    const outcomes: AckOutcome[] = []
    await receiveAll(broker, messages(20), (delivery) => void delivery.ack().then((outcome) => outcomes.push(outcome)))
    expect(outcomes).toContain('unconfirmed')
    expect(broker.deliveries.length).toBe(20 + broker.struck.dropAck)
  })

  test('a message comes again although its ack was confirmed', async () => {
    const broker = memory({ nasty: { duplicateDelivery: 0.5 } })
    await receiveAll(broker, messages(20))
    expect(broker.struck.duplicateDelivery).toBeGreaterThan(0)
    expect(broker.deliveries.length).toBe(20 + broker.struck.duplicateDelivery)
  })

  test('a nack brings back successors that were acked already', async () => {
    const broker = memory({ nasty: { redeliverSuccessors: 1 } })
    const inHand: Delivery[] = []
    await broker.receive({ ...receiving, onDelivery: (delivery) => void inHand.push(delivery) })
    await broker.publish(messages(3, 1), forever)
    await eventually(() => inHand.length === 3)
    await inHand[1]?.ack()
    await inHand[2]?.ack()
    await inHand[0]?.nack()
    await eventually(() =>
      expect(inHand.map(({ message }) => message.attributes['name'])).toEqual(['m0', 'm1', 'm2', 'm0', 'm1', 'm2']),
    )
  })

  test('a receiver that was closed is handed one more delivery, which is lost already', async () => {
    const broker = memory({ nasty: { deliverAfterClose: 1 } })
    const deliveries: Delivery[] = []
    const receiver = await broker.receive({
      ...receiving,
      maxMessages: 1,
      onDelivery: (delivery) => void deliveries.push(delivery),
    })
    await broker.publish(messages(2, 2), forever)
    await eventually(() => deliveries.length === 1)
    await receiver.close(AbortSignal.abort())
    expect(deliveries).toHaveLength(2)
    expect(deliveries[1]?.lost.aborted).toBe(true)
    expect(await deliveries[1]?.ack()).toBe('lost')
  })

  test('a delivery that was given back with a delay keeps nothing awake after the close', async () => {
    const clock = createFakeClock()
    const broker = memory({ clock })
    const inHand: Delivery[] = []
    await broker.receive({ ...receiving, onDelivery: (delivery) => void inHand.push(delivery) })
    await broker.publish(messages(1), forever)
    await eventually(() => inHand.length === 1)
    await inHand[0]?.nack(86_400_000)
    expect(clock.sleepers()).toBe(1)
    await broker.close()
    expect(clock.sleepers()).toBe(0)
  })

  test('the same seed makes the same day', async () => {
    const day = async (seed: number): Promise<unknown> => {
      const broker = memory({ nasty: true, lateMs: 0, random: seededRandom(seed) })
      for (const message of messages(200)) await broker.publish([message], forever)
      return [landed(broker), broker.struck]
    }
    expect(await day(7)).toEqual(await day(7))
    expect(await day(7)).not.toEqual(await day(8))
  })

  test('all of it together loses nothing, and keeps the first occurrences of each key in order', async () => {
    const broker = memory({ nasty: true, random: seededRandom(3) })
    const sent = messages(400, 5)
    const seen: string[] = []
    await broker.receive({
      ...receiving,
      onDelivery: (delivery) => void (seen.push(delivery.message.attributes['name'] ?? ''), delivery.ack()),
    })
    for (let left = sent; left.length > 0;) {
      const outcomes = await broker.publish(left, forever)
      left = left.filter((_, i) => outcomes[i]?.status !== 'confirmed')
    }
    await broker.quiet()
    await eventually(() => new Set(seen).size === 400)
    for (let key = 0; key < 5; key += 1) {
      const firsts = [...new Set(landed(broker).filter((name) => Number(name?.slice(1)) % 5 === key))]
      expect(firsts).toEqual(
        sent.filter(({ orderingKey }) => orderingKey === `k${key}`).map(({ attributes }) => attributes['name']),
      )
    }
  })
})

describe('outages', () => {
  test('a broker that hangs ends a publish only when it is aborted', async () => {
    const broker = memory()
    broker.setOutage('hang')
    const stop = new AbortController()
    const publishing = broker.publish(messages(2), { ...forever, signal: stop.signal })
    stop.abort()
    expect((await publishing).map(({ status }) => status)).toEqual(['unavailable', 'unavailable'])
  })

  test('a broker that lies takes everything and admits nothing', async () => {
    const broker = memory()
    broker.setOutage('lie')
    expect(new Set((await broker.publish(messages(4), forever)).map(({ status }) => status))).toEqual(new Set(['unavailable']))
    expect(broker.publishedCount).toBe(4)
  })

  test('a topic that is missing takes nothing, and the others do', async () => {
    const broker = memory()
    broker.setMissing(['gone'])
    const [one] = messages(1) as readonly [OutgoingMessage]
    const sent = [{ ...one, topic: 'gone' }, one]
    expect((await broker.publish(sent, forever)).map(({ status }) => status)).toEqual(['unroutable', 'confirmed'])
    broker.setMissing([])
    expect((await broker.publish(sent, forever)).map(({ status }) => status)).toEqual(['confirmed', 'confirmed'])
  })

  test('a confirmation that was not waited for is unknown, and the message is there', async () => {
    const broker = memory({ latencyMs: 60_000 })
    const stop = new AbortController()
    const publishing = broker.publish(messages(1), { ...forever, signal: stop.signal })
    await eventually(() => broker.publishedCount === 1)
    stop.abort()
    expect((await publishing).map(({ status }) => status)).toEqual(['unavailable'])
  })

  test('messages are refused by predicate, at once and by requests alike', async () => {
    for (const latencyMs of [0, 1]) {
      const broker = memory({ latencyMs, rejects: ({ attributes }) => attributes['name'] === 'm2' })
      const outcomes = await broker.publish(messages(8, 2), forever)
      expect(outcomes.map(({ status }) => status)).toEqual([
        'confirmed',
        'confirmed',
        'rejected',
        'confirmed',
        'not-sent',
        'confirmed',
        'not-sent',
        'confirmed',
      ])
    }
  })

  test('an unknown nastiness or an impossible chance is refused', () => {
    expect(() => memory({ nasty: { dropAcks: 1 } as never })).toThrow('Did you mean "dropAck"')
    expect(() => memory({ nasty: { dropAck: 2 } })).toThrow('must be a chance from 0 to 1')
  })
})

const receiving: ReceiveOptions = {
  topic: 'nasty',
  consumer: 'one',
  maxMessages: 100,
  maxBytes: 1_000_000,
  onDelivery: () => undefined,
  onError: () => undefined,
}

/** Receives until every message has come and nothing is in hand; the names in the order of their first coming. */
async function receiveAll(
  broker: MemoryTransport,
  sent: readonly OutgoingMessage[],
  settle = (delivery: Delivery): void => void delivery.ack(),
): Promise<readonly string[]> {
  await broker.publish(sent, forever)
  const names: string[] = []
  await broker.receive({
    ...receiving,
    onDelivery: (delivery) => {
      names.push(delivery.message.attributes['name'] ?? '')
      settle(delivery)
    },
  })
  const expected = (): number => sent.length + broker.struck.dropAck + broker.struck.duplicateDelivery
  await eventually(() => new Set(names).size === sent.length && names.length === expected())
  return [...new Set(names)]
}
