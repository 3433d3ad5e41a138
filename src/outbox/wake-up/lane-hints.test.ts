import { expect, test } from 'vitest'
import { createFakeClock } from '../../testing/kit/fake-clock.ts'
import { createLaneHints, hintOf, readHint, writeHint } from './lane-hints.ts'

const idleMs = 50

test('a relay that rests looks at the lanes that were named, and then at all again', async () => {
  const hints = createLaneHints(createFakeClock(), idleMs)
  expect(hints.take(64, true)).toBe(undefined)
  hints.add([64 + 3, 5])
  hints.add([5])
  expect(hints.take(64, true)).toEqual(new Set([3, 5]))
  expect(hints.take(64, true)).toBe(undefined)
})

test('a relay that has work looks everywhere', () => {
  const hints = createLaneHints(createFakeClock(), idleMs)
  hints.take(64, true)
  hints.add([3])
  expect(hints.take(64, false)).toBe(undefined)
  expect(hints.take(64, true)).toBe(undefined)
})

test('hints without end do not keep a relay from looking everywhere as often as it would without them', async () => {
  const clock = createFakeClock()
  const hints = createLaneHints(clock, idleMs)
  const wholeLooks: number[] = []
  for (let ms = 0; ms < 200; ms += 10) {
    hints.add([1])
    if (hints.take(64, true) === undefined) wholeLooks.push(ms)
    await clock.advance(10)
  }
  expect(wholeLooks).toEqual([0, 50, 100, 150])
})

test('news of anywhere, or of too many places, is no hint', () => {
  const hints = createLaneHints(createFakeClock(), idleMs)
  hints.take(64, true)
  hints.add([1])
  hints.add(undefined)
  hints.add([2])
  expect(hints.take(64, true)).toBe(undefined)
  for (let place = 0; place < 9; place += 1) hints.add([place])
  expect(hints.take(64, true)).toBe(undefined)
  const many = Array.from({ length: 9 }, (_, n) => ({ aggregateType: 'video', aggregateId: `v${n}` }))
  expect(hintOf(many)).toBe(undefined)
  expect(hintOf(many.slice(1))).toHaveLength(8)
})

test('a hint survives its notification, and a payload that is none says "anywhere"', () => {
  expect(readHint(writeHint([0, 17, 32_767]))).toEqual([0, 17, 32_767])
  for (const payload of ['', writeHint(undefined), writeHint([]), 'look!', '1,2', '-1', '123456', '1 2 3 4 5 6 7 8 9'])
    expect(readHint(payload)).toBe(undefined)
})
