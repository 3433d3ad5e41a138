/**
 * The migration for Supabase on an empty database: it leaves what `waybill migrate` leaves, and nothing to anybody else.
 */
import { readFile } from 'node:fs/promises'
import { expect, test } from 'vitest'
import { fromPg } from '../../src/postgres/adapters/from-pg.ts'
import { migrationStatus } from '../../src/postgres/schema/status.ts'
import { migrate } from '../../src/postgres/schema/migrate.ts'
import { testDatabase } from '../setup/test-database.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
const folder = new URL('../../deploy/supabase/', import.meta.url)

test('after the migration there is nothing left to migrate, and the schema is the service’s', async () => {
  await database.pool.query(await readFile(new URL('migrations/20250101000000_waybill.sql', folder), 'utf8'))
  const names = { schema: 'waybill', service: 'video' }
  expect((await migrationStatus(db, { schema: 'waybill' })).pending).toEqual([])
  expect((await migrate(db, names)).applied).toEqual([])
  const { rows } = await db.query(
    `select table_name, grantee from information_schema.table_privileges
      where table_schema = 'waybill' and grantee in ('PUBLIC', 'anon', 'authenticated')`,
  )
  expect(rows).toEqual([])
})

test('the logins belong to roles that the migration makes', async () => {
  const text = await readFile(new URL('logins.sql', folder), 'utf8')
  const groups = [...text.matchAll(/in role (\w+);/g)].map((match) => match[1])
  expect(groups).toHaveLength(4)
  const { rows } = await db.query('select rolname from pg_roles where rolname = any ($1::text::text[])', [
    `{${groups.join(',')}}`,
  ])
  expect(rows).toHaveLength(4)
})
