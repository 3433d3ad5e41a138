import { expect, test } from 'vitest'
import { always, message, ProducingBroker, publisherOn, statuses, type Fault } from '../../../../test/kafka/producing-broker.ts'
import { randomInt, seededRandom, type Random } from '../../../core/service/random.ts'
import { eventually } from '../../../testing/kit/eventually.ts'
import { createFakeClock } from '../../../testing/kit/fake-clock.ts'
import type { KafkaPublisher } from './publisher.ts'

test('a batch whose answer was lost is sent again as it was, and is in the log once', async () => {
  const broker = new ProducingBroker()
  let cuts = 2
  broker.faultFor = () => (cuts-- > 0 ? 'cut after' : 'none')
  const outcomes = await publisherOn(broker, { publishTimeoutMs: 5_000 }).publish(
    [message('a1', 'a'), message('a2', 'a')],
    always,
  )
  expect(statuses(outcomes)).toEqual(['confirmed', 'confirmed'])
  expect(broker.log.map(({ name }) => name)).toEqual(['a1', 'a2'])
  expect(broker.ids).toBe(1)
})

test('a batch that was given up takes its producer id with it: its number never stands for another batch', async () => {
  const broker = new ProducingBroker()
  const publisher = publisherOn(broker)
  broker.faultFor = () => 'cut after'
  expect(statuses(await publisher.publish([message('a1', 'a')], always))).toEqual(['unavailable'])
  broker.faultFor = () => 'none'
  expect(statuses(await publisher.publish([message('a2', 'a')], always))).toEqual(['confirmed'])
  expect(broker.log.map(({ name }) => name)).toEqual(['a1', 'a2'])
  expect(broker.ids).toBe(2)
})

test('a refused record stops its key only, and its neighbours keep their places', async () => {
  const broker = new ProducingBroker()
  broker.rejects = (name) => name === 'a2'
  const sent = [message('a1', 'a'), message('b1', 'b'), message('a2', 'a'), message('a3', 'a'), message('b2', 'b')]
  expect(statuses(await publisherOn(broker).publish(sent, always))).toEqual([
    'confirmed',
    'confirmed',
    'rejected',
    'not-sent',
    'confirmed',
  ])
  expect(broker.log.map(({ name }) => name).toSorted()).toEqual(['a1', 'b1', 'b2'])
})

test('a missing right is no fault of the message: it is unroutable at once, and goes out when the right is there', async () => {
  const broker = new ProducingBroker()
  const publisher = publisherOn(broker, { publishTimeoutMs: 60_000 })
  broker.faultFor = () => 'TOPIC_AUTHORIZATION_FAILED'
  const [outcome] = await publisher.publish([message('a1', 'a')], always)
  expect(outcome).toMatchObject({ status: 'unroutable', error: { code: 'FORBIDDEN' } })
  broker.faultFor = () => 'CLUSTER_AUTHORIZATION_FAILED'
  expect(statuses(await publisher.publish([message('a1', 'a')], always))).toEqual(['unavailable'])
  broker.faultFor = () => 'none'
  expect(statuses(await publisher.publish([message('a1', 'a')], always))).toEqual(['confirmed'])
})

test('a timestamp that the broker refuses tells of a wrong clock here, not of a bad message: nothing is rejected for it', async () => {
  const broker = new ProducingBroker()
  broker.faultFor = () => 'INVALID_TIMESTAMP'
  const [outcome] = await publisherOn(broker).publish([message('a1', 'a')], always)
  expect(outcome).toMatchObject({
    status: 'unavailable',
    error: { code: 'UNAVAILABLE', retryable: true, message: expect.stringContaining('clock of this host') },
  })
})

