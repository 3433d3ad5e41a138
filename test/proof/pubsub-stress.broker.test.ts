import { expect, test } from 'vitest'
import { fromPg } from '../../src/postgres/adapters/from-pg.ts'
import { everyFault, stressOverPubsub } from '../pubsub/relay-stress.ts'
import { testDatabase } from '../setup/test-database.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
const isFull = process.env['WAYBILL_PROOF'] === 'full'
const seeds = isFull ? [21, 22, 23, 24] : [21]
const size = isFull ? { events: 15_000, aggregates: 40, incidents: 24 } : { events: 4_000, aggregates: 16, incidents: 8 }
const timeout = 1_800_000

test.each(seeds)('relay processes over Pub/Sub keep every promise under every fault (seed %i)', { timeout }, async (seed) => {
  const report = await stressOverPubsub({ db, url: database.url, seed, relays: 4, badDays: everyFault, ...size })
  console.log(JSON.stringify({ seed, ...report }))
  expect(report.violations).toEqual([])
  expect(report.deliveryViolations).toEqual([])
  expect(report.events).toBeGreaterThanOrEqual(size.events)
  expect(report.duplicates).toBeGreaterThan(0)
  for (const count of Object.values(report.struck)) expect(count).toBeGreaterThan(0)
})
