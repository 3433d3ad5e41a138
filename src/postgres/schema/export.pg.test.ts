import { execFile } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, expect, test } from 'vitest'

import { describeSchema } from '../../../test/setup/describe-schema.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { findProgram } from '../../testing/process/find-program.ts'
import { assertSchema } from './deployment.ts'
import { fromPg } from '../adapters/from-pg.ts'
import { exportSql } from './export.ts'
import { parseMigration, shippedMigrations } from './migration-files.ts'
import { migrate } from './migrate.ts'
import { groupRole, groupRoles } from './roles.ts'

const migrated = await testDatabase()
const scripted = await testDatabase()
const byRunner = fromPg(migrated.pool)
const byScript = fromPg(scripted.pool)
const withRoles = `s${migrated.name}`
// Roles belong to the server: a schema of the same name in another database would need the same ones.
const scriptedWithRoles = `s${scripted.name}`
const psql = findProgram('psql')

afterAll(async () => {
  await byRunner.query(`drop schema if exists ${withRoles} cascade`)
  await byScript.query(`drop schema if exists ${scriptedWithRoles} cascade`)
  for (const schema of [withRoles, scriptedWithRoles])
    for (const role of groupRoles) await byScript.query(`drop role if exists ${groupRole({ schema, service: 'orders' }, role)}`)
})

test.each([
  { schema: 'waybill', other: 'waybill', roles: false },
  { schema: scriptedWithRoles, other: withRoles, roles: true },
])(
  'the script leaves the same schema as the runner (roles: $roles), and the runner finds nothing to do',
  async ({ schema, other, roles }) => {
    const names = { schema, service: 'orders' }
    await migrate(byRunner, { ...names, schema: other, roles })
    await byScript.query(exportSql({ ...names, roles }))
    expect(await describeSchema(byScript, schema, 'full')).toBe(await describeSchema(byRunner, other, 'full'))
    await assertSchema(byScript, names)
    expect((await migrate(byScript, names)).applied).toEqual([])
  },
)

test.runIf(psql !== undefined)('psql runs the script', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'waybill-export-'))
  const file = join(folder, 'waybill.sql')
  writeFileSync(file, exportSql({ schema: 'by_psql', service: 'orders', deploymentId: 'orders-production' }))
  await promisify(execFile)(psql ?? '', ['-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', file, scripted.url])
  await assertSchema(byScript, { schema: 'by_psql', service: 'orders', deploymentId: 'orders-production' })
  await rm(folder, { recursive: true })
})

test('a script that starts behind what the database has holds the rest only, and the two together are the whole', async () => {
  const names = { schema: 'later', service: 'orders' }
  const next = shippedMigrations().length + 1
  const added = parseMigration(`${String(next).padStart(4, '0')}_add_more.sql`, 'create table :schema.more (id int);')
  const migrations = [...shippedMigrations(), added]
  await migrate(byRunner, { ...names, migrations })
  await migrate(byScript, names)
  const script = exportSql({ ...names, migrations, after: next - 1 })
  expect(script).not.toContain('0001_create_foundation')
  await byScript.query(script)
  expect(await describeSchema(byScript, 'later', 'full')).toBe(await describeSchema(byRunner, 'later', 'full'))
  expect(exportSql({ ...names, migrations, after: next })).toBe('')
})

test('a migration that cannot be in a transaction stands outside of one in the script', () => {
  const index = '-- no-transaction\ncreate index concurrently if not exists late_idx on :schema.late (id);'
  const script = exportSql({ schema: 'x', service: 'orders', migrations: [parseMigration('0001_add_index.sql', index)] })
  expect(script).toMatch(/commit;\s+-- 0001_add_index\s+-- no-transaction\s+create index concurrently [^;]+;\s+begin;/)
})