test('who may no longer send after the pause before a repetition does not send', async () => {
  const broker = new ProducingBroker()
  const clock = createFakeClock()
  broker.faultFor = () => 'cut before'
  let mayNow = true
  const publisher = publisherOn(broker, { clock, publishTimeoutMs: 60_000 })
  const publishing = publisher.publish([message('a1', 'a')], { ...always, maySend: () => mayNow })
  await eventually(() => clock.sleepers() === 1)
  mayNow = false
  await clock.advance(1_000)
  expect(statuses(await publishing)).toEqual(['unavailable'])
  expect(broker.requests.length).toBe(1)
})

test('who may no longer send while a repetition waits for its node does not send, and those behind go out under another producer id', async () => {
  const broker = new ProducingBroker()
  const clock = createFakeClock()
  const { promise: travelled, resolve: arrive } = Promise.withResolvers<void>()
  broker.faultFor = ({ records }) => (Buffer.from(records[0]?.value ?? []).toString() === 'a1' ? 'cut after' : 'none')
  let mayNow = true
  const publisher = publisherOn(broker, { clock, publishTimeoutMs: 60_000 })
  const old = publisher.publish([message('a1', 'a')], { ...always, maySend: () => mayNow })
  await eventually(() => clock.sleepers() === 1)
  broker.travel = () => travelled
  const neighbour = publisher.publish([message('b1', 'b')], always)
  await eventually(() => broker.requests.length === 2)
  const behind = publisher.publish([message('a2', 'a')], always)
  await clock.advance(1_000)
  mayNow = false
  arrive()
  expect(statuses([...(await old), ...(await neighbour), ...(await behind)])).toEqual(['unavailable', 'confirmed', 'confirmed'])
  // Under the number of a1, which is there, a2 would have been confirmed and forgotten.
  expect(broker.log.map(({ name }) => name)).toEqual(['a1', 'b1', 'a2'])
  expect(broker.requests.length).toBe(3)
})

test('a batch that is given up for want of a leader leaves none of those behind it waiting', async () => {
  const broker = new ProducingBroker()
  broker.leader = undefined
  const clock = createFakeClock()
  const publisher = publisherOn(broker, { clock, publishTimeoutMs: 60 })
  const first = publisher.publish([message('a1', 'a')], always)
  await eventually(() => clock.sleepers() === 1)
  const second = publisher.publish([message('a2', 'a')], always)
  await clock.advance(50)
  expect(statuses(await first)).toEqual(['unavailable'])
  await clock.advance(50)
  expect(statuses(await second)).toEqual(['unavailable'])
})

test('a partition that takes nothing is waited for once: until it takes something, its batches have one attempt', async () => {
  const broker = new ProducingBroker()
  const clock = createFakeClock()
  const publisher = publisherOn(broker, { clock, publishTimeoutMs: 60 })
  const sent = [message('a1', 'a'), message('b1', 'b')]
  await publisher.publish(sent, always)
  const [bad, good] = broker.log.map(({ partition }) => partition) as [number, number]
  expect(bad).not.toBe(good)
  broker.faultFor = ({ partition }) => (partition === bad ? 'NOT_ENOUGH_REPLICAS' : 'none')
  const waiting = publisher.publish(sent, always)
  await eventually(() => clock.sleepers() === 1)
  await clock.advance(50)
  expect(statuses(await waiting)).toEqual(['unavailable', 'confirmed'])
  const [requests, ids] = [broker.requests.length, broker.ids]
  // The clock stands still from here on.
  for (let i = 0; i < 3; i += 1) expect(statuses(await publisher.publish(sent, always))).toEqual(['unavailable', 'confirmed'])
  expect(broker.requests.slice(requests).filter(({ partitions }) => partitions.includes(bad)).length).toBe(3)
  // One for what came after the batch whose fate is unknown; what was refused before it was written costs none.
  expect(broker.ids - ids).toBeLessThanOrEqual(1)
  broker.faultFor = () => 'none'
  expect(statuses(await publisher.publish(sent, always))).toEqual(['confirmed', 'confirmed'])
  broker.faultFor = () => 'NOT_ENOUGH_REPLICAS'
  const again = publisher.publish([message('a2', 'a')], always)
  await eventually(() => clock.sleepers() === 1)
  broker.faultFor = () => 'none'
  await clock.advance(50)
  expect(statuses(await again)).toEqual(['confirmed'])
})

