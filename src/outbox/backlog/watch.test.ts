import { expect, test } from 'vitest'
import { createSignals } from '../../core/signals.ts'
import type { Queryable } from '../../postgres/query/database.ts'
import type { LaneLeases } from '../../postgres/lanes/lane-leases.ts'
import { createFakeClock } from '../../testing/kit/fake-clock.ts'
import { readPauses } from '../tables/dispatch.sql.ts'
import { createOutbox } from '../outbox.ts'
import { createOutboxWatch } from './watch.ts'

test('a pause is heard of while what waits is being counted, however long that takes', async () => {
  const { tables } = createOutbox()
  const paused: object[] = []
  const db: Queryable = {
    query: (text) =>
      text === readPauses(tables).text ? Promise.resolve({ rows: [...paused], rowCount: 0 }) : new Promise(() => undefined),
  }
  const leases = { held: () => [{ lane: 0, token: '' }] } as unknown as LaneLeases
  const watch = createOutboxWatch({ db, tables, leases, signals: createSignals(), clock: createFakeClock(), longestRetryMs: 1 })
  const { signal } = new AbortController()
  void watch.count(signal)
  await watch.pass(signal)
  expect([watch.isInformed(), watch.isPaused('video', 'v1')]).toEqual([true, false])
  paused.push({ aggregate_type: 'video', aggregate_id: '' })
  await watch.pass(signal)
  expect([watch.isPaused('video', 'v1'), watch.isAllPaused()]).toEqual([true, false])
  paused.push({ aggregate_type: '', aggregate_id: '' })
  await watch.pass(signal)
  expect(watch.isAllPaused()).toBe(true)
})
