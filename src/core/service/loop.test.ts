import { expect, test } from 'vitest'
import { createFakeClock, type FakeClock } from '../../testing/kit/fake-clock.ts'
import type { Lifetime } from './lifetime.ts'
import { createWaker, loop, type Pace, type Pass } from './loop.ts'
import { seededRandom } from './random.ts'

interface Run {
  readonly clock: FakeClock
  readonly stop: AbortController
  readonly abort: AbortController
  readonly ended: Promise<void>
  /** When each pass began, by the fake clock. */
  readonly passes: number[]
  readonly errors: { readonly failures: number; readonly delayMs: number }[]
}

function start(pass: Pass, pace: Partial<Pace> = {}): Run {
  const clock = createFakeClock()
  const [stop, abort] = [new AbortController(), new AbortController()]
  const life: Lifetime = { stopping: stop.signal, aborting: abort.signal }
  const passes: number[] = []
  const errors: { failures: number; delayMs: number }[] = []
  const counted: Pass = async (aborting) => {
    passes.push(clock.monotonicMs())
    return await pass(aborting)
  }
  const onError: Pace['onError'] = (_error, failures, delayMs) => void errors.push({ failures, delayMs })
  const ended = loop(counted, life, { idleMs: () => 50, onError, clock, random: seededRandom(1), ...pace })
  return { clock, stop, abort, ended, passes, errors }
}

const idle: Pass = async () => await Promise.resolve('idle')

test('a pass that found more is called again at once, an idle one after the wait', async () => {
  let left = 3
  const run = start(async () => await Promise.resolve((left -= 1) > 0 ? 'more' : 'idle'))
  await run.clock.advance(100)
  expect(run.passes).toEqual([0, 0, 0, 50, 100])
  run.stop.abort()
  await run.ended
})

test('the wait may grow with idle passes in a row, and starts anew after work', async () => {
  const results: ('more' | 'idle')[] = ['idle', 'idle', 'more', 'idle', 'idle']
  const run = start(async () => await Promise.resolve(results.shift() ?? 'idle'), { idleMs: (passes) => passes * 10 })
  await run.clock.advance(60)
  expect(run.passes).toEqual([0, 10, 30, 30, 40, 60])
  run.stop.abort()
  await run.ended
})

test('passes that find nothing and wait for nothing leave room for others', async () => {
  const stop = new AbortController()
  let passes = 0
  const counting: Pass = async () => {
    // Without a timer in between nothing else would ever run, so not even the failure of this test.
    if ((passes += 1) > 100_000) throw new Error('nobody else had a turn')
    return await Promise.resolve('idle')
  }
  setTimeout(() => stop.abort())
  const ended = loop(
    counting,
    { stopping: stop.signal, aborting: stop.signal },
    {
      idleMs: () => 0,
      onError: (error) => {
        throw error
      },
    },
  )
  await expect(ended).resolves.toBeUndefined()
})

test('a wake-up ends a wait', async () => {
  const waker = createWaker()
  const run = start(idle, { waker, idleMs: () => 1_000 })
  await run.clock.advance(10)
  waker.wake()
  await run.clock.advance(0)
  expect(run.passes).toEqual([0, 10])
  run.stop.abort()
  await run.ended
})

test('a wake-up during a pass is not lost, though the pass had looked before it', async () => {
  const waker = createWaker()
  let passes = 0
  const run = start(
    async () => {
      if ((passes += 1) === 1) waker.wake()
      return await Promise.resolve('idle')
    },
    { waker, idleMs: () => 1_000 },
  )
  await run.clock.advance(0)
  expect(run.passes).toEqual([0, 0])
  // And it is not counted twice.
  await run.clock.advance(999)
  expect(run.passes).toEqual([0, 0])
  run.stop.abort()
  await run.ended
})

test('loops that share a waker are all woken, each time', async () => {
  const waker = createWaker()
  const clock = createFakeClock()
  const [a, b] = [start(idle, { waker, clock, idleMs: () => 1_000 }), start(idle, { waker, clock, idleMs: () => 10_000 })]
  for (let times = 2; times <= 4; times += 1) {
    await clock.advance(1)
    waker.wake()
    await clock.advance(0)
    expect([a.passes.length, b.passes.length]).toEqual([times, times])
  }
  a.stop.abort()
  b.stop.abort()
  await Promise.all([a.ended, b.ended])
  expect(clock.sleepers()).toBe(0)
})

