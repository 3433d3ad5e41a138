import { expect, test } from 'vitest'
import { createBreaker, type Breaker } from '../../core/service/breaker.ts'
import { seededRandom } from '../../core/service/random.ts'
import { createFakeClock } from '../../testing/kit/fake-clock.ts'
import type { OutgoingMessage, PublishOutcome } from '../../transport/port/transport.ts'
import { createTopicGates } from './topic-breakers.ts'

const confirmed: PublishOutcome = { status: 'confirmed', messageId: 'm' }
const unroutable: PublishOutcome = { status: 'unroutable', error: new Error('no such topic') }

function to(...topics: readonly string[]): readonly OutgoingMessage[] {
  return topics.map((topic) => ({ topic, orderingKey: 'k', attributes: {}, body: new Uint8Array() }))
}

function start() {
  const clock = createFakeClock()
  const backoff = { firstMs: 250, maxMs: 1_000, jitter: 'none' } as const
  const newBreaker = (): Breaker => createBreaker({ backoff, clock, random: seededRandom(1), onChange: () => {} })
  const gates = createTopicGates({ newBreaker, restMs: () => 60_000 })
  const woken = async (): Promise<readonly string[]> => {
    const topics: string[] = []
    await gates.wakeOpened(async (opened) => void topics.push(...opened))
    return topics
  }
  return { gates, clock, woken }
}

test('a topic that takes nothing is shut, and no other is', () => {
  const { gates } = start()
  gates.learn(to('a', 'b', 'c'), [unroutable, confirmed, { status: 'unavailable', error: new Error('down') }])
  expect(gates.shut('a')).toMatchObject({ probeMs: 250, restMs: 60_000, error: { message: 'no such topic' } })
  expect([gates.shut('b'), gates.shut('c'), gates.isProbed('a'), gates.isProbed('b')]).toEqual([
    undefined,
    undefined,
    false,
    false,
  ])
  expect(gates.errors()).toEqual([new Error('no such topic')])
})

test('when its time has come it is probed; a failure shuts it for longer, a confirmation opens it', async () => {
  const { gates, clock } = start()
  gates.learn(to('a'), [unroutable])
  await clock.advance(250)
  expect([gates.shut('a'), gates.isProbed('a')]).toEqual([undefined, true])
  gates.learn(to('a'), [unroutable])
  expect([gates.shut('a')?.probeMs, gates.isProbed('a')]).toEqual([500, false])
  await clock.advance(500)
  gates.learn(to('a'), [confirmed])
  expect([gates.shut('a'), gates.isProbed('a'), gates.errors()]).toEqual([undefined, false, []])
})

test('a topic that takes one message and not another is there', () => {
  const { gates } = start()
  gates.learn(to('a', 'a'), [unroutable, confirmed])
  expect(gates.shut('a')).toBeUndefined()
})

test('what waits for a topic is woken when the topic opens: by its first confirmation, and after each time it was shut', async () => {
  const { gates, woken } = start()
  gates.learn(to('a', 'b'), [confirmed, unroutable])
  expect(await woken()).toEqual(['a'])
  gates.learn(to('a'), [confirmed])
  expect(await woken()).toEqual([])
  gates.learn(to('a', 'b'), [unroutable, confirmed])
  gates.learn(to('a'), [confirmed])
  expect(await woken()).toEqual(['b', 'a'])
})

test('however many topics open, they are woken at once', async () => {
  const { gates } = start()
  const topics = Array.from({ length: 50 }, (_, nth) => `topic ${nth}`)
  gates.learn(
    to(...topics),
    topics.map(() => confirmed),
  )
  const calls: (readonly string[])[] = []
  await gates.wakeOpened(async (opened) => void calls.push(opened))
  await gates.wakeOpened(async (opened) => void calls.push(opened))
  expect(calls).toEqual([topics])
})

test('a topic that could not be woken is woken the next time', async () => {
  const { gates, woken } = start()
  gates.learn(to('a'), [confirmed])
  await expect(gates.wakeOpened(() => Promise.reject(new Error('cut')))).rejects.toThrow('cut')
  expect(await woken()).toEqual(['a'])
})
