import { expect, test } from 'vitest'
import { createFakeClock } from '../../../testing/kit/fake-clock.ts'
import { PubsubDelivery } from './delivery.ts'
import { Holds } from './delayed-nacks.ts'

const owner = { ack: () => Promise.resolve('confirmed' as const), nack: () => Promise.resolve() }

function delivery(name: string, bytes = 0): PubsubDelivery {
  const orderingKey = name.slice(0, 1)
  const message = { messageId: name, orderingKey, attributes: {}, data: new Uint8Array(bytes), publishTime: null }
  return new PubsubDelivery({ ackId: name, deliveryAttempt: 0, message }, owner, { topic: 't', nowMs: 0, leaseMs: 10_000 })
}

function openHolds(maxHeld = 100, maxHeldBytes = 1_000) {
  const clock = createFakeClock()
  const givenBack: string[] = []
  const answers: (() => void)[] = []
  const state = { answersAtOnce: true }
  const holds = new Holds({
    clock,
    maxHeld,
    maxHeldBytes,
    giveBack: async (deliveries, seconds) => {
      givenBack.push(`${deliveries.map(({ ackId }) => ackId).join(' ')} in ${seconds} s`)
      if (!state.answersAtOnce) await new Promise<void>((answer) => answers.push(answer))
    },
  })
  return { clock, holds, givenBack, answers, state }
}

test('a delivery goes back after its delay, with what came behind it', async () => {
  const { clock, holds, givenBack } = openHolds()
  void holds.hold([delivery('a1'), delivery('a2')], 1_000)
  holds.join('a', delivery('a3'))
  await clock.advance(999)
  expect(givenBack).toEqual([])
  expect(holds.isHeld('a')).toBe(true)
  await clock.advance(1)
  expect(givenBack).toEqual(['a1 a2 a3 in 0 s'])
  expect(holds.isHeld('a')).toBe(false)
})

test('a key stays held until the service has answered, and what arrives meanwhile goes back too', async () => {
  const { clock, holds, givenBack, answers, state } = openHolds()
  state.answersAtOnce = false
  void holds.hold([delivery('a1')], 0)
  await clock.advance(0)
  expect(givenBack).toEqual(['a1 in 0 s'])
  holds.join('a', delivery('a2'))
  answers.shift()?.()
  await clock.advance(0)
  expect(givenBack).toEqual(['a1 in 0 s', 'a2 in 0 s'])
  expect(holds.isHeld('a')).toBe(true)
  answers.shift()?.()
  await clock.advance(0)
  expect(holds.isHeld('a')).toBe(false)
})

test('an earlier one that is nacked later goes back in front, and not before the longer of both delays', async () => {
  const { clock, holds, givenBack } = openHolds()
  void holds.hold([delivery('a2'), delivery('a3')], 1_000)
  void holds.hold([delivery('a1')], 100)
  await clock.advance(999)
  expect(givenBack).toEqual([])
  await clock.advance(1)
  expect(givenBack).toEqual(['a1 a2 a3 in 0 s'])
})

test('beyond its share of the window it gives back early, after a rest, those that would come back first', async () => {
  const { clock, holds, givenBack } = openHolds(2)
  void holds.hold([delivery('a1')], 9_000)
  void holds.hold([delivery('b1')], 3_000)
  void holds.hold([delivery('c1')], 5_000)
  await clock.advance(999)
  expect(givenBack).toEqual([])
  await clock.advance(1)
  expect(givenBack).toEqual(['b1 in 0 s'])
  await clock.advance(9_000)
  expect(givenBack).toEqual(['b1 in 0 s', 'c1 in 0 s', 'a1 in 0 s'])
})

test('beyond its share in bytes it gives back early too, and counts what it gave back no more', async () => {
  const { clock, holds, givenBack } = openHolds(100, 1_000)
  void holds.hold([delivery('a1', 600)], 9_000)
  void holds.hold([delivery('b1', 600)], 8_000)
  await clock.advance(1_000)
  expect(givenBack).toEqual(['b1 in 0 s'])
  void holds.hold([delivery('c1', 300)], 5_000)
  await clock.advance(1_000)
  expect(givenBack).toEqual(['b1 in 0 s'])
})

test('what is given back early rests from its nack on, and never longer than its own delay', async () => {
  const { clock, holds, givenBack } = openHolds(1)
  void holds.hold([delivery('a1')], 5_000)
  await clock.advance(4_000)
  void holds.hold([delivery('b1')], 60_000)
  await clock.advance(0)
  expect(givenBack).toEqual(['a1 in 0 s'])
  void holds.hold([delivery('c1')], 300)
  await clock.advance(299)
  expect(givenBack).toEqual(['a1 in 0 s'])
  await clock.advance(1)
  expect(givenBack).toEqual(['a1 in 0 s', 'c1 in 0 s'])
})

test('with no room for any, one message that is nacked again and again comes back once a second', async () => {
  const { clock, holds, givenBack } = openHolds(0.5)
  // Not for ever: a spin would not let the test end.
  const nackAgain = (): void => void holds.hold([delivery('a1')], 60_000).then(() => givenBack.length < 1_000 && nackAgain())
  nackAgain()
  await clock.advance(5_000)
  expect(givenBack).toHaveLength(5)
})

test('what rests drives out nobody else, whatever joins it', async () => {
  const { clock, holds, givenBack } = openHolds(2)
  void holds.hold([delivery('a1')], 60_000)
  void holds.hold([delivery('b1'), delivery('b2')], 5_000)
  holds.join('b', delivery('b3'))
  await clock.advance(1_000)
  expect(givenBack).toEqual(['b1 b2 b3 in 0 s'])
})

test('an earlier one that is nacked during the rest takes the others over, and they rest with it', async () => {
  const { clock, holds, givenBack } = openHolds(0.5)
  const taken = holds.hold([delivery('a2')], 60_000)
  await clock.advance(600)
  void holds.hold([delivery('a1')], 60_000)
  await taken
  expect(givenBack).toEqual([])
  await clock.advance(999)
  expect(givenBack).toEqual([])
  await clock.advance(1)
  expect(givenBack).toEqual(['a1 a2 in 0 s'])
})

test('closing ends a rest at once, and leaves of the delay what is left', async () => {
  const { clock, holds, givenBack } = openHolds(0.5)
  void holds.hold([delivery('a1')], 60_000)
  await clock.advance(500)
  await holds.close()
  expect(givenBack).toEqual(['a1 in 60 s'])
})

test('closing gives each a lease that ends when it would have been given back', async () => {
  const { clock, holds, givenBack } = openHolds()
  void holds.hold([delivery('a1')], 61_500)
  void holds.hold([delivery('b1')], 3_600_000)
  await clock.advance(1_000)
  await holds.close()
  expect(givenBack).toEqual(['a1 in 61 s', 'b1 in 600 s'])
  await holds.hold([delivery('c1')], 2_000)
  expect(givenBack.at(-1)).toBe('c1 in 2 s')
})