test('an attempt that finds no leader looks for one, so that the next has it', async () => {
  const broker = new ProducingBroker()
  const clock = createFakeClock()
  const publisher = publisherOn(broker, { clock, publishTimeoutMs: 60 })
  broker.leader = undefined
  const first = publisher.publish([message('a1', 'a')], always)
  await eventually(() => clock.sleepers() === 1)
  await clock.advance(50)
  expect(statuses(await first)).toEqual(['unavailable'])
  broker.leader = 1
  await eventually(async () => statuses(await publisher.publish([message('a1', 'a')], always))[0] === 'confirmed')
})

test('calls share requests: what gathers while one is under way goes out in one', async () => {
  const broker = new ProducingBroker()
  const publisher = publisherOn(broker)
  await publisher.publish([message('first', 'a')], always)
  const before = broker.requests.length
  await Promise.all(Array.from({ length: 200 }, (_, i) => publisher.publish([message(`m${i}`, `k${i % 20}`)], always)))
  expect(broker.log.length).toBe(201)
  expect(broker.requests.length - before).toBeLessThan(5)
})

test('a call that is aborted ends, and tells what was under way from what was not', async () => {
  const broker = new ProducingBroker()
  const publisher = publisherOn(broker, { publishTimeoutMs: 60_000 })
  const giveUp = new AbortController()
  broker.faultFor = () => {
    giveUp.abort()
    return 'cut before'
  }
  const outcomes = await publisher.publish([message('a1', 'a'), message('a2', 'a')], { ...always, signal: giveUp.signal })
  expect(statuses(outcomes)).toEqual(['unavailable', 'not-sent'])
})

const faults: readonly Fault[] = ['cut before', 'cut after', 'NOT_LEADER_OR_FOLLOWER', 'NOT_ENOUGH_REPLICAS_AFTER_APPEND']

/** A relay's way with each key: what is not confirmed is sent again, before anything behind it. */
async function relay(publisher: KafkaPublisher, keys: readonly string[], random: Random): Promise<void> {
  const left = new Map(keys.map((key) => [key, Array.from({ length: 30 }, (_, i) => `${key}${i + 1}`)]))
  while ([...left.values()].some((names) => names.length > 0)) {
    const batch = [...left].flatMap(([key, names]) => names.slice(0, randomInt(random, 1, 6)).map((name) => message(name, key)))
    const outcomes = await publisher.publish(batch, always)
    const confirmed = batch.filter((_, i) => outcomes[i]?.status === 'confirmed')
    const taken = confirmed.map(({ orderingKey = '' }) => left.get(orderingKey)?.shift())
    // Were one confirmed behind one that was not, these would differ.
    expect(confirmed.map(({ body }) => Buffer.from(body).toString())).toEqual(taken)
  }
}

test.each([1, 2, 3, 4, 5])(
  'whatever is cut, what was confirmed is in the log, and each key in order at its first occurrence (seed %i)',
  async (seed) => {
    const broker = new ProducingBroker()
    const random = seededRandom(seed)
    broker.faultFor = () => (random.next() < 0.3 ? (faults[randomInt(random, 0, faults.length - 1)] as Fault) : 'none')
    const publisher = publisherOn(broker, { publishTimeoutMs: 120 })
    const teams = [
      ['a', 'b', 'c', 'd'],
      ['e', 'f', 'g'],
    ]
    await Promise.all(teams.map((keys, i) => relay(publisher, keys, seededRandom(seed * 10 + i))))
    for (const key of teams.flat()) {
      const firsts = [...new Set(broker.log.map(({ name }) => name).filter((name) => name.startsWith(key)))]
      expect(firsts).toEqual(Array.from({ length: 30 }, (_, i) => `${key}${i + 1}`))
    }
    expect(broker.overlaps).toBe(0)
  },
)
