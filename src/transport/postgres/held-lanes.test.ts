import { expect, test } from 'vitest'
import { LaneBook, type HeldLane } from './held-lanes.ts'

const leased = (share: number, ...lanes: readonly number[]) => lanes.map((lane) => ({ lane, tenure: '1', share }))

test('what is beyond the share is drained, idle lanes first, and given back only when nothing of it is in hand', () => {
  const book = new LaneBook()
  let used = new Set([0, 1, 2])
  const uses = (lane: number): boolean => used.has(lane)
  book.update(leased(2, 0, 1, 2, 3), uses)
  expect(book.open(0).map(({ lane }) => lane)).toHaveLength(2)
  expect(book.leaving(uses)).toEqual([3])
  used = new Set()
  expect(book.leaving(uses)).toHaveLength(2)
  book.update(leased(4, 0, 1, 2, 3), uses)
  expect(book.leaving(uses)).toEqual([])
})

/** The only lane that is held. */
function only(book: LaneBook): HeldLane {
  const [held, ...others] = book.open(0)
  if (held === undefined || others.length > 0) throw new Error('not one lane')
  return held
}

test('a lane of a new tenure is another lane', () => {
  const book = new LaneBook()
  book.update(leased(1, 7), () => false)
  const before = only(book)
  book.raiseFloor(before, '50')
  book.update([{ lane: 7, tenure: '2', share: 1 }], () => false)
  book.raiseFloor(before, '60')
  expect([book.has(7, '1'), book.mayHand(before), book.mayHand(only(book))]).toEqual([false, false, true])
  expect(only(book).floor).toBe('0')
})

test('a lane that was lost and comes back under the same tenure is another hold, one that is renewed is not', () => {
  const book = new LaneBook()
  book.update(leased(1, 7), () => false)
  const before = only(book)
  book.update(leased(1, 7), () => false)
  expect([book.holds(before), book.mayHand(before)]).toEqual([true, true])
  book.loseAll()
  book.update(leased(1, 7), () => false)
  book.raiseFloor(before, '50')
  expect([book.has(7, '1'), book.holds(before), book.mayHand(before)]).toEqual([true, false, false])
  expect(only(book).floor).toBe('0')
})

test('floors are forgotten after a second, and whoever looked before cannot raise them again', () => {
  const book = new LaneBook()
  book.update(leased(1, 7), () => false)
  book.open(10_000)
  const life = book.floorLife
  book.raiseFloor(only(book), '50')
  expect(book.open(10_500)[0]?.floor).toBe('50')
  expect(book.open(11_000)[0]?.floor).toBe('0')
  expect(book.floorLife).not.toBe(life)
})

test('floors that are costly to find again are kept longer, until something comes back', () => {
  const book = new LaneBook()
  book.update(leased(1, 7), () => false)
  book.open(10_000)
  book.scanned(100)
  book.scanned(3)
  book.raiseFloor(only(book), '50')
  expect(book.open(11_999)[0]?.floor).toBe('50')
  expect(book.open(12_000)[0]?.floor).toBe('0')
  book.raiseFloor(only(book), '50')
  expect(book.open(13_000)[0]?.floor).toBe('0')
  book.scanned(100)
  book.raiseFloor(only(book), '50')
  book.forgetFloors(13_001)
  expect(book.open(13_002)[0]?.floor).toBe('0')
})
