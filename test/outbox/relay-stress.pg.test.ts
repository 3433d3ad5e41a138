import { expect, test } from 'vitest'
import { fromPg } from '../../src/postgres/from-pg.ts'
import { testDatabase } from '../setup/test-database.ts'
import { stress } from './stress/stress.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

test(
  'four relay processes under every fault lose nothing, make nothing up, keep the order and leave nothing behind',
  { timeout: 240_000 },
  async () => {
    const report = await stress({ db, url: database.url, seed: 1, relays: 4, events: 3_000, aggregates: 12, incidents: 8 })
    expect(report.violations).toEqual([])
    expect(report.events).toBeGreaterThanOrEqual(3_000)
    // A stress in which nothing went wrong would prove nothing.
    expect(report.duplicates).toBeGreaterThan(0)
    expect(report.rolledBack).toBeGreaterThan(0)
    for (const count of [...Object.values(report.struck), ...Object.values(report.operated)]) expect(count).toBeGreaterThan(0)
  },
)