test('a pass that throws is tried again after a growing back-off, and success resets it', async () => {
  const outcomes = ['fail', 'fail', 'fail', 'idle', 'fail']
  const run = start(
    async () => {
      if (outcomes.shift() === 'fail') throw new Error('database down')
      return await Promise.resolve('idle')
    },
    { backoff: { firstMs: 100, maxMs: 1_000, jitter: 'none' } },
  )
  await run.clock.advance(849)
  expect(run.passes).toEqual([0, 100, 300, 700, 750])
  expect(run.errors).toEqual([
    { failures: 1, delayMs: 100 },
    { failures: 2, delayMs: 200 },
    { failures: 3, delayMs: 400 },
    { failures: 1, delayMs: 100 },
  ])
  run.stop.abort()
  await run.ended
})

test('a wake-up does not shorten a back-off', async () => {
  const waker = createWaker()
  const failing: Pass = async () => await Promise.reject(new Error('down'))
  const run = start(failing, { waker, backoff: { firstMs: 100, maxMs: 100, jitter: 'none' } })
  await run.clock.advance(10)
  waker.wake()
  await run.clock.advance(10)
  expect(run.passes).toEqual([0])
  run.stop.abort()
  await run.ended
})

test('without a back-off of its own a loop waits 100 ms at first and 10 s at most, jittered', async () => {
  const run = start(async () => await Promise.reject(new Error('down')))
  await run.clock.advance(120_000)
  const delays = run.errors.map((error) => error.delayMs)
  expect(delays[0]).toBeGreaterThanOrEqual(50)
  expect(delays[0]).toBeLessThanOrEqual(100)
  expect(Math.max(...delays)).toBeLessThanOrEqual(10_000)
  expect(Math.max(...delays)).toBeGreaterThan(5_000)
  run.stop.abort()
  await run.ended
})

test.each([
  ['an idle wait', idle],
  ['a back-off', async () => await Promise.reject<'idle'>(new Error('down'))],
])('stopping during %s ends the loop without any time passing', async (_what, pass) => {
  const run = start(pass, { idleMs: () => 3_600_000 })
  await run.clock.advance(0)
  run.stop.abort()
  await run.ended
  expect(run.passes).toEqual([0])
  expect(run.clock.sleepers()).toBe(0)
})

test('stopping lets the pass in hand finish and starts no other', async () => {
  const work = Promise.withResolvers<'more'>()
  const run = start(async () => await work.promise)
  run.stop.abort()
  await run.clock.advance(0)
  let over = false
  void run.ended.then(() => (over = true))
  await run.clock.advance(0)
  expect(over).toBe(false)
  work.resolve('more')
  await run.ended
  expect(run.passes).toEqual([0])
})

test('a pass is told to give up by the signal it was given', async () => {
  const run = start(async (aborting) => {
    await new Promise((resolve) => aborting.addEventListener('abort', resolve, { once: true }))
    return 'more'
  })
  run.stop.abort()
  run.abort.abort()
  await run.ended
  expect(run.passes).toHaveLength(1)
})

test('a loop that is stopped before it began makes no pass', async () => {
  const passes: number[] = []
  const life: Lifetime = { stopping: AbortSignal.abort(), aborting: AbortSignal.abort() }
  await loop(async () => await Promise.resolve(passes.push(1) > 0 ? 'more' : 'idle'), life, {
    idleMs: () => 0,
    onError: () => undefined,
  })
  expect(passes).toEqual([])
})

test('an onError that throws ends the loop with what it threw', async () => {
  const run = start(async () => await Promise.reject(new Error('lease lost')), {
    onError: (error) => {
      throw error
    },
  })
  await expect(run.ended).rejects.toThrow('lease lost')
})

test('waiting leaves no listener behind on a signal that lives as long as the process', async () => {
  const clock = createFakeClock()
  const { signal } = new AbortController()
  let listeners = 0
  const add = signal.addEventListener.bind(signal)
  const remove = signal.removeEventListener.bind(signal)
  signal.addEventListener = (...args: Parameters<typeof add>) => ((listeners += 1), add(...args))
  signal.removeEventListener = (...args: Parameters<typeof remove>) => ((listeners -= 1), remove(...args))
  const waker = createWaker()
  for (let i = 0; i < 5; i += 1) {
    const wait = waker.sleep(10, { clock, signal, since: waker.count() })
    expect(listeners).toBe(1)
    await clock.advance(10)
    await wait
  }
  expect(listeners).toBe(0)
})
