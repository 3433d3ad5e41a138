import fc from 'fast-check'
import { expect, test } from 'vitest'
import { KeyQueues } from './key-queues.ts'

interface Entry {
  readonly key: string
  readonly bytes: number
  readonly place: number
}

const entry = (key: string, place: number, bytes = 1): Entry => ({ key, place, bytes })

test('a batch keeps to its count and its bytes, and one that is too large goes alone', () => {
  const queues = new KeyQueues<Entry>()
  for (let place = 0; place < 5; place += 1) queues.push(entry('a', place, 10))
  queues.push(entry('b', 5, 100))
  expect(queues.take(3, 1_000).map(({ place }) => place)).toEqual([0, 1, 2])
  expect(queues.take(3, 50).map(({ place }) => place)).toEqual([5])
  queues.done(['a', 'b'])
  expect(queues.take(9, 15).map(({ place }) => place)).toEqual([3])
})

test('what comes for an aggregate whose batch is under way waits for its end', () => {
  const queues = new KeyQueues<Entry>()
  queues.push(entry('a', 0))
  expect(queues.take(9, 9)).toHaveLength(1)
  queues.push(entry('a', 1))
  expect(queues.readyCount).toBe(0)
  expect(queues.take(9, 9)).toEqual([])
  queues.done(['a'])
  expect(queues.take(9, 9).map(({ place }) => place)).toEqual([1])
})

test('what is purged is gone, busy or not', () => {
  const queues = new KeyQueues<Entry>()
  for (let place = 0; place < 4; place += 1) queues.push(entry('a', place))
  expect(queues.purge('a', ({ place }) => place > 2)).toHaveLength(1)
  expect(queues.take(1, 9)).toHaveLength(1)
  expect(queues.purge('a', ({ place }) => place === 1)).toHaveLength(1)
  queues.done(['a'])
  expect(queues.take(9, 9).map(({ place }) => place)).toEqual([2])
  expect(queues.purge('nobody', () => true)).toEqual([])
})

test('whatever is pushed, taken and done: nothing is lost, an aggregate is in one batch at a time, and its order is kept', () => {
  const action = fc.oneof(
    fc.record({ do: fc.constant('push' as const), key: fc.constantFrom('a', 'b', 'c'), bytes: fc.integer({ min: 1, max: 9 }) }),
    fc.record({
      do: fc.constant('take' as const),
      count: fc.integer({ min: 1, max: 4 }),
      bytes: fc.integer({ min: 1, max: 12 }),
    }),
    fc.record({ do: fc.constant('done' as const) }),
  )
  fc.assert(
    fc.property(fc.array(action, { maxLength: 60 }), (actions) => {
      const queues = new KeyQueues<Entry>()
      const taken: Entry[] = []
      const underWay: (readonly Entry[])[] = []
      let pushed = 0
      for (const each of actions) {
        if (each.do === 'push') queues.push(entry(each.key, (pushed += 1), each.bytes))
        if (each.do === 'done') queues.done((underWay.shift() ?? []).map(({ key }) => key))
        if (each.do !== 'take') continue
        const batch = queues.take(each.count, each.bytes)
        expect(batch.length).toBeLessThanOrEqual(each.count)
        const bytes = batch.reduce((sum, one) => sum + one.bytes, 0)
        expect(batch.length <= 1 || bytes <= each.bytes).toBe(true)
        const busy = new Set(underWay.flat().map(({ key }) => key))
        expect(batch.filter(({ key }) => busy.has(key))).toEqual([])
        if (batch.length > 0) underWay.push(batch)
        taken.push(...batch)
      }
      for (const batch of underWay) queues.done(batch.map(({ key }) => key))
      const rest = queues.take(1_000, 1_000_000)
      const all = [...taken, ...rest]
      expect(all).toHaveLength(pushed)
      expect(queues.readyCount).toBe(0)
      expect(queues.readyBytes).toBe(0)
      for (const key of ['a', 'b', 'c']) {
        const places = all.filter((each) => each.key === key).map(({ place }) => place)
        expect(places).toEqual(places.toSorted((a, b) => a - b))
      }
    }),
  )
})
