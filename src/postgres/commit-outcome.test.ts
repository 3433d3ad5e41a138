import { expect, test } from 'vitest'

import { createFakeClock } from '../testing/fake-clock.ts'
import { commitOutcome } from './commit-outcome.ts'
import type { Queryable } from './database.ts'

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
      return { rows: [{ status }], rowCount: 1 }
    },
  }
}

test.each([
  [['committed'], 'committed', 1],
  [['aborted'], 'rolled-back', 1],
  [[null], 'unknown', 1],
  [['in progress', 'unreachable', 'in progress', 'committed'], 'committed', 4],
  [['unreachable', 'aborted'], 'rolled-back', 2],
  [['silent', 'committed'], 'committed', 2],
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

test('a database that is silent is not waited for past the deadline', async () => {
  const clock = createFakeClock()
  const db = answering('silent')
  let found: string | undefined
  const looking = commitOutcome(db, { xid: '7', server: '1' }, { clock, beganAtMs: clock.monotonicMs() })
  void looking.then((outcome) => (found = outcome))
  await clock.advance(10_000)
  expect([found, clock.sleepers()]).toEqual(['unknown', 0])
  expect(db.asked()).toBeGreaterThan(1)
})

test('a server that looks late is asked again: it may have crashed after BEGIN, and not know it', async () => {
  const clock = createFakeClock()
  const beganAtMs = clock.monotonicMs()
  const crashedAtMs = beganAtMs + 10
  let tookMs = 2_000
  // As the statement decides it: its last value says how long before the look the transaction began.
  const db: Queryable = {
    query: async (_text, values = []) => {
      await clock.sleep(tookMs)
      tookMs = 10
      const isSame = crashedAtMs < clock.monotonicMs() - Number(values.at(-1))
      return { rows: [{ status: isSame ? 'committed' : null }], rowCount: 1 }
    },
  }
  const found = commitOutcome(db, { xid: '7', server: '1' }, { clock, beganAtMs })
  await clock.advance(9_000)
  expect(await found).toBe('unknown')
})
