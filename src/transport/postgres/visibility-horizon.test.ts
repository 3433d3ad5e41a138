import { expect, test } from 'vitest'
import { Horizon } from './visibility-horizon.ts'

const reading = (seq: number, xid: number, oldest: number) => ({ seq: `${seq}`, xid: `${xid}`, oldest: `${oldest}` })

test('what was taken is decided when no transaction runs any more that is as old', () => {
  const horizon = new Horizon()
  horizon.see(reading(100, 50, 40), 0)
  expect(horizon.decided).toBe('0')
  horizon.see(reading(200, 60, 49), 1_000)
  expect(horizon.decided).toBe('0')
  horizon.see(reading(300, 70, 50), 2_000)
  expect(horizon.decided).toBe('100')
  horizon.see(reading(400, 80, 71), 3_000)
  expect(horizon.decided).toBe('300')
})

test('numbers compare as numbers', () => {
  const horizon = new Horizon()
  horizon.see(reading(9, 99, 98), 0)
  horizon.see(reading(10, 101, 100), 1_000)
  expect(horizon.decided).toBe('9')
})

test('a sequence that fell back, as after a failover, decides nothing', () => {
  const horizon = new Horizon()
  horizon.see(reading(100, 50, 40), 0)
  horizon.see(reading(200, 60, 60), 1_000)
  horizon.see(reading(90, 55, 54), 2_000)
  expect(horizon.decided).toBe('0')
  horizon.see(reading(95, 57, 57), 3_000)
  expect(horizon.decided).toBe('90')
})

test('it is read when something rests, and once a second', () => {
  const horizon = new Horizon()
  expect(horizon.isDue(0)).toBe(false)
  horizon.wanted = true
  expect(horizon.isDue(0)).toBe(true)
  horizon.see(reading(1, 1, 1), 0)
  expect([horizon.isDue(999), horizon.isDue(1_000)]).toEqual([false, true])
})
