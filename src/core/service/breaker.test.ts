import { expect, test } from 'vitest'
import { createFakeClock } from '../../testing/kit/fake-clock.ts'
import { createBreaker, type BreakerState } from './breaker.ts'
import { seededRandom } from './random.ts'

function start() {
  const clock = createFakeClock()
  const told: BreakerState[] = []
  const backoff = { firstMs: 250, maxMs: 1_000, jitter: 'none' } as const
  const breaker = createBreaker({ backoff, clock, random: seededRandom(1), onChange: (state) => told.push(state) })
  return { breaker, clock, told }
}

test('work goes on until an outage is seen', () => {
  const { breaker, told } = start()
  breaker.succeeded()
  expect([breaker.state(), breaker.waitMs(), breaker.openForMs()]).toEqual(['closed', 0, 0])
  expect(told).toEqual([])
})

test('after an outage work waits, then one probe decides', async () => {
  const { breaker, clock, told } = start()
  breaker.failed()
  expect([breaker.state(), breaker.waitMs()]).toEqual(['open', 250])
  await clock.advance(249)
  expect([breaker.state(), breaker.waitMs()]).toEqual(['open', 1])
  await clock.advance(1)
  expect([breaker.state(), breaker.waitMs()]).toEqual(['probing', 0])
  breaker.succeeded()
  expect([breaker.state(), breaker.openForMs()]).toEqual(['closed', 0])
  expect(told).toEqual(['open', 'probing', 'closed'])
})

test('a probe that fails opens it for longer, to a limit, and success starts anew', async () => {
  const { breaker, clock } = start()
  const waits: number[] = []
  for (let outage = 0; outage < 4; outage += 1) {
    breaker.failed()
    waits.push(breaker.waitMs())
    await clock.advance(breaker.waitMs())
  }
  expect(waits).toEqual([250, 500, 1_000, 1_000])
  expect(breaker.openForMs()).toBe(2_750)
  breaker.succeeded()
  breaker.failed()
  expect([breaker.waitMs(), breaker.openForMs()]).toEqual([250, 0])
})

test('each change is told once, however often somebody looks, and setting the wall clock changes nothing', async () => {
  const { breaker, clock, told } = start()
  breaker.failed()
  clock.setNow(clock.nowMs() + 86_400_000)
  for (let look = 0; look < 3; look += 1) breaker.state()
  expect(told).toEqual(['open'])
  await clock.advance(250)
  for (let look = 0; look < 3; look += 1) breaker.state()
  breaker.failed()
  expect(told).toEqual(['open', 'probing', 'open'])
})

test('a breaker whose owner ends takes back what it said, and says nothing if it had said nothing', () => {
  const { breaker, told } = start()
  breaker.reset()
  expect(told).toEqual([])
  breaker.failed()
  breaker.reset()
  expect([breaker.state(), breaker.waitMs()]).toEqual(['closed', 0])
  expect(told).toEqual(['open', 'closed'])
})
