import { expect, test } from 'vitest'
import { WaybillError } from '../../core/errors.ts'
import { ItemFailure, type Item } from '../model/batch-item.ts'
import { isolate, retryLimitOf, splitDuplicates, splitFailed, splitRuns, splitSuspects } from './split.ts'

const item = (name: string, place?: bigint): Item =>
  ({
    key: name.charAt(0),
    event: { id: name },
    origin: { kind: 'delivery', place: place === undefined ? undefined : { topic: 't', partition: '0', offset: place } },
  }) as unknown as Item
const items = (names: string): readonly Item[] => names.split(' ').map((name) => item(name))
const name = ({ event }: Pick<Item, 'event'>): string => event.id
const names = (parts: readonly (readonly Item[])[]): readonly string[] => parts.map((part) => part.map(name).join(' '))

const lockTimeout = Object.assign(new Error('lock'), { code: '55P03' })
const statementTimeout = Object.assign(new Error('statement'), { code: '57014' })

test('a duplicate within a batch is worked later, in a log with everything behind it', () => {
  const batch = items('a1 b1 a1 c1 b1')
  const { first, again } = splitDuplicates(batch)
  expect(names([first, again])).toEqual(['a1 b1 c1', 'a1 b1'])
  const log = batch.map(({ event }, i) => item(event.id, BigInt(i)))
  const inLog = splitDuplicates(log)
  expect(names([inLog.first, inLog.again])).toEqual(['a1 b1', 'a1 c1 b1'])
  expect(splitDuplicates(first)).toEqual({ first, again: [] })
})

test('isolated items stand alone, and the order stays', () => {
  const batch = items('a1 b1! c1 d1 e1! f1!')
  const isMarked = (each: Item): boolean => name(each).endsWith('!')
  expect(names(isolate(batch, isMarked))).toEqual(['a1', 'b1!', 'c1 d1', 'e1!', 'f1!'])
  expect(names(splitRuns(batch, isMarked))).toEqual(['a1', 'b1!', 'c1 d1', 'e1! f1!'])
  expect(isolate([], isMarked)).toEqual([])
})

test('a crash suspect is alone at its place, a slow event alone behind the others, with its line', () => {
  const parts = splitSuspects(items('a1 b1 a2 c1 d1'), {
    isSlow: (each) => name(each) === 'a1',
    hasCrashed: (each) => name(each) === 'c1',
  })
  expect(names(parts)).toEqual(['b1', 'c1', 'd1', 'a1', 'a2'])
})

test('an event that failed stands alone, with the others around it', () => {
  const batch = items('a1 b1 c1')
  const failed = (at: number): readonly string[] => {
    const next = splitFailed({ items: batch, drain: true, error: new ItemFailure(batch[at] ?? item('x'), new Error('no')) })
    return next.kind === 'parts' ? names(next.parts) : [next.kind]
  }
  expect([0, 1, 2].map(failed)).toEqual([
    ['', 'a1', 'b1 c1'],
    ['a1', 'b1', 'c1'],
    ['a1 b1', 'c1', ''],
  ])
})

test('an event that ran out of time is settled at once, between the others', () => {
  const batch = items('a1 b1 c1')
  const [, culprit] = batch
  for (const cause of [new WaybillError('TIMEOUT', 'late'), statementTimeout]) {
    const next = splitFailed({ items: batch, drain: true, error: new ItemFailure(culprit ?? item('x'), cause) })
    expect(next).toEqual({ kind: 'settle', before: [batch[0]], item: culprit, after: [batch[2]] })
  }
})

test('an error that names no event halves the part, until one event is left', () => {
  const error = new Error('which?')
  const batch = items('a1 b1 c1')
  const next = splitFailed({ items: batch, drain: true, error })
  expect(next.kind === 'parts' ? names(next.parts) : next.kind).toEqual(['a1 b1', 'c1'])
  const alone = batch.slice(0, 1)
  expect(splitFailed({ items: alone, drain: true, error })).toEqual({ kind: 'without stored' })
  expect(splitFailed({ items: alone, drain: false, error })).toEqual({ kind: 'settle', before: [], item: batch[0], after: [] })
})

test('a part is tried again without a stored event that failed with it', () => {
  const error = new ItemFailure(item('stored'), new Error('no'))
  expect(splitFailed({ items: items('a1 b1'), drain: true, error })).toEqual({ kind: 'without stored' })
})

test('outages of ours retry for ever, those of a handler and time-outs three times, slow ones once', () => {
  const limit = (error: unknown, isSlow: boolean, count: number): number => retryLimitOf(error, { isSlow, count })
  expect(limit(new Error('away'), true, 2)).toBe(Infinity)
  expect(limit(new ItemFailure(item('a1'), new Error('away')), true, 2)).toBe(3)
  expect([lockTimeout, statementTimeout].map((error) => limit(error, false, 2))).toEqual([3, 3])
  expect([lockTimeout, statementTimeout].map((error) => limit(error, true, 2))).toEqual([1, 1])
  expect([lockTimeout, statementTimeout].map((error) => limit(error, true, 1))).toEqual([1, 3])
})
