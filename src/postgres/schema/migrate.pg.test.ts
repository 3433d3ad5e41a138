import { describe, expect, test } from 'vitest'

import { testDatabase } from '../../../test/setup/test-database.ts'
import { systemClock } from '../../core/service/clock.ts'
import { fromPg } from '../adapters/from-pg.ts'
import { assertSchema } from './deployment.ts'
import { pendingSql } from './export.ts'
import { migrate } from './migrate.ts'
import { parseMigration, shippedMigrations, type Migration } from './migration-files.ts'
import { migrationStatus, pendingMigrations } from './status.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
const names = shippedMigrations().map((migration) => migration.name)

/** The shipped migrations and some more behind them, each given as its text. */
function withMore(...texts: readonly string[]): readonly Migration[] {
  const count = shippedMigrations().length
  const more = texts.map((text, index) => parseMigration(`${String(count + index + 1).padStart(4, '0')}_add_more.sql`, text))
  return [...shippedMigrations(), ...more]
}

async function exists(relation: string): Promise<boolean> {
  const { rows } = await db.query('select to_regclass($1::text) is not null as found', [relation])
  return (rows[0] as { found: boolean }).found
}

test('a first run applies everything and binds the schema, and a second one does nothing', async () => {
  const first = await migrate(db, { schema: 'first_run', service: 'orders' })
  expect(first).toEqual({ applied: names, deploymentId: expect.stringMatching(/^[0-9a-f-]{36}$/), roles: false, newer: [] })
  expect(await migrate(db, { schema: 'first_run', service: 'orders' })).toEqual({ ...first, applied: [] })
  const status = await migrationStatus(db, { schema: 'first_run' })
  expect(status).toMatchObject({ pending: [], deployment: { service: 'orders', deploymentId: first.deploymentId } })
  expect(status.deployment?.stampedOn).toEqual(status.deployment?.identity)
})

test('a deployment id that is given is the one that is stamped', async () => {
  const { deploymentId } = await migrate(db, { schema: 'pinned', service: 'orders', deploymentId: 'orders-production' })
  expect(deploymentId).toBe('orders-production')
})

test('many runs at once apply each migration once, and all succeed', async () => {
  const runs = await Promise.all(Array.from({ length: 8 }, () => migrate(db, { schema: 'crowd', service: 'orders' })))
  expect(runs.flatMap(({ applied }) => applied)).toEqual(names)
  expect(new Set(runs.map(({ deploymentId }) => deploymentId)).size).toBe(1)
})

test('a migration that fails leaves nothing of its run behind', async () => {
  const migrations = withMore('create table :schema.half (id int);', 'create table :schema.half (id int);')
  await expect(migrate(db, { schema: 'broken', service: 'orders', migrations })).rejects.toThrow('already exists')
  expect(await migrationStatus(db, { schema: 'broken' })).toMatchObject({ present: false, installed: false })
})

test('an applied migration that has changed since is refused', async () => {
  await migrate(db, { schema: 'changed', service: 'orders' })
  await db.query(`update changed.migration set checksum = 'other' where number = 1`)
  const again = migrate(db, { schema: 'changed', service: 'orders' })
  await expect(again).rejects.toMatchObject({
    code: 'MIGRATION_CHANGED',
    message: expect.stringContaining('Use a released package'),
  })
})

test('a schema that an unreleased package made is refused with the way out of it, and is left as it is', async () => {
  const unreleased = { schema: 'unreleased', service: 'orders' }
  await migrate(db, unreleased)
  await db.query(`update unreleased.migration set name = '0002_create_outbox', checksum = 'other' where number = 2`)
  await db.query(`insert into unreleased.migration (number, name, checksum, breaking, applied_by)
                  values (31, '0031_close_records', 'other', true, '0.1.0')`)
  const applied = async (): Promise<unknown> => (await db.query('select * from unreleased.migration order by number')).rows
  const before = await applied()
  const refusal = {
    code: 'MIGRATION_CHANGED',
    message: expect.stringMatching(
      /^An unreleased version of Waybill made the schema "unreleased" \(it has 0002_create_outbox where waybill .+ has 0002_create_aggregates\).+ drop it and run waybill migrate up, or, .+ migrate up --schema <another name>/,
    ),
  }
  await expect(migrate(db, unreleased)).rejects.toMatchObject(refusal)
  await expect(pendingSql(db, unreleased)).rejects.toMatchObject(refusal)
  await expect(assertSchema(db, unreleased)).rejects.toMatchObject(refusal)
  expect(await applied()).toEqual(before)
})

