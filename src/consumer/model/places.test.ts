import { expect, test } from 'vitest'
import { systemClock } from '../../core/service/clock.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { nextInPlace, placesOfSuspects, suspectsLast, type Places } from './places.ts'
import { Batcher, type Collected } from '../receive/batcher.ts'

test('suspects have at most half of the places, and one where there is only one', () => {
  expect([1, 2, 3, 4, 5, 8].map(placesOfSuspects)).toEqual([1, 1, 1, 2, 2, 4])
})

test('a suspect goes as soon as it may, others have the rest, and one place is shared in turn', () => {
  const idle: Places = {
    concurrency: 4,
    running: 0,
    suspectsRunning: 0,
    othersWait: true,
    suspectsWait: true,
    wasSuspect: false,
  }
  expect(nextInPlace(idle)).toBe('suspect')
  expect(nextInPlace({ ...idle, running: 2, suspectsRunning: 2 })).toBe('others')
  expect(nextInPlace({ ...idle, running: 2, suspectsRunning: 2, othersWait: false })).toBe('nothing')
  expect(nextInPlace({ ...idle, wasSuspect: true })).toBe('others')
  expect(nextInPlace({ ...idle, wasSuspect: true, othersWait: false })).toBe('suspect')
  expect(nextInPlace({ ...idle, suspectsWait: false })).toBe('others')
  expect(nextInPlace({ ...idle, running: 4 })).toBe('nothing')
  expect(nextInPlace({ ...idle, concurrency: 1, running: 1, suspectsRunning: 1 })).toBe('nothing')
})

test('what is in line behind a suspect stays behind it, and all others go before', () => {
  const items = ['a1', 'b1!', 'b2', 'c1', 'a2!', 'a3', 'd1']
  const { others, suspects } = suspectsLast(
    items,
    (each) => each.endsWith('!'),
    (each) => each.charAt(0),
  )
  expect([others, suspects]).toEqual([
    ['a1', 'c1', 'd1'],
    ['b1!', 'b2', 'a2!', 'a3'],
  ])
})

interface Entry extends Collected {
  readonly name: string
}

/** A batcher whose batches hang until they are let go by name. */
function hangingBatcher(concurrency: number) {
  const begun: string[][] = []
  const held = new Map<string, () => void>()
  const batcher = new Batcher<Entry>({
    batchSize: 10,
    batchBytes: 1_000,
    lingerMs: 1,
    concurrency,
    clock: systemClock,
  })
  batcher.start((batch) => {
    begun.push(batch.map(({ name }) => name))
    return new Promise((resolve) => held.set(batch[0]?.name ?? '', resolve))
  })
  const push = (name: string, isSuspect = false): void =>
    batcher.push({ name, key: name.charAt(0), bytes: 1, sinceMs: 0, isSuspect })
  return { batcher, begun, push, letGo: (name: string) => held.get(name)?.() }
}

test('four hanging suspects take two of four places, each alone, and the others go on', async () => {
  const { batcher, begun, push, letGo } = hangingBatcher(4)
  for (const name of ['a', 'b', 'c', 'd']) push(name, true)
  expect(begun).toEqual([['a'], ['b']])
  push('x')
  push('y')
  await eventually(() => begun.length === 3)
  expect(begun.at(-1)).toEqual(['x', 'y'])
  push('z')
  await eventually(() => begun.length === 4)
  expect(begun.at(-1)).toEqual(['z'])
  letGo('x')
  await eventually(() => batcher.inFlight().messages === 5)
  letGo('a')
  await eventually(() => begun.length === 5)
  expect(begun.at(-1)).toEqual(['c'])
})

test('of one aggregate the order is kept around a suspect, and where there is one place nobody is left out', async () => {
  const { batcher, begun, push, letGo } = hangingBatcher(1)
  push('a1')
  push('a2', true)
  push('a3')
  push('b1', true)
  push('c1')
  for (const [nth, name] of ['b1', 'a1', 'a2', 'a3'].entries()) {
    await eventually(() => begun.length === nth + 1)
    letGo(begun[nth]?.[0] ?? name)
  }
  await eventually(() => batcher.isIdle)
  expect(begun.flat().filter((name) => name.startsWith('a'))).toEqual(['a1', 'a2', 'a3'])
  expect(begun).toContainEqual(['a2'])
  expect(begun.flat().toSorted()).toEqual(['a1', 'a2', 'a3', 'b1', 'c1'])
})

test('the end waits for what still waits for company', async () => {
  const done: string[] = []
  const batcher = new Batcher<Entry>({
    batchSize: 10,
    batchBytes: 1_000,
    lingerMs: 5,
    concurrency: 1,
    clock: systemClock,
  })
  batcher.start(async (batch) => void done.push(...batch.map(({ name }) => name)))
  batcher.push({ name: 'a', key: 'a', bytes: 1, sinceMs: 0 })
  await batcher.ended()
  expect(done).toEqual(['a'])
})
