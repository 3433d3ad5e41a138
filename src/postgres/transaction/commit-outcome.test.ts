import { expect, test } from 'vitest'

import type { Clock } from '../../core/service/clock.ts'
import { createFakeClock } from '../../testing/kit/fake-clock.ts'
import { commitOutcome } from './commit-outcome.ts'
import type { Queryable } from '../query/database.ts'

type Answer = 'committed' | 'aborted' | 'in progress' | null | 'unreachable' | 'silent'

/** Gives the answers in turn, the last one for ever. */
function answering(...answers: Answer[]): Queryable & { asked: () => number } {
  let asked = 0
  return {
    asked: () => asked,
    query: async () => {
      const status = answers[Math.min(asked, answers.length - 1)]
      asked += 1
      if (status === 'silent') return await new Promise(() => undefined)
      if (status === 'unreachable') throw new Error('connect ECONNREFUSED')
      return { rows: [{ status, steady_ms: '3600000' }], rowCount: 1 }
    },
  }
}

test.each([
  // One more each, for the commit of our own.
  [['committed'], 'committed', 2],
  [['aborted'], 'rolled-back', 1],
  [[null], 'unknown', 1],
  [['in progress', 'unreachable', 'in progress', 'committed'], 'committed', 5],
  [['unreachable', 'aborted'], 'rolled-back', 2],
  [['silent', 'committed'], 'committed', 3],
] as const)('the answers %j mean %s', async (answers, outcome, asked) => {
  const clock = createFakeClock()
  const db = answering(...answers)
  const found = commitOutcome(db, { xid: '7', server: '1' }, { clock, beganAtMs: clock.monotonicMs() })
  await clock.advance(9_000)
  expect([await found, db.asked()]).toEqual([outcome, asked])
})

test.each(['in progress', 'unreachable'] as const)('a database that stays %s is not asked for ever', async (answer) => {
  const clock = createFakeClock()
  const db = answering(answer)
  const found = commitOutcome(db, { xid: '7', server: '1' }, { clock, beganAtMs: clock.monotonicMs() })
  await clock.advance(60_000)
  expect(await found).toBe('unknown')
  expect(db.asked()).toBeGreaterThan(10)
})

test('a database that is silent is not waited for much longer than one that answers', async () => {
  const clock = createFakeClock()
  const db = answering('silent')
  let found: string | undefined
  const looking = commitOutcome(db, { xid: '7', server: '1' }, { clock, beganAtMs: clock.monotonicMs() })
  void looking.then((outcome) => (found = outcome))
  await clock.advance(13_000)
  expect([found, clock.sleepers()]).toEqual(['unknown', 0])
  expect(db.asked()).toBeGreaterThan(1)
})

/** A server that says committed, and takes this long for each answer; it crashed, unless another was asked, at this time. */
function committing(clock: Clock, tookMs: number, crashedAtMs: number | null): Queryable {
  return {
    query: async () => {
      await clock.sleep(tookMs)
      const steady = crashedAtMs === null ? null : String(clock.monotonicMs() - crashedAtMs)
      return { rows: [{ status: 'committed', steady_ms: steady }], rowCount: 1 }
    },
  }
}

test.each([
  ['crashed after BEGIN and is slow to look is not believed', 2_000, 10, 'unknown'],
  ['is another is not believed', 0, null, 'unknown'],
  ['takes long for every answer is believed', 2_000, -60_000, 'committed'],
] as const)('a server that %s', async (_what, tookMs, crashedAfterMs, outcome) => {
  const clock = createFakeClock()
  const beganAtMs = clock.monotonicMs()
  const db = committing(clock, tookMs, crashedAfterMs === null ? null : beganAtMs + crashedAfterMs)
  const found = commitOutcome(db, { xid: '7', server: '1' }, { clock, beganAtMs })
  await clock.advance(30_000)
  expect(await found).toBe(outcome)
})

test('a process that stood still for all the time that it has asks once more', async () => {
  const fake = createFakeClock()
  let stoodMs = 0
  const clock: Clock = { ...fake, monotonicMs: () => fake.monotonicMs() + stoodMs }
  const db: Queryable = {
    query: async () => {
      const isFirst = stoodMs === 0
      stoodMs = 20_000
      // Its timers go first when it goes on: the answer is there, and nobody waits for it any more.
      if (isFirst) throw new Error('not heard in time')
      return { rows: [{ status: 'committed', steady_ms: '3600000' }], rowCount: 1 }
    },
  }
  const found = commitOutcome(db, { xid: '7', server: '1' }, { clock, beganAtMs: clock.monotonicMs() })
  await fake.advance(1_000)
  expect(await found).toBe('committed')
})
