import { beforeAll, describe, expect, inject, test } from 'vitest'

import { createTestDatabase } from '../../testing/servers/test-database.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { connect } from '../connect.ts'
import { adoptDeployment, assertSchema, isCopy } from './deployment.ts'
import { fromPg } from '../adapters/from-pg.ts'
import { migrate } from './migrate.ts'
import { migrationStatus } from './status.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
const orders = { schema: 'waybill', service: 'orders' }

beforeAll(async () => {
  await migrate(db, orders)
})

test('a process on its own schema starts', async () => {
  await expect(assertSchema(db, orders)).resolves.toBeUndefined()
})

describe('a process refuses to start', () => {
  test('without a schema, and says how to make it', async () => {
    const start = assertSchema(db, { schema: 'missing', service: 'orders' })
    const what = 'Run: waybill migrate up --schema missing --service orders'
    await expect(start).rejects.toMatchObject({ code: 'SCHEMA_MISMATCH', message: expect.stringContaining(what) })
  })

  test('without a schema and a name, and makes up no name that the schema would be bound to', async () => {
    const what =
      'The schema "missing" is not in this database. Run: waybill migrate up --schema missing --service <name of this service>'
    await expect(assertSchema(db, { schema: 'missing' })).rejects.toMatchObject({ code: 'SCHEMA_MISMATCH', message: what })
  })

  test('on an older schema, and names what it lacks', async () => {
    await migrate(db, { schema: 'older', service: 'orders' })
    await db.query('delete from older.migration where number = (select max(number) from older.migration)')
    const start = assertSchema(db, { schema: 'older', service: 'orders' })
    await expect(start).rejects.toMatchObject({
      code: 'SCHEMA_MISMATCH',
      message: expect.stringMatching(/older than this process .* lacks 0\d+_.* Run: waybill migrate up/),
    })
  })

  test('on a newer breaking schema, but not on a newer compatible one', async () => {
    await migrate(db, { schema: 'newer', service: 'orders' })
    const later = `insert into newer.migration (number, name, checksum, breaking, applied_by) values ($1, $2, 'x', $3, '9.9.9')`
    await db.query(later, [998, '0998_add_column', false])
    await assertSchema(db, { schema: 'newer', service: 'orders' })
    await db.query(later, [999, '0999_drop_column', true])
    const start = assertSchema(db, { schema: 'newer', service: 'orders' })
    await expect(start).rejects.toMatchObject({
      code: 'SCHEMA_MISMATCH',
      message: expect.stringContaining('0999_drop_column, applied by waybill 9.9.9, is a breaking change. Upgrade'),
    })
    await expect(migrate(db, { schema: 'newer', service: 'orders' })).rejects.toMatchObject({ code: 'SCHEMA_MISMATCH' })
  })

  test('on a schema whose migrations are not those of this package', async () => {
    await migrate(db, { schema: 'changed', service: 'orders' })
    await db.query(`update changed.migration set checksum = 'other'`)
    await expect(assertSchema(db, { schema: 'changed', service: 'orders' })).rejects.toMatchObject({ code: 'MIGRATION_CHANGED' })
  })

  test('on the schema of another service', async () => {
    const start = assertSchema(db, { ...orders, service: 'billing' })
    const what = 'belongs to the service "orders", not to "billing". Give each service a schema of its own'
    await expect(start).rejects.toMatchObject({ code: 'WRONG_DEPLOYMENT', message: expect.stringContaining(what) })
  })

  test('on the database of another deployment', async () => {
    const start = assertSchema(db, { ...orders, deploymentId: 'staging' })
    await expect(start).rejects.toMatchObject({ code: 'WRONG_DEPLOYMENT', message: expect.stringContaining('set to "staging"') })
  })
})

test('a copy of the database is refused until it is adopted, and the adoption is on record', async () => {
  const original = await createTestDatabase(inject('postgres'))
  // A database can be a template only while nobody is connected to it; a pooler would stay.
  const direct = connect({ url: original.directUrl })
  await migrate(direct, orders)
  await direct.close()
  const copied = await createTestDatabase(inject('postgres'), { template: original.name })
  const copy = fromPg(copied.pool)

  const refusal = {
    code: 'WRONG_DEPLOYMENT',
    message: expect.stringContaining('waybill migrate adopt --schema waybill --service orders --yes'),
  }
  await expect(assertSchema(copy, orders)).rejects.toMatchObject(refusal)
  await expect(migrate(copy, orders)).rejects.toMatchObject(refusal)
  await expect(assertSchema(copy, { ...orders, deploymentId: 'production' })).rejects.toMatchObject({
    message: expect.stringContaining('migrate adopt --schema waybill --service orders --deployment-id production --yes'),
  })

  await expect(adoptDeployment(copy, { ...orders, service: 'billing', actor: 'ada' })).rejects.toMatchObject({
    code: 'WRONG_DEPLOYMENT',
  })
  const { before, deploymentId } = await adoptDeployment(copy, { ...orders, actor: 'ada' })
  expect(deploymentId).not.toBe(before.deploymentId)
  await assertSchema(copy, { ...orders, deploymentId })
  const { rows } = await copy.query('select actor, action, details from waybill.audit_log')
  expect(rows).toEqual([{ actor: 'ada', action: 'deployment.adopt', details: { before, deploymentId } }])
  await copied.drop()
  await original.drop()
})

test('a schema restored into the database it came from is a copy too', async () => {
  await migrate(db, { schema: 'restored', service: 'orders' })
  await db.query(
    'create table restored.again (like restored.deployment including all); insert into restored.again select * from restored.deployment',
  )
  await db.query('drop table restored.deployment; alter table restored.again rename to deployment')
  await expect(assertSchema(db, { schema: 'restored', service: 'orders' })).rejects.toThrow('is a copy or was restored')
})

test('where the cluster cannot be asked for its identity, the rest decides', async () => {
  const { deployment } = await migrationStatus(db, { schema: orders.schema })
  if (deployment === undefined) throw new Error('The schema has no stamp.')
  const blind = { ...deployment, identity: { ...deployment.identity, system: null } }
  expect(isCopy(blind)).toBe(false)
  expect(isCopy({ ...blind, identity: { ...blind.identity, database: '1' } })).toBe(true)
  expect(isCopy({ ...deployment, identity: { ...deployment.identity, system: 'other' } })).toBe(true)
})

test('a role without any grant is told which one it needs', async () => {
  const role = `stranger_${database.name}`
  await db.query(`create role ${role} login`)
  const url = new URL(database.url)
  url.username = role
  const stranger = connect({ url: url.href })
  const start = assertSchema(stranger, orders)
  await expect(start).rejects.toMatchObject({
    code: 'FORBIDDEN',
    message: expect.stringContaining('waybill_orders_app, waybill_orders_relay'),
  })
  await stranger.close()
  await db.query(`drop role ${role}`)
})
