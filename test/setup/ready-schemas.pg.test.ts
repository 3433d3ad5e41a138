import { expect, test } from 'vitest'
import { fromPg } from '../../src/postgres/adapters/from-pg.ts'
import { assertSchema } from '../../src/postgres/schema/deployment.ts'
import { migrate } from '../../src/postgres/schema/migrate.ts'
import { shippedMigrations } from '../../src/postgres/schema/migration-files.ts'
import { nextSchema } from './ready-schemas.ts'
import { testDatabase } from './test-database.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

test('a fixture’s schema is migrated before anybody takes it, and belongs to whoever does', async () => {
  const schema = nextSchema()
  await expect(assertSchema(db, { schema })).rejects.toThrow('belongs to no service yet')
  expect(await migrate(db, { schema, service: 'test' })).toMatchObject({ applied: [] })
  await assertSchema(db, { schema, service: 'test' })
})

test('when all are taken, the next is made', async () => {
  const made = { schema: '', count: 0 }
  while (made.count === 0) {
    made.schema = nextSchema()
    made.count = (await migrate(db, { schema: made.schema, service: 'test' })).applied.length
  }
  expect(made.count).toBe(shippedMigrations().length)
  await assertSchema(db, { schema: made.schema, service: 'test' })
})
