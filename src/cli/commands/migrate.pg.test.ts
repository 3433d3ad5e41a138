import { beforeAll, describe, expect, inject, test } from 'vitest'

import { describeSchema } from '../../../test/setup/describe-schema.ts'
import { runLine, type Ended } from '../../../test/setup/run-line.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { shippedMigrations } from '../../postgres/schema/migration-files.ts'
import { groupRole, groupRoles } from '../../postgres/schema/roles.ts'
import { createTestDatabase } from '../../testing/servers/test-database.ts'

const database = await testDatabase()
const names = shippedMigrations().map(({ name }) => name)

const cli = (line: string, url: string = database.url): Promise<Ended> =>
  runLine(line, { folder: import.meta.dirname, env: { DATABASE_URL: url } })

test('up applies everything, says so on stdout, and does nothing the second time', async () => {
  const first = await cli('migrate up --service orders')
  expect(first).toMatchObject({ code: 0, out: `Applied ${names.join(', ')}.\n`, err: expect.stringContaining('--roles') })
  expect(await cli('migrate up --service orders')).toMatchObject({ code: 0, out: 'The schema is up to date.\n' })
  const { out } = await cli('migrate up --service orders --json')
  expect(JSON.parse(out)).toEqual({
    schema: 'waybill',
    service: 'orders',
    applied: [],
    deploymentId: expect.any(String),
    roles: false,
    newer: [],
  })
})

test('up --dry-run changes nothing, and what it prints does what up does', async () => {
  const { code, out } = await cli('migrate up --service orders --schema dry --dry-run')
  expect(code).toBe(0)
  expect(await cli('migrate status --schema dry')).toMatchObject({ code: 4, out: expect.stringContaining('dry: missing') })
  await database.pool.query(out)
  expect(await cli('migrate status --schema dry')).toMatchObject({ code: 0, out: expect.stringContaining('dry: current') })
  expect((await cli('migrate up --service orders --schema dry --dry-run')).out).toBe('-- The schema is up to date.\n')
})

test('up --dry-run refuses what up refuses', async () => {
  await cli('migrate up --service orders --schema owned')
  const refused = await cli('migrate up --service billing --schema owned --dry-run')
  expect(refused).toMatchObject({ code: 3, out: '', err: expect.stringContaining('Give each service a schema of its own') })
  await database.pool.query('create schema others; create table others.thing (id int)')
  const occupied = await cli('migrate up --service orders --schema others --dry-run')
  expect(occupied).toMatchObject({ code: 3, out: '', err: expect.stringContaining("not Waybill's") })
})

test('up --dry-run of a schema with roles leaves the owners and grants that up leaves, without being asked for them', async () => {
  const other = await testDatabase()
  const sides = [database, other].map(({ name, pool, url }) => ({
    db: fromPg(pool),
    url,
    schema: `s${name}`,
    line: `migrate up --service orders --schema s${name}`,
  }))
  const [byScript, byUp] = sides as [(typeof sides)[number], (typeof sides)[number]]
  try {
    for (const { db, url, line, schema } of sides) {
      await cli(`${line} --roles`, url)
      expect((await cli(`${line} --dry-run`, url)).out).toBe('-- The schema is up to date.\n')
      // As before one of the migrations.
      await db.query(
        `drop table ${schema}.blob_part, ${schema}.blob; delete from ${schema}.migration where name = '0007_create_blobs'`,
      )
    }
    await byScript.db.query((await cli(`${byScript.line} --dry-run`)).out)
    await cli(byUp.line, byUp.url)
    expect(await describeSchema(byScript.db, byScript.schema, 'full')).toBe(await describeSchema(byUp.db, byUp.schema, 'full'))
    expect(await cli(byScript.line)).toMatchObject({ out: 'The schema is up to date.\n' })
  } finally {
    for (const { db, schema } of sides) {
      await db.query(`drop schema if exists ${schema} cascade`)
      for (const role of groupRoles) await db.query(`drop role if exists ${groupRole({ schema, service: 'orders' }, role)}`)
    }
  }
})

