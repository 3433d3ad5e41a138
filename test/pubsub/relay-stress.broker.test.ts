import { expect, test } from 'vitest'
import { fromPg } from '../../src/postgres/from-pg.ts'
import { testDatabase } from '../setup/test-database.ts'
import { everyFault, stressOverPubsub } from './relay-stress.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
const timeout = 240_000

test(
  'four relay processes over Pub/Sub keep every promise while they are killed and replaced, through every fault of the broker in turn',
  { timeout },
  async () => {
    const report = await stressOverPubsub({
      db,
      url: database.url,
      relays: 4,
      aggregates: 12,
      seed: 2,
      events: 2_500,
      incidents: 4,
      badDays: everyFault,
    })
    expect(report.violations).toEqual([])
    expect(report.deliveryViolations).toEqual([])
    expect(report.events).toBeGreaterThanOrEqual(2_500)
    // A stress in which nothing went wrong would prove nothing.
    expect(report.duplicates).toBeGreaterThan(0)
    expect(report.redelivered).toBeGreaterThan(0)
    expect(Object.keys(report.struck).toSorted()).toEqual(everyFault.map(([fault]) => fault).toSorted())
    for (const count of [...Object.values(report.struck), ...Object.values(report.operated)]) expect(count).toBeGreaterThan(0)
  },
)
