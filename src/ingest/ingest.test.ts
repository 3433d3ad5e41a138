import { setImmediate as turn } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { heldPublisher } from '../../test/ingest/held-publisher.ts'
import { reading, readingKey, readings } from '../../test/ingest/readings.ts'
import { businessKeyId } from '../core/event/id.ts'
import { createSignals, type SignalName } from '../core/signals.ts'
import { stream } from '../core/event/stream.ts'
import { state, tombstone } from '../core/event/event.ts'
import { readEvent } from '../consumer/model/received-event.ts'
import { createFakeClock } from '../testing/kit/fake-clock.ts'
import { memory } from '../transport/memory/memory.ts'
import type { Publisher } from '../transport/port/transport.ts'
import { factId } from './fact.ts'
import { createIngest } from './ingest.ts'
import type { IngestOptions } from './ingest-options.ts'

type Options = Partial<IngestOptions<typeof readings.ReadingTaken>>

const open = (to: Publisher, options: Options = {}) =>
  createIngest({ event: readings.ReadingTaken, key: readingKey, to, ...options })

test('a fact is accepted with an id that follows from its key alone, the same for every repeat and every instance', async () => {
  const broker = memory()
  const first = await open(broker).accept(reading(1))
  expect(first).toEqual({ status: 'accepted', eventId: businessKeyId('reading.ReadingTaken', ['meter-1', 1]) })
  expect(await open(broker).accept({ ...reading(1), value: 99 })).toEqual(first)
  expect(await open(broker).accept(reading(2))).not.toEqual(first)
  expect(factId(readings.ReadingTaken, ['meter-1', '1'])).toBe((first as { eventId: string }).eventId)
})

test('the message is one that consumers read: the key is the aggregate, at version 1, and headers cannot replace what we promise', async () => {
  const broker = memory()
  await open(broker, { headers: () => ({ traceparent: '00-1', event_id: 'x' }) }).accept(reading(3))
  const [message] = broker.published
  expect(readEvent(message as never)).toMatchObject({
    id: factId(readings.ReadingTaken, ['meter-3', 3]),
    type: 'ReadingTaken',
    aggregateType: 'reading',
    aggregateId: 'meter-3/3',
    version: 1n,
  })
  expect(message).toMatchObject({
    topic: 'reading.events',
    attributes: { traceparent: '00-1', content_type: 'application/json' },
  })
  expect(message?.orderingKey).toMatch(/^lane-\d+$/)
})

test('nothing is accepted before the broker has confirmed it', async () => {
  const broker = heldPublisher()
  let answered = false
  const accepting = open(broker)
    .accept(reading(1))
    .finally(() => (answered = true))
  while (broker.calls.length === 0) await turn()
  await turn()
  expect(answered).toBe(false)
  broker.answer('confirmed')
  expect(await accepting).toMatchObject({ status: 'accepted' })
})

test.each([
  ['rejected', 'REJECTED', false],
  ['unavailable', 'UNAVAILABLE', true],
  ['not-sent', 'UNAVAILABLE', true],
] as const)('what the broker calls %s is refused as %s', async (status, code, retryable) => {
  const broker = heldPublisher()
  broker.answer(status)
  expect(await open(broker).accept(reading(1))).toMatchObject({ status: 'refused', code, retryable })
})

test('data that does not fit, keys that can be none, and facts that are too large never reach the broker', async () => {
  const broker = heldPublisher(2_000)
  const ingest = open(broker)
  for (const bad of [
    undefined,
    null,
    'x',
    {},
    { ...reading(1), value: '1' },
    { ...reading(1), meter: '' },
    { ...reading(1), at: 0.5 },
  ])
    expect(await ingest.accept(bad)).toMatchObject({ status: 'refused', code: 'INVALID_INPUT', retryable: false })
  expect(await ingest.accept({ ...reading(1), note: 'x'.repeat(2_000) })).toMatchObject({ code: 'TOO_LARGE', retryable: false })
  expect(broker.calls).toEqual([])
})

test('an error of the key function is thrown on: it is a defect, not a fact to refuse', async () => {
  const key = (): never => {
    throw new TypeError('no such field')
  }
  await expect(open(memory(), { key }).accept(reading(1))).rejects.toThrow('no such field')
})

test('facts that come together go out together, and what comes meanwhile goes in the next calls', async () => {
  const broker = heldPublisher()
  const ingest = open(broker, { concurrency: 1, batchSize: 40 })
  const accepting = Array.from({ length: 100 }, (_, n) => ingest.accept(reading(n)))
  while (broker.calls.length === 0) await turn()
  accepting.push(ingest.accept(reading(100)))
  broker.answer('confirmed')
  expect(new Set((await Promise.all(accepting)).map(({ status }) => status))).toEqual(new Set(['accepted']))
  expect(broker.calls.map((call) => call.length)).toEqual([40, 40, 21])
})

test('batches are bounded by bytes too, and a fact that is larger goes alone', async () => {
  const broker = heldPublisher(100_000)
  broker.answer('confirmed')
  const ingest = open(broker, { concurrency: 1, batchBytes: 5_000 })
  const large = { ...reading(0), note: 'x'.repeat(8_000) }
  await ingest.acceptMany([large, reading(1), reading(2)])
  expect(broker.calls.map((call) => call.length)).toEqual([1, 2])
})