test.each([
  { how: '', code: 4 },
  { how: '--dry-run', code: 0 },
])('up --roles $how on a newer schema makes no roles, and says so', async ({ how, code }) => {
  const line = `migrate up --service orders --schema newer${how.length}`
  await cli(line)
  await database.pool.query(
    `insert into newer${how.length}.migration (number, name, checksum, breaking, applied_by) values (9999, '9999_add_more', 'x', false, '9.9.9')`,
  )
  expect(await cli(`${line} --roles ${how}`.trim())).toMatchObject({
    code,
    out: expect.stringContaining('The schema is up to date.'),
    err: expect.stringContaining('a newer waybill applied 9999_add_more'),
  })
})

describe('status', () => {
  beforeAll(() => cli('migrate up --service orders --schema looked_at'))

  test('is 0 for a schema that a process can work on', async () => {
    const { code, out } = await cli('migrate status --schema looked_at --json')
    expect(code).toBe(0)
    expect(JSON.parse(out)).toMatchObject({
      state: 'current',
      service: 'orders',
      pending: [],
      applied: names.map((name) => ({ name })),
    })
  })

  test("is 4 for one that is behind, another service's, or not there, and says what to do", async () => {
    await database.pool.query('delete from looked_at.migration where number = $1', [names.length])
    const behind = await cli('migrate status --schema looked_at')
    expect(behind).toMatchObject({ code: 4, out: expect.stringMatching(/: behind.*pending {2}0.*Run: waybill migrate up/s) })
    const others = await cli('migrate status --schema looked_at --service billing')
    expect(others).toMatchObject({ code: 4, out: expect.stringMatching(/: refused.*belongs to the service "orders"/s) })
    const missing = await cli('migrate status --schema nowhere --json')
    expect(missing.code).toBe(4)
    expect(JSON.parse(missing.out)).toMatchObject({ state: 'missing', pending: names })
  })
})

test('another service is refused', async () => {
  await cli('migrate up --service orders --schema taken')
  const refused = await cli('migrate up --service billing --schema taken')
  expect(refused).toMatchObject({ code: 3, out: '', err: expect.stringContaining('Give each service a schema of its own') })
})

test('a copy is adopted only with --yes', async () => {
  const original = await createTestDatabase(inject('postgres'))
  // A database can be a template only while nobody is connected to it; a pooler would stay.
  await cli('migrate up --service orders --deployment-id production', original.directUrl)
  const copy = await createTestDatabase(inject('postgres'), { template: original.name })
  expect(await cli('migrate up --service orders', copy.url)).toMatchObject({ code: 3, err: expect.stringContaining('is a copy') })
  expect(await cli('migrate adopt --service orders', copy.url)).toMatchObject({ code: 3, err: expect.stringContaining('--yes') })
  expect(await cli('migrate status', copy.url)).toMatchObject({ code: 4 })
  const adopted = await cli('migrate adopt --service orders --deployment-id staging --yes --json', copy.url)
  expect(JSON.parse(adopted.out)).toEqual({ schema: 'waybill', deploymentId: 'staging', before: 'production' })
  expect(await cli('migrate status --deployment-id staging', copy.url)).toMatchObject({ code: 0 })
  expect(await cli('migrate status --deployment-id production', copy.url)).toMatchObject({ code: 4 })
  const { rows } = await copy.pool.query('select actor, action from waybill.audit_log')
  expect(rows).toEqual([{ actor: 'ada', action: 'deployment.adopt' }])
  await copy.drop()
  await original.drop()
})

test('a database that does not exist is named', async () => {
  const url = new URL(database.directUrl)
  url.pathname = '/no_such_database'
  const { code, err } = await cli('migrate status', url.href)
  expect(code).toBe(1)
  expect(err).toMatch(/no_such_database does not exist\. Create it/)
})
