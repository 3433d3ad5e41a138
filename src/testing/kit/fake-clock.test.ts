import { expect, test } from 'vitest'
import { createFakeClock } from './fake-clock.ts'

test('sleepers wake in the order of their times, and of lying down at the same time', async () => {
  const clock = createFakeClock()
  const woken: string[] = []
  const nap = async (name: string, ms: number): Promise<void> => {
    await clock.sleep(ms)
    woken.push(`${name}@${clock.monotonicMs()}`)
  }
  void nap('late', 30)
  void nap('early', 10)
  void nap('twin', 30)

  await clock.advance(29)
  expect(woken).toEqual(['early@10'])
  await clock.advance(1)
  expect(woken).toEqual(['early@10', 'late@30', 'twin@30'])
  expect(clock.sleepers()).toBe(0)
})

test('who goes back to sleep within the span is woken again within it', async () => {
  const clock = createFakeClock()
  const ticks: number[] = []
  const stop = new AbortController()
  const ticking = (async () => {
    while (!stop.signal.aborted) {
      await clock.sleep(10, stop.signal)
      ticks.push(clock.monotonicMs())
    }
  })()
  await clock.advance(35)
  expect(ticks).toEqual([10, 20, 30])
  stop.abort()
  await ticking
  expect(clock.sleepers()).toBe(0)
})

test('an aborted signal ends a sleep at once, and prevents one', async () => {
  const clock = createFakeClock()
  await clock.sleep(1_000, AbortSignal.abort())
  const stop = new AbortController()
  const sleeping = clock.sleep(1_000, stop.signal)
  stop.abort()
  await sleeping
  expect(clock.monotonicMs()).toBe(0)
})

test('setting the wall clock back moves neither deadlines nor monotonic time', async () => {
  const clock = createFakeClock(5_000)
  let awake = false
  void clock.sleep(100).then(() => (awake = true))
  await clock.advance(60)
  clock.setNow(1_000)
  expect(clock.nowMs()).toBe(1_000)
  expect(clock.monotonicMs()).toBe(60)
  await clock.advance(40)
  expect(awake).toBe(true)
  expect(clock.nowMs()).toBe(1_040)
})