test('each fact of many has an outcome of its own, in the order given', async () => {
  const broker = memory({ rejects: ({ attributes }) => attributes['aggregate_id'] === 'meter-2/2' })
  const outcomes = await open(broker).acceptMany([reading(1), { meter: 7 }, reading(2), reading(3)])
  expect(outcomes.map((outcome) => (outcome.status === 'accepted' ? 'ok' : outcome.code))).toEqual([
    'ok',
    'INVALID_INPUT',
    'REJECTED',
    'ok',
  ])
})

test('what is in flight is bounded by count and by bytes; beyond that facts are refused, and nothing of them is kept', async () => {
  for (const bound of [{ maxInFlight: 10 }, { maxInFlightBytes: 4_000 }]) {
    const broker = heldPublisher()
    const ingest = open(broker, bound)
    const accepting = Array.from({ length: 50 }, (_, n) => ingest.accept(reading(n)))
    const refused = (await Promise.all(accepting.map((each) => Promise.race([each, turn(undefined)])))).filter(Boolean)
    while (broker.calls.length === 0) await turn()
    expect(refused.length).toBeGreaterThanOrEqual(30)
    for (const outcome of refused) expect(outcome).toMatchObject({ code: 'OVERLOADED', retryable: true, retryAfterMs: 1_000 })
    broker.answer('confirmed')
    const accepted = (await Promise.all(accepting)).filter(({ status }) => status === 'accepted')
    expect(accepted.length + refused.length).toBe(50)
    expect(broker.calls.flat().length).toBe(accepted.length)
    expect(await ingest.accept(reading(60))).toMatchObject({ status: 'accepted' })
  }
})

test('a broker that is slow to confirm makes the ingest refuse at once, until it has caught up', async () => {
  const clock = createFakeClock()
  const broker = heldPublisher()
  const ingest = open(broker, { clock, slowMs: 500 })
  const first = ingest.accept(reading(1))
  await clock.advance(500)
  const second = ingest.accept(reading(2))
  await clock.advance(1)
  expect(await ingest.accept(reading(3))).toMatchObject({ code: 'OVERLOADED', retryAfterMs: 1_000 })
  expect(ingest.refusal()).toMatchObject({ code: 'OVERLOADED' })
  broker.answer('confirmed')
  expect(await Promise.all([first, second])).toMatchObject([{ status: 'accepted' }, { status: 'accepted' }])
  expect(ingest.refusal()).toBeUndefined()
})

test('a broker that never answers is given up in time, then left alone, then probed by one call', async () => {
  const clock = createFakeClock()
  const broker = heldPublisher()
  const states: string[] = []
  const signals = createSignals()
  signals.on('ingest.breaker', ({ state: now }) => states.push(now))
  const ingest = open(broker, {
    clock,
    signals,
    slowMs: 100_000,
    publishTimeoutMs: 1_000,
    concurrency: 2,
    batchSize: 1,
    breakerBackoff: { firstMs: 400, maxMs: 400, jitter: 'none' },
  })
  const accepting = Array.from({ length: 5 }, (_, n) => ingest.accept(reading(n)))
  while (broker.calls.length < 2) await turn()
  await clock.advance(1_000)
  for (const outcome of await Promise.all(accepting)) expect(outcome).toMatchObject({ code: 'UNAVAILABLE', retryable: true })
  // Two were under way, and the rest was not even tried.
  expect(broker.calls.length).toBe(2)
  expect(await ingest.accept(reading(9))).toMatchObject({ code: 'UNAVAILABLE', retryAfterMs: 400 })
  expect(broker.calls.length).toBe(2)
  await clock.advance(400)
  const probes = [ingest.accept(reading(10)), ingest.accept(reading(11))]
  while (broker.calls.length < 3) await turn()
  await turn()
  expect(broker.calls.length).toBe(3)
  broker.answer('confirmed')
  expect(await Promise.all(probes)).toMatchObject([{ status: 'accepted' }, { status: 'accepted' }])
  expect(states).toEqual(['open', 'probing', 'closed'])
})

test('a close takes no more and resolves once everything in flight is answered', async () => {
  const broker = heldPublisher()
  const ingest = open(broker)
  const accepting = ingest.accept(reading(1))
  while (broker.calls.length === 0) await turn()
  let closed = false
  const closing = ingest.close().then(() => (closed = true))
  expect(await ingest.accept(reading(2))).toMatchObject({ code: 'ABORTED', retryable: true })
  await turn()
  expect(closed).toBe(false)
  broker.answer('confirmed')
  expect(await accepting).toMatchObject({ status: 'accepted' })
  await closing
})

test('a close that is aborted gives up what is in flight as unavailable', async () => {
  const broker = heldPublisher()
  const ingest = open(broker, { concurrency: 1, batchSize: 1 })
  const accepting = [ingest.accept(reading(1)), ingest.accept(reading(2))]
  while (broker.calls.length === 0) await turn()
  await ingest.close(AbortSignal.abort())
  expect(await Promise.all(accepting)).toMatchObject([{ code: 'UNAVAILABLE' }, { code: 'UNAVAILABLE' }])
  expect(broker.calls.length).toBe(1)
})

