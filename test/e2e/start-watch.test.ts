/**
 * What the demo says of itself while it is watched: that it has caught up, and which effects it has not seen yet.
 */
import { afterEach, expect, test, vi } from 'vitest'
import { EffectCursor } from '../../examples/demo/effect-cursor.ts'
import { Latencies } from '../../examples/demo/latencies.ts'
import { Ledger } from '../../examples/demo/ledger.ts'
import { Timeline } from '../../examples/demo/timeline.ts'
import { startWatch } from '../../examples/demo/watch.ts'

afterEach(() => void vi.useRealTimers())

test('it has caught up when all is applied that was committed before the recovery, however much is on its way since', async () => {
  vi.useFakeTimers({ toFake: ['Date'], now: 10_000 })
  const said = Promise.withResolvers<string>()
  const timeline = new Timeline(({ text }) => void (text.startsWith('caught up') && said.resolve(text)))
  const latencies = new Latencies()
  const ledger = new Ledger(latencies)
  const commit = (version: number, atMs: number) => ({ type: 'video', id: 'a', version, eventId: `${version}`, atMs, edit: null })
  let looks = 0
  const look = async (): Promise<void> => {
    looks += 1
    if (looks === 3) ledger.effect({ ...commit(1, 10_500), atMs: 19_000 })
  }
  timeline.add('fault', 'kill -9 relay')
  ledger.commit(commit(1, 10_500))
  vi.setSystemTime(11_000)
  timeline.add('recovery', 'relay is back')
  ledger.commit(commit(2, 11_500))
  vi.setSystemTime(20_000)

  const watch = startWatch({ ledger, latencies, timeline, observer: { look }, processes: [] })
  expect(await said.promise).toContain('caught up 10.0 s after the last fault')
  await watch.stop()
  expect(looks).toBe(3)
})

test('effects are read on from the first one that is missing, until it comes', () => {
  const cursor = new EffectCursor()
  const look = (...numbers: number[]): number[] => numbers.filter((number) => cursor.enter(number, 0))
  expect([look(1, 2, 4, 5), cursor.position]).toEqual([[1, 2, 4, 5], 2])
  expect([look(4, 5, 6), cursor.position]).toEqual([[6], 2])
  expect([look(3, 4, 5, 6), cursor.position]).toEqual([[3], 6])
})

test('a number that was rolled back is waited for no longer than a transaction lives', () => {
  const cursor = new EffectCursor()
  expect([cursor.enter(1, 0), cursor.enter(3, 0), cursor.position]).toEqual([true, true, 1])
  expect([cursor.enter(4, 59_999), cursor.position]).toEqual([true, 1])
  expect([cursor.enter(5, 60_000), cursor.position]).toEqual([true, 3])
  expect([cursor.enter(6, 60_001), cursor.position]).toEqual([true, 6])
})
