import { expect, test } from 'vitest'
import { fromPg } from '../../src/postgres/adapters/from-pg.ts'
import { placeBeforeLock } from '../outbox/mutants/order-mutants.ts'
import { stress } from '../outbox/stress/stress.ts'
import { testDatabase } from '../setup/test-database.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
const isFull = process.env['WAYBILL_PROOF'] === 'full'
const seeds = isFull ? [11, 12, 13, 14, 15, 16] : [11]
const size = isFull ? { events: 20_000, aggregates: 40, incidents: 32 } : { events: 4_000, aggregates: 16, incidents: 12 }
const timeout = 1_800_000

test.each(seeds)('relay processes keep every promise under every fault (seed %i)', { timeout }, async (seed) => {
  const report = await stress({ db, url: database.url, seed, relays: 4, ...size })
  console.log(JSON.stringify({ seed, ...report }))
  expect(report.violations).toEqual([])
  expect(report.events).toBeGreaterThanOrEqual(size.events)
  // A stress in which nothing went wrong would prove nothing.
  expect(report.duplicates).toBeGreaterThan(0)
  expect(report.rolledBack).toBeGreaterThan(0)
  for (const count of [...Object.values(report.struck), ...Object.values(report.operated)]) expect(count).toBeGreaterThan(0)
})

test('the same stress notices an outbox that takes places before it takes versions', { timeout }, async () => {
  const prepare = placeBeforeLock.prepare
  if (prepare === undefined) throw new Error('The mutant changes nothing.')
  const report = await stress({ db, url: database.url, seed: 1, relays: 4, events: 2_000, aggregates: 2, incidents: 2, prepare })
  expect(report.violations).toContainEqual(expect.stringMatching(/^first-occurrence-order: /))
})