test('a database that never answers is given up in time, and by a close that is aborted', async () => {
  const clock = createFakeClock()
  const entered: unknown[] = []
  const hanging = {
    query: () => new Promise<never>(() => {}),
    attempt: (options: unknown) => (entered.push(options), new Promise<never>(() => {})),
  }
  const to = { db: hanging, outbox: { addMany: async () => [] } }
  const ingest = createIngest({
    event: readings.ReadingTaken,
    key: readingKey,
    to,
    clock,
    slowMs: 100_000,
    publishTimeoutMs: 1_000,
  })
  const late = ingest.accept(reading(1))
  while (entered.length === 0) await turn()
  await clock.advance(1_000)
  expect(await late).toMatchObject({ code: 'UNAVAILABLE', retryable: true })
  await clock.advance(60_000)
  const last = ingest.accept(reading(2))
  while (entered.length === 1) await turn()
  await ingest.close(AbortSignal.abort())
  expect(await last).toMatchObject({ code: 'UNAVAILABLE', retryable: true })
})

test('everybody who closes is told when it is done, and any of them may give up what is in flight', async () => {
  const broker = heldPublisher()
  const ingest = open(broker)
  const accepting = ingest.accept(reading(1))
  while (broker.calls.length === 0) await turn()
  const abort = new AbortController()
  const closing = [ingest.close(), ingest.close(abort.signal), ingest.close()]
  abort.abort()
  await Promise.all(closing)
  expect(await accepting).toMatchObject({ code: 'UNAVAILABLE' })
  await ingest.close()
})

test('a business key can be asked about, and a scope keeps the keys of senders apart', async () => {
  const broker = memory()
  const asked: unknown[] = []
  const ingest = open(broker, {
    processed: (fact) => {
      asked.push(fact)
      return fact.aggregateId === 'meter-1/1'
    },
  })
  const mine = await ingest.accept(reading(1), { scope: 'ann' })
  const shared = await ingest.accept(reading(1))
  expect(mine).not.toEqual(shared)
  expect(await ingest.status(['meter-1', '1'])).toEqual({
    eventId: (shared as { eventId: string }).eventId,
    processed: true,
    conflict: false,
  })
  expect(await ingest.status(['meter-1', '1'], { scope: 'ann' })).toEqual({
    eventId: (mine as { eventId: string }).eventId,
    processed: false,
    conflict: false,
  })
  expect(asked[1]).toMatchObject({ aggregateId: 'ann/meter-1/1', key: ['ann', 'meter-1', '1'] })
  expect(await open(broker).status('a')).toMatchObject({ processed: undefined })
})

test('what it does is reported', async () => {
  const signals = createSignals()
  const heard: [SignalName, unknown][] = []
  signals.onAny((event, name) => heard.push([name, event]))
  const ingest = open(memory(), { signals })
  await ingest.acceptMany([reading(1), reading(2)])
  await ingest.accept({})
  expect(heard).toEqual([
    ['ingest.accepted', { event: 'ReadingTaken', count: 2, durationMs: expect.any(Number) }],
    ['ingest.refused', { event: 'ReadingTaken', code: 'INVALID_INPUT' }],
  ])
})

test('what cannot work is refused at start', () => {
  const gone = stream('gone', { topic: 'gone.events', events: { Gone: tombstone(), Here: state(readings.ReadingTaken.codec) } })
  const key = (): string => 'k'
  const cases: readonly (readonly [unknown, RegExp])[] = [
    [{ event: gone.Gone, key, to: memory() }, /ingest\.event/],
    [{ event: undefined, key, to: memory() }, /ingest\.event/],
    [{ event: gone.Here, key: 'k', to: memory() }, /ingest\.key/],
    [{ event: gone.Here, key, to: {} }, /ingest\.to/],
    [{ event: gone.Here, key, to: { outbox: { addMany: () => [] } } }, /ingest\.to/],
    [{ event: gone.Here, key, to: memory(), slowms: 3 }, /Did you mean "slowMs"/],
    [{ event: gone.Here, key, to: memory(), maxInFlight: 0 }, /ingest\.maxInFlight/],
  ]
  for (const [options, message] of cases) expect(() => createIngest(options as never)).toThrow(message)
})

test('a back-off that could not be computed with is refused by the name of its key', () => {
  expect(() => open(memory(), { breakerBackoff: { maxMs: NaN } })).toThrow('ingest.breakerBackoff.maxMs: must be a whole number')
})

test('a refusal of the broker is told without the secrets that it quotes', async () => {
  const publish: Publisher['publish'] = async (messages) =>
    messages.map(() => ({ status: 'rejected', error: new Error('no leave at amqps://ada:hunter2@mq') }))
  expect(await open({ maxBytes: 1_000_000, publish }).accept(reading(1))).toMatchObject({
    code: 'REJECTED',
    message: 'The broker refuses this fact: no leave at amqps://***@mq',
  })
})
