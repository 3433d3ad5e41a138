import fc from 'fast-check'
import { expect, test } from 'vitest'
import { fromPg } from '../../src/postgres/adapters/from-pg.ts'
import { migrate } from '../../src/postgres/schema/migrate.ts'
import { testDatabase } from '../setup/test-database.ts'
import { createChaosTables } from './chaos-history.ts'
import { happen, type World } from './chaos.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
const schema = 'chaos'
await migrate(db, { schema, service: 'test' })
await createChaosTables({ db, schema })

const world: fc.Arbitrary<World> = fc.record({
  seed: fc.integer({ min: 1, max: 1_000_000 }),
  histories: fc.array(
    fc.record({
      aggregateType: fc.constantFrom('note', 'wallet', 'meter'),
      choices: fc.array(fc.integer({ min: 1, max: 99 }), { minLength: 1, maxLength: 14 }),
    }),
    { minLength: 1, maxLength: 5 },
  ),
  instances: fc.integer({ min: 1, max: 4 }),
  batchSize: fc.constantFrom(1, 2, 7, 500),
  deaths: fc.array(fc.integer({ min: 1, max: 60 }), { maxLength: 6 }),
})

test('whatever order, copies, lost acks, failures and deaths: at rest the state is the owner’s, and each effect happened once', async () => {
  let deaths = 0
  await fc.assert(
    fc.asyncProperty(world, async (each) => {
      deaths += each.deaths.length
      expect(await happen({ db, schema }, each)).toEqual([])
    }),
    { numRuns: 12, endOnFailure: true },
  )
  expect(deaths).toBeGreaterThan(5)
}, 240_000)