describe('a schema is refused', () => {
  test.each([
    ['public', 'everybody who reaches the database may see it'],
    ['pg_catalog', 'belongs to Postgres'],
    ['x"; drop table orders; --', 'cannot be used as an SQL name'],
  ])('%s, because of its name', async (schema, reason) => {
    const refused = migrate(db, { schema, service: 'orders' })
    await expect(refused).rejects.toMatchObject({ code: 'INVALID_OPTION', message: expect.stringContaining(reason) })
  })

  test('when it holds the tables of others', async () => {
    await db.query('create schema shop; create table shop.orders (id int)')
    await expect(migrate(db, { schema: 'shop', service: 'orders' })).rejects.toMatchObject({ code: 'REFUSED' })
  })

  test('when it is of another service', async () => {
    await migrate(db, { schema: 'owned', service: 'orders' })
    await expect(migrate(db, { schema: 'owned', service: 'billing' })).rejects.toMatchObject({ code: 'WRONG_DEPLOYMENT' })
  })
})

test('an older package changes nothing in the schema of a newer one, even when it is asked for roles', async () => {
  const older = { schema: 'ahead', service: 'orders', roles: true }
  await migrate(db, { ...older, roles: false, migrations: withMore('create table :schema.shown (id int);') })
  await db.query('grant select on ahead.shown to public')
  expect(await migrate(db, older)).toMatchObject({ applied: [], roles: false, newer: [expect.stringContaining('_add_more')] })
  const { rows } = await db.query(`select relacl::text like '%=r/%' as open from pg_class where oid = 'ahead.shown'::regclass`)
  expect(rows).toEqual([{ open: true }])
})

test('an empty schema that an administrator made before is used', async () => {
  await db.query('create schema prepared')
  expect((await migrate(db, { schema: 'prepared', service: 'orders' })).applied).toEqual(names)
})

describe('a migration that cannot run in a transaction', () => {
  const index = '-- no-transaction\ncreate index concurrently if not exists late_idx on :schema.late (id);'
  const migrations = withMore('create table :schema.late (id int);', index, 'create table :schema.later (id int);')

  test('runs outside one, in its turn, while others wait', async () => {
    const options = { schema: 'alone', service: 'orders', migrations }
    const runs = await Promise.all(Array.from({ length: 4 }, () => migrate(db, options)))
    expect(runs.flatMap(({ applied }) => applied).toSorted()).toEqual(migrations.map(({ name }) => name).toSorted())
    expect(await exists('alone.late_idx')).toBe(true)
    expect(await exists('alone.later')).toBe(true)
  })

  test('is run again after it was cut off, and the broken index it left is replaced', async () => {
    const unique = index.replace('create index', 'create unique index')
    const twice = withMore('create table :schema.late (id int); insert into :schema.late values (1), (1);', unique)
    const options = { schema: 'resumed', service: 'orders', migrations: twice }
    await expect(migrate(db, options)).rejects.toThrow('late_idx')
    expect(await exists('resumed.late_idx')).toBe(true)
    expect(await pendingMigrations(db, { schema: 'resumed', migrations: twice })).toMatchObject([{ number: twice.length }])

    await db.query('delete from resumed.late')
    expect((await migrate(db, options)).applied).toEqual([twice.at(-1)?.name])
    const { rows } = await db.query(`select indisvalid from pg_index where indexrelid = 'resumed.late_idx'::regclass`)
    expect(rows).toEqual([{ indisvalid: true }])
  })
})

test('the wait for another process that migrates has an end', async () => {
  await migrate(db, { schema: 'stuck', service: 'orders' })
  const holder = await database.pool.connect()
  await holder.query('begin')
  await holder.query('select from stuck.migration where number = 1 for update')
  const waiting = migrate(db, { schema: 'stuck', service: 'orders', waitMs: 0, migrations: withMore('select 1;') })
  await expect(waiting).rejects.toMatchObject({ code: 'TIMEOUT' })
  await holder.query('rollback')
  holder.release()
})

test('the wait ends when its signal aborts, and says that nothing was changed', async () => {
  const holder = await database.pool.connect()
  await holder.query('begin')
  await holder.query('create schema stopped')
  const stop = new AbortController()
  // The first sleep is the sign that it waits.
  const clock = { ...systemClock, sleep: () => Promise.resolve(stop.abort()) }
  const waiting = migrate(db, { schema: 'stopped', service: 'orders', signal: stop.signal, clock })
  await expect(waiting).rejects.toMatchObject({ code: 'ABORTED', message: expect.stringContaining('Nothing was changed') })
  await holder.query('rollback')
  holder.release()
})

test('a migration that does not get its lock says that nothing was changed, and can be run again', async () => {
  await migrate(db, { schema: 'busy', service: 'orders' })
  const migrations = withMore('alter table :schema.outbox_dispatch add column extra int;')
  const holder = await database.pool.connect()
  await holder.query('begin')
  await holder.query('lock table busy.outbox_dispatch in row exclusive mode')
  const waiting = migrate(db, { schema: 'busy', service: 'orders', migrations })
  await expect(waiting).rejects.toMatchObject({
    code: 'TIMEOUT',
    message: expect.stringContaining('Nothing was changed. Let it end'),
  })
  await holder.query('rollback')
  holder.release()
  expect((await migrate(db, { schema: 'busy', service: 'orders', migrations })).applied).toEqual([migrations.at(-1)?.name])
})
