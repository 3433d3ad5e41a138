import fc from 'fast-check'
import { expect, test } from 'vitest'
import type { DispatchRow } from '../tables/dispatch.sql.ts'
import { createLaneWindows } from './read-sizes.ts'

const held = (lanes: number): { lane: number; token: string }[] =>
  Array.from({ length: lanes }, (_, lane) => ({ lane, token: 't' }))
const found = (lane: number, count: number, more: Partial<DispatchRow> = {}): DispatchRow[] =>
  Array.from({ length: count }, () => ({ lane, state: 0, payload: new Uint8Array(10), ...more }) as DispatchRow)

test('an even share of the batch for every lane, and at least one row', () => {
  expect(
    createLaneWindows(500, 5_000)
      .plan(held(64))
      .flat()
      .map(({ window }) => window),
  ).toEqual(Array.from({ length: 64 }, () => 8))
  expect(
    createLaneWindows(10, 5_000)
      .plan(held(64))
      .flat()
      .every(({ window }) => window === 1),
  ).toBe(true)
})

test('a full lane grows to the whole room while the others are empty, and shrinks when it is not full any more', () => {
  const windows = createLaneWindows(64, 1_000)
  for (let pass = 0; pass < 12; pass += 1) {
    windows.plan(held(64))
    windows.learn(found(3, windows.of(3)), false)
  }
  expect(windows.of(3)).toBe(1_000)
  expect(windows.of(4)).toBe(1)
  for (let pass = 0; pass < 12; pass += 1) {
    windows.plan(held(64))
    windows.learn([], false)
  }
  expect(windows.of(3)).toBe(1)
})

test('a lane that had the room for itself shares it with those that fill up later', () => {
  const windows = createLaneWindows(64, 1_000)
  const pass = (lanes: readonly number[]): void => {
    windows.plan(held(64))
    windows.learn(
      lanes.flatMap((lane) => found(lane, windows.of(lane))),
      false,
    )
  }
  for (let nth = 0; nth < 12; nth += 1) pass([0])
  for (let nth = 0; nth < 12; nth += 1) pass([0, 1, 2, 3])
  expect([0, 1, 2, 3].map((lane) => windows.of(lane))).toEqual([250, 250, 250, 250])
})

test('the chain behind heads grows while there is more, up to the room of a batch', () => {
  const windows = createLaneWindows(64, 1_000)
  const first = windows.limits().chain
  for (let pass = 0; pass < 12; pass += 1) windows.learn(found(0, windows.limits().chain, { state: 2 }), true)
  expect(windows.limits().chain).toBeGreaterThan(first)
  expect(windows.limits().chain).toBe(1_000)
})

test('the chain behind heads shrinks while no key can send what is read of it, and grows if only one can', () => {
  const windows = createLaneWindows(64, 1_000)
  const first = windows.limits().chain
  const pass = (ranOut: boolean): void => windows.learn(found(0, windows.limits().chain, { state: 2 }), ranOut)
  for (let nth = 0; nth < 3; nth += 1) pass(false)
  expect(windows.limits().chain).toBe(first)
  for (let nth = 0; nth < 3; nth += 1) pass(true)
  expect(windows.limits().chain).toBe(8 * first)
  // Though it could hold more than is there.
  windows.learn(found(0, 4 * first, { state: 2 }), false)
  expect(windows.limits().chain).toBe(2 * first)
  windows.learn(found(0, 64), false)
  expect(windows.limits().chain).toBe(2 * first)
})

test('while there is much to do the lanes are worked in two parts, and in one again when there is not', () => {
  const windows = createLaneWindows(64, 1_000)
  const lanes = (): number[][] => windows.plan(held(5)).map((part) => part.map(({ lane }) => lane))
  expect(lanes()).toEqual([[0, 1, 2, 3, 4]])
  windows.learn(found(0, 64), false)
  expect(lanes()).toEqual([
    [0, 2, 4],
    [1, 3],
  ])
  expect(windows.plan(held(1))).toHaveLength(1)
  windows.learn(found(0, 63), false)
  expect(lanes()).toHaveLength(1)
})

test('two parts that are worked side by side share the bytes of a pass', () => {
  const windows = createLaneWindows(64, 1_000)
  const whole = windows.limits().bytes
  windows.learn(found(0, 64), false)
  expect(windows.limits().bytes).toBe(whole / 2)
})

test('large events make small batches', () => {
  const windows = createLaneWindows(500, 5_000)
  const mebibyte = { payload: { byteLength: 1024 * 1024 } as Uint8Array }
  for (let pass = 0; pass < 12; pass += 1) {
    windows.plan(held(4))
    windows.learn(
      [0, 1, 2, 3].flatMap((lane) => found(lane, windows.of(lane), mebibyte)),
      false,
    )
  }
  const rows = windows
    .plan(held(4))
    .flat()
    .reduce((sum, { window }) => sum + window, 0)
  expect(rows).toBeLessThanOrEqual(64)
  expect(windows.limits().chain).toBeLessThanOrEqual(64)
})

test('whatever is found, every lane has a window, and the full ones together not much more than the room', () => {
  const passes = fc.array(fc.array(fc.integer({ min: 0, max: 400 }), { minLength: 8, maxLength: 8 }), {
    minLength: 1,
    maxLength: 30,
  })
  fc.assert(
    fc.property(passes, (all) => {
      const windows = createLaneWindows(40, 200)
      for (const counts of all) {
        const planned = windows.plan(held(8))
        const windowOf = new Map(planned.flat().map(({ lane, window }) => [lane, window]))
        expect(windowOf.size).toBe(8)
        windows.learn(
          counts.flatMap((count, lane) => found(lane, Math.min(count, windowOf.get(lane) ?? 0))),
          false,
        )
        const sizes = windows
          .plan(held(8))
          .flat()
          .map(({ window }) => window)
        expect(Math.min(...sizes)).toBeGreaterThanOrEqual(1)
        expect(Math.max(...sizes)).toBeLessThanOrEqual(200)
        expect(sizes.reduce((a, b) => a + b)).toBeLessThanOrEqual(2 * 200 + 40)
      }
    }),
  )
})
