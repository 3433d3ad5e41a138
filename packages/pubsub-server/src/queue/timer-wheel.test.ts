import fc from 'fast-check'
import { expect, test } from 'vitest'
import { createFakeClock } from '../../../../src/testing/kit/fake-clock.ts'
import { TimerWheel } from './timer-wheel.ts'
import type { Timed } from './timer-wheel.ts'

function timed(due: () => void): Timed {
  return { bucket: null, previous: null, next: null, due }
}

test('every deadline fires once, never early, at most one bucket late, unless it was moved or cancelled', async () => {
  const action = fc.record({ item: fc.nat(9), delayMs: fc.nat(2_000), isCancel: fc.boolean(), thenMs: fc.nat(300) })
  await fc.assert(
    fc.asyncProperty(fc.array(action, { maxLength: 60 }), async (actions) => {
      const clock = createFakeClock(0)
      const wheel = new TimerWheel(clock)
      const dueAt = new Map<number, number>()
      const items = Array.from({ length: 10 }, (_, index) =>
        timed(() => {
          const lateMs = clock.monotonicMs() - (dueAt.get(index) ?? Infinity)
          expect(lateMs).toBeGreaterThanOrEqual(0)
          expect(lateMs).toBeLessThanOrEqual(10)
          dueAt.delete(index)
        }),
      )
      for (const { item, delayMs, isCancel, thenMs } of actions) {
        if (isCancel) {
          wheel.cancel(items[item] as Timed)
          dueAt.delete(item)
        } else {
          wheel.set(items[item] as Timed, delayMs)
          dueAt.set(item, clock.monotonicMs() + delayMs)
        }
        await clock.advance(thenMs)
      }
      await clock.advance(2_100)
      expect(dueAt.size).toBe(0)
      wheel.close()
    }),
    { numRuns: 40 },
  )
})

test('a closed wheel fires no timer', async () => {
  const clock = createFakeClock(0)
  const wheel = new TimerWheel(clock)
  let fired = 0
  wheel.set(
    timed(() => (fired += 1)),
    100,
  )
  wheel.close()
  await clock.advance(1_000)
  expect(fired).toBe(0)
  expect(clock.sleepers()).toBe(0)
})
