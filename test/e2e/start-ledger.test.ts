/**
 * The books of the demo, given what must never happen: a checker that cannot find anything proves nothing.
 */
import { afterEach, expect, test, vi } from 'vitest'
import { RunHistory } from '../../examples/demo/history.ts'
import { Latencies } from '../../examples/demo/latencies.ts'
import { Ledger, type Commit } from '../../examples/demo/ledger.ts'
import { Observer } from '../../examples/demo/observer.ts'
import type { Queryable } from '../../src/postgres/query/database.ts'

// The demo imports it by its public name, which needs a build.
vi.mock('waybill/testing', () => import('../../src/testing/index.ts'))

afterEach(() => void vi.useRealTimers())

function commit(version: number, edit?: string): Commit {
  return { type: 'video', id: 'a', version, eventId: `event-${version}`, atMs: version * 10, edit }
}

/** Three commits, of which the first `applied` took effect. */
function history(applied: number): Ledger {
  const ledger = new Ledger(new Latencies())
  for (const version of [1, 2, 3]) {
    ledger.commit(commit(version))
    ledger.publish(`event-${version}`, version * 10 + 2)
  }
  for (let version = 1; version <= applied; version += 1) ledger.effect({ ...commit(version), atMs: version * 10 + 5 })
  return ledger
}

test('what arrives once and in order is clean, and nothing of it is remembered', () => {
  const ledger = history(3)
  ledger.close()
  expect(ledger.counts).toEqual({ committed: 3, published: 3, applied: 3, lost: 0, doubled: 0, outOfOrder: 0, stale: 0 })
  expect(ledger.isClean).toBe(true)
  expect(ledger.flights.size).toBe(0)
})

test('a commit that never took effect is lost', () => {
  const ledger = history(2)
  expect(ledger.isClean).toBe(true)
  ledger.close()
  expect(ledger.counts.lost).toBe(1)
})

test('an event that took effect twice is doubled', () => {
  const ledger = history(3)
  ledger.effect({ ...commit(2), atMs: 99 })
  expect(ledger.counts).toMatchObject({ doubled: 1, applied: 3 })
})

test('an effect that jumped over another is out of order, and lost too if the other never comes', () => {
  const overtaken = history(1)
  overtaken.effect({ ...commit(3), atMs: 40 })
  overtaken.close()
  expect(overtaken.counts).toMatchObject({ outOfOrder: 1, lost: 1, doubled: 0 })

  const late = history(1)
  late.effect({ ...commit(3), atMs: 40 })
  late.effect({ ...commit(2), atMs: 41 })
  late.close()
  expect(late.counts).toMatchObject({ outOfOrder: 1, lost: 0, doubled: 0 })
})

test('an effect of an event that was never committed is a violation', () => {
  const ledger = history(3)
  ledger.effect({ ...commit(4), eventId: 'ghost' })
  expect(ledger.isClean).toBe(false)
})

test('a projection that goes back is stale', () => {
  const ledger = history(3)
  ledger.project({ type: 'video', id: 'a', version: 3 })
  ledger.project({ type: 'video', id: 'a', version: 2 })
  expect(ledger.counts.stale).toBe(1)
})

test('a request that was answered and is not there is lost; one that was committed twice is doubled', () => {
  const ledger = new Ledger(new Latencies())
  ledger.ask('kept')
  ledger.ask('forgotten')
  ledger.answer('kept')
  ledger.answer('forgotten')
  ledger.commit(commit(1, 'kept'))
  ledger.effect(commit(1))
  ledger.close()
  expect(ledger.counts.lost).toBe(1)
  ledger.commit(commit(2, 'kept'))
  expect(ledger.counts.doubled).toBe(1)
})

test('a request answered after the commits were read is not lost, however long that look takes; at the next look it is', async () => {
  vi.useFakeTimers({ toFake: ['performance'] })
  const ledger = new Ledger(new Latencies())
  ledger.ask('e1')
  let isAnswered = false
  const query: Queryable['query'] = async (text) => {
    if (text.includes('catalog_video') && !isAnswered) {
      isAnswered = true
      ledger.answer('e1')
      vi.advanceTimersByTime(11_000)
    }
    return { rows: [], rowCount: 0 }
  }
  const observer = new Observer({
    video: { query },
    catalog: { query },
    ledger,
    history: new RunHistory(),
    consumer: 'catalog',
    isForged: () => false,
  })
  await observer.look()
  expect(ledger.counts.lost).toBe(0)
  await observer.look()
  expect(ledger.counts.lost).toBe(1)
})
