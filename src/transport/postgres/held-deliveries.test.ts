import { expect, test } from 'vitest'
import { HeldDelivery, InHand, type Settle } from './held-deliveries.ts'

const settle: Settle = { ack: () => Promise.resolve('confirmed'), nack: () => Promise.resolve() }
const messageOf = (seq: string) => ({
  messageId: seq,
  topic: 't',
  orderingKey: undefined,
  attributes: {},
  body: new Uint8Array(0),
  publishedAtMs: 0,
  deliveryAttempt: 1,
})

function handOf(...held: readonly (readonly [seq: string, key?: string, lane?: number])[]) {
  const inHand = new InHand()
  const deliveries = held.map(
    ([seq, key, lane = 0]) => new HeldDelivery(settle, { lane, tenure: '1', seq, key, bytes: 10 }, messageOf(seq)),
  )
  for (const delivery of deliveries) inHand.hold(delivery)
  return { inHand, deliveries: deliveries as [HeldDelivery, HeldDelivery, HeldDelivery] }
}

test('a nack takes back what came after it under its key, and nothing else', () => {
  const { inHand, deliveries } = handOf(['9', 'a'], ['10', 'a'], ['11', 'b'])
  inHand.nacked(deliveries[0])
  expect(deliveries.map(({ lost }) => lost.aborted)).toEqual([false, true, false])
  expect([inHand.count, inHand.bytes]).toEqual([1, 10])
  const other = handOf(['9', 'a'], ['10', 'a'])
  other.inHand.nacked(other.deliveries[1])
  expect(other.deliveries[0].lost.aborted).toBe(false)
})

test('a key whose nack may not have been seen by a fetch is not handed out from it', () => {
  const { inHand, deliveries } = handOf(['1', 'a'])
  inHand.beginFetch()
  inHand.nacked(deliveries[0])
  expect([inHand.mayHand('2', 'a'), inHand.mayHand('3', 'b'), inHand.mayHand('4', undefined)]).toEqual([false, true, true])
  inHand.nackStored(deliveries[0])
  expect(inHand.mayHand('2', 'a')).toBe(false)
  inHand.beginFetch()
  expect([inHand.mayHand('1', 'a'), inHand.mayHand('2', 'a')]).toEqual([true, true])
})

test('a fetch that begins before a nack is stored does not hand out its key either', () => {
  const { inHand, deliveries } = handOf(['1', 'a'], ['2', 'a'])
  inHand.nacked(deliveries[1])
  inHand.nacked(deliveries[0])
  inHand.nackStored(deliveries[1])
  inHand.beginFetch()
  expect(inHand.mayHand('2', 'a')).toBe(false)
})

test('what is acked counts no more, but is not fetched again before the database knows', () => {
  const { inHand, deliveries } = handOf(['1', 'a'], ['2', 'a'])
  inHand.acked(deliveries[0])
  expect([inHand.count, inHand.excluded(), inHand.mayHand('1', 'a')]).toEqual([1, ['1', '2'], false])
  inHand.forget(deliveries[0])
  expect(inHand.excluded()).toEqual(['2'])
})

test('it is drained when the database knows of everything, or when patience ends', async () => {
  const { inHand, deliveries } = handOf(['1'])
  let drained = false
  const draining = inHand.drained(undefined).then(() => (drained = true))
  inHand.acked(deliveries[0])
  await Promise.resolve()
  expect(drained).toBe(false)
  inHand.forget(deliveries[0])
  await draining
  await handOf(['1']).inHand.drained(AbortSignal.abort())
})

test('losing lanes loses what is in hand of them, and what was settled under them may be fetched again in its place', async () => {
  const { inHand, deliveries } = handOf(['1', 'a', 1], ['2', 'b', 2], ['3', 'a', 1])
  inHand.acked(deliveries[2])
  inHand.loseOthers(({ lane }) => lane === 2)
  expect(deliveries.map(({ state }) => state)).toEqual(['lost', 'in-hand', 'settled'])
  expect([inHand.count, inHand.excluded(), inHand.mayHand('3', 'a')]).toEqual([1, ['2'], true])
  expect(await deliveries[0].ack()).toBe('lost')
})
