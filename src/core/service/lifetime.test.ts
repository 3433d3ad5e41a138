import { expect, test } from 'vitest'
import { createFakeClock } from '../../testing/kit/fake-clock.ts'
import { run, type Lifetime, type RunOptions, type Service } from './lifetime.ts'
import { createSignals } from '../signals.ts'

const until = (signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    if (signal.aborted) return resolve()
    signal.addEventListener('abort', () => resolve(), { once: true })
  })
const service = (name: string, body: (life: Lifetime) => Promise<void>): Service => ({ name, run: body })
const polite = (name: string): Service => service(name, async ({ stopping }) => await until(stopping))
const stubborn = (name: string): Service => service(name, async ({ aborting }) => await until(aborting))
const deaf = (name: string): Service => service(name, async () => await new Promise(() => undefined))

/** Starts `run` with a fake clock, and keeps the times and states of its end. */
function start(services: readonly Service[], options: Partial<RunOptions> = {}) {
  const clock = createFakeClock()
  const stop = new AbortController()
  const signals = createSignals()
  const told: string[] = []
  signals.onAny((event, name) =>
    told.push(`${name} ${(event as { service: string }).service}${'error' in event ? ' failed' : ''}`),
  )
  const outcome = run(services, { signal: stop.signal, clock, signals, ...options }).then(
    () => `resolved at ${clock.monotonicMs()}`,
    (error: unknown) => `rejected at ${clock.monotonicMs()}: ${(error as Error).message}`,
  )
  let settled: string | undefined
  void outcome.then((text) => (settled = text))
  return { clock, stop, told, outcome, settled: () => settled }
}

test('services run until the signal, and stop without waiting for any time-out', async () => {
  const running = start([polite('relay'), polite('consumer')])
  await running.clock.advance(86_400_000)
  expect(running.settled()).toBeUndefined()
  running.stop.abort()
  expect(await running.outcome).toBe('resolved at 86400000')
  expect(running.clock.sleepers()).toBe(0)
  expect(running.told).toEqual([
    'service.started relay',
    'service.started consumer',
    'service.stopped relay',
    'service.stopped consumer',
  ])
})

test('the work in hand may take stopTimeoutMs; then it is told to give up', async () => {
  const running = start([polite('relay'), stubborn('consumer')])
  running.stop.abort()
  await running.clock.advance(19_999)
  expect(running.told).toContain('service.stopped relay')
  expect(running.told).not.toContain('service.stopped consumer')
  await running.clock.advance(1)
  expect(await running.outcome).toBe('resolved at 20000')
})

test('services that never end are named, each of them, also those that share a name', async () => {
  const running = start([deaf('relay'), polite('relay'), polite('consumer'), deaf('sweeper')], {
    stopTimeoutMs: 100,
    abortTimeoutMs: 50,
  })
  running.stop.abort()
  await running.clock.advance(149)
  expect(running.settled()).toBeUndefined()
  await running.clock.advance(1)
  expect(await running.outcome).toBe('rejected at 150: These services did not stop in 150 ms: relay, sweeper. End the process.')
})

test('the failure of one service stops all, and is what run rejects with', async () => {
  const failing = service('relay', async () => await Promise.reject(new Error('lease lost')))
  const running = start([polite('consumer'), failing, stubborn('sweeper')])
  await running.clock.advance(20_000)
  expect(await running.outcome).toBe('rejected at 20000: lease lost')
  expect(running.told.slice(3)).toEqual(['service.stopped relay failed', 'service.stopped consumer', 'service.stopped sweeper'])
})

test('of several failures the first is reported', async () => {
  const first = service('a', async () => await Promise.reject(new Error('first')))
  const second = service('b', async ({ stopping }) => {
    await until(stopping)
    throw new Error('second, because of the first')
  })
  expect(await start([second, first]).outcome).toBe('rejected at 0: first')
})

test('a failure is reported even if another service never ends', async () => {
  const failing = service('a', async () => await Promise.reject(new Error('first')))
  const running = start([failing, deaf('b')])
  await running.clock.advance(25_000)
  expect(await running.outcome).toBe('rejected at 25000: first')
})

test('a failure while stopping is a failure', async () => {
  const failing = service('a', async ({ stopping }) => {
    await until(stopping)
    throw new Error('could not drain')
  })
  const running = start([failing])
  running.stop.abort()
  expect(await running.outcome).toBe('rejected at 0: could not drain')
})

test('a service that throws before it returns a promise, or throws undefined, has failed', async () => {
  const sync: Service = {
    name: 'a',
    run: () => {
      throw new Error('at once')
    },
  }
  expect(await start([sync]).outcome).toBe('rejected at 0: at once')
  // oxlint-disable-next-line typescript/prefer-promise-reject-errors -- that somebody does this is the case under test
  const nothing = run([service('b', async () => await Promise.reject(undefined))], { signal: new AbortController().signal })
  await expect(nothing).rejects.toBeUndefined()
})

test('services that all end by themselves end the run', async () => {
  expect(
    await start([service('a', async () => await Promise.resolve()), service('b', async () => await Promise.resolve())]).outcome,
  ).toBe('resolved at 0')
})

test('one service that ends by itself does not stop the others', async () => {
  const running = start([service('migrate', async () => await Promise.resolve()), polite('relay')])
  await running.clock.advance(1_000)
  expect(running.settled()).toBeUndefined()
  running.stop.abort()
  expect(await running.outcome).toBe('resolved at 1000')
})

test('a signal that was aborted before lets services see that they must stop', async () => {
  let stoppingAtStart: boolean | undefined
  const seen = service('a', async ({ stopping }) => {
    stoppingAtStart = stopping.aborted
    await until(stopping)
  })
  expect(await start([seen], { signal: AbortSignal.abort() }).outcome).toBe('resolved at 0')
  expect(stoppingAtStart).toBe(true)
})

test('no services: there is nothing to do', async () => {
  expect(await start([]).outcome).toBe('resolved at 0')
})

test.each([
  [{ stopTimeoutMs: -1 }, /run\.stopTimeoutMs: must be a number, at least 0/],
  [{ stopTimeout: 5 }, /run\.stopTimeout: unknown option\. Did you mean "stopTimeoutMs"\?/],
  [{ signal: {} }, /run\.signal: must be an AbortSignal/],
])('options %o are refused before anything starts', async (options, message) => {
  let started = false
  const first = service('a', async () => {
    started = true
    await Promise.resolve()
  })
  await expect(run([first], options as never)).rejects.toThrow(message)
  expect(started).toBe(false)
})

test('the signal is left without our listener', async () => {
  const { signal } = new AbortController()
  let listeners = 0
  const add = signal.addEventListener.bind(signal)
  const remove = signal.removeEventListener.bind(signal)
  signal.addEventListener = (...args: Parameters<typeof add>) => ((listeners += 1), add(...args))
  signal.removeEventListener = (...args: Parameters<typeof remove>) => ((listeners -= 1), remove(...args))
  await run([service('a', async () => await Promise.resolve())], { signal })
  expect(listeners).toBe(0)
})
