/** Some drills that need no long wait, on embedded parts. All of them run in test/proof. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { drills } from '../../src/drill/drills.ts'
import { openEmbedded } from '../../src/drill/target/embedded.ts'
import { runDrill } from '../../src/drill/run/run-drill.ts'
import type { Target } from '../../src/drill/target/target.ts'

const seed = 7
const quick = ['broker-outage', 'stale-version']
let target: Target

beforeAll(async () => {
  target = await openEmbedded({ seed })
})
afterAll(() => target?.close())

test.each(quick)('the drill %s passes, and its fault was seen to happen', { timeout: 600_000 }, async (name) => {
  const [drill] = drills.filter((each) => each.name === name)
  const { verdict, fired, violations, judged, counts, timeline } = await runDrill(drill!, {
    target,
    seed,
    recoverMs: 180_000,
    patienceMs: 180_000,
  })
  expect({ violations, fired, verdict }).toEqual({ violations: [], fired: true, verdict: 'pass' })
  expect(judged).toEqual(expect.arrayContaining(['no-loss', 'no-ghost', 'one-effect', 'liveness']))
  expect(counts.applied).toBeGreaterThanOrEqual(10)
  expect(timeline.some(({ kind }) => kind === 'fault')).toBe(true)
})
