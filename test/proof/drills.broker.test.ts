/** Every drill on embedded parts, none skipped: `npm run drill -- run --all`, over two seeds where there is time. */
import { expect, test } from 'vitest'
import { drills } from '../../src/drill/drills.ts'
import { runDrills } from '../../src/drill/run/run-drills.ts'

const seeds = process.env['WAYBILL_PROOF'] === 'full' ? [1, 2] : [1]

test.each(seeds)('every drill passes with the proof that its fault happened (seed %i)', { timeout: 3_600_000 }, async (seed) => {
  const report = await runDrills(drills, { seed, recoverMs: 180_000, patienceMs: 180_000 })
  const told = report.drills.map(({ name, verdict, fired, violations }) => ({ name, verdict, fired, violations }))
  expect(told).toEqual(drills.map(({ name }) => ({ name, verdict: 'pass', fired: true, violations: [] })))
  expect(told.length).toBeGreaterThanOrEqual(13)
  expect(report).toMatchObject({ verdict: 'pass', passed: told.length, failed: 0, skipped: 0 })
  expect(report.drills.find(({ name }) => name === 'poison-message')?.evidence).toContain('WaybillDeadLetters')
})
