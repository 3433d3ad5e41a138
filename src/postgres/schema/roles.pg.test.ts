import { afterAll, beforeAll, describe, expect, test } from 'vitest'

import { testDatabase } from '../../../test/setup/test-database.ts'
import { connect, type Connection } from '../connect.ts'
import { assertSchema } from './deployment.ts'
import { fromPg } from '../adapters/from-pg.ts'
import { pendingSql } from './export.ts'
import { parseMigration, shippedMigrations } from './migration-files.ts'
import { migrate } from './migrate.ts'
import { functionGrants, groupRole, groupRoles, tableGrants, type GrantedRole, type GroupRole, type Privilege } from './roles.ts'
import { sqlState } from '../query/sql-state.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
const schema = `s${database.name}`
const names = { schema, service: 'orders' }
const grantedRoles = groupRoles.filter((role) => role !== 'owner')
const privileges = ['select', 'insert', 'update', 'delete', 'truncate'] as const

/** Logins by what they are a member of; `stranger` is a member of nothing, so it is PUBLIC. */
const logins = new Map<string, Connection>()
const outsiders = ['stranger', 'anon', 'authenticated']
const madeByUs: string[] = []

beforeAll(async () => {
  // As a provider with a REST layer has them, rights to everything that is made included.
  for (const role of ['anon', 'authenticated']) await makeRole(role, 'login')
  await db.query(
    `create schema ${schema}; alter default privileges in schema ${schema} grant all on tables to anon, authenticated;`,
  )
  await db.query(`grant usage on schema ${schema} to anon, authenticated`)
  await migrate(db, { ...names, roles: true })
  for (const role of groupRoles) {
    await makeRole(`login_${groupRole(names, role)}`, `login in role ${groupRole(names, role)}`)
    logins.set(role, connectAs(`login_${groupRole(names, role)}`))
  }
  await makeRole(`stranger_${schema}`, 'login')
  logins.set('stranger', connectAs(`stranger_${schema}`))
  for (const role of ['anon', 'authenticated']) logins.set(role, connectAs(role))
})

afterAll(async () => {
  for (const login of logins.values()) await login.close()
  await db.query(`drop schema if exists ${schema} cascade`)
  for (const role of [...madeByUs, ...groupRoles.map((each) => groupRole(names, each))]) {
    await db.query(`drop owned by ${role}; drop role ${role}`)
  }
})

async function makeRole(role: string, attributes: string): Promise<void> {
  const { rows } = await db.query('select from pg_roles where rolname = $1', [role])
  if (rows.length > 0) return
  await db.query(`create role ${role} ${attributes}`)
  madeByUs.push(role)
}

function connectAs(role: string): Connection {
  const url = new URL(database.url)
  url.username = role
  return connect({ url: url.href, max: 1 })
}

/** Whether a login may do it: it does it, inside a transaction that is rolled back. */
async function may(who: string, statement: string): Promise<boolean> {
  const login = logins.get(who)
  if (login === undefined) throw new Error(`Nobody logs in as ${who}.`)
  try {
    await login.query(`begin; ${statement}; rollback`)
    return true
  } catch (error) {
    await login.query('rollback')
    // A view that nobody can write to (55000), a table that is not one (42809).
    if (['42501', '55000', '42809'].includes(sqlState(error) ?? '')) return false
    // The right is checked before the row is: any other refusal means that the right is there.
    if (/^(22|23|0A)/.test(sqlState(error) ?? '')) return true
    throw error
  }
}

function attempt(privilege: (typeof privileges)[number], table: string, columns: readonly string[]): string {
  const relation = `${schema}.${table}`
  if (privilege === 'select') return `select ${columns.join(', ')} from ${relation} limit 1`
  if (privilege === 'insert') {
    return `insert into ${relation} (${columns.join(', ')}) overriding system value values (${columns.map(() => 'null').join(', ')})`
  }
  if (privilege === 'update') {
    return `update ${relation} set ${columns.map((column) => `${column} = default`).join(', ')} where false`
  }
  return privilege === 'delete' ? `delete from ${relation} where false` : `truncate ${relation}`
}

async function hasOnSomeColumn(role: GrantedRole, privilege: string, table: string): Promise<boolean> {
  const check = ['delete', 'truncate'].includes(privilege) ? 'has_table_privilege' : 'has_any_column_privilege'
  const { rows } = await db.query(`select ${check}($1::text, $2::text, $3::text) as may`, [
    groupRole(names, role),
    `${schema}.${table}`,
    privilege,
  ])
  return (rows[0] as { may: boolean }).may
}

async function columnsOf(table: string): Promise<string[]> {
  const found = await db.query(
    `select attname::text as name from pg_attribute where attrelid = $1::text::regclass and attnum > 0 and not attisdropped and attgenerated = '' order by attnum`,
    [`${schema}.${table}`],
  )
  return (found.rows as { name: string }[]).map(({ name }) => name)
}

/** The columns that a line of the list gives a privilege on: all, some or none. */
function granted(given: readonly Privilege[], privilege: string, columns: readonly string[]): readonly string[] {
  if ((given as readonly string[]).includes(privilege)) return columns
  const some = given.find((each) => each.startsWith(`${privilege} (`))
  return some === undefined
    ? []
    : some
        .slice(privilege.length + 2, -1)
        .split(',')
        .map((column) => column.trim())
}

test('the list of grants names every table, view and function of the schema, and nothing else', async () => {
  const relations = await db.query(
    `select relname::text as name from pg_class where relnamespace = $1::text::regnamespace and relkind in ('r', 'p', 'v', 'm')`,
    [schema],
  )
  const functions = await db.query(
    `select distinct proname::text as name from pg_proc where pronamespace = $1::text::regnamespace`,
    [schema],
  )
  const sorted = (found: readonly unknown[]): string[] => (found as { name: string }[]).map(({ name }) => name).toSorted()
  expect(Object.keys(tableGrants).toSorted(), 'add a line to tableGrants in roles.ts').toEqual(sorted(relations.rows))
  expect(Object.keys(functionGrants).toSorted(), 'add a line to functionGrants in roles.ts').toEqual(sorted(functions.rows))
})

describe.each(Object.keys(tableGrants))('%s', (table) => {
  test.each(grantedRoles)('lets %s do what is listed and nothing else', async (role) => {
    const columns = await columnsOf(table)
    const given = tableGrants[table]?.[role] ?? []
    for (const privilege of privileges) {
      const open = granted(given, privilege, columns)
      const whole = open.length === columns.length
      // All columns at once where all are open, one by one where some are; where none is, the first and the catalogue.
      const tried = whole ? [columns] : open.length > 0 ? columns.map((column) => [column]) : [columns.slice(0, 1)]
      for (const some of tried) {
        const what = `${role} ${privilege} ${table} (${some.join(', ')})`
        const expected = some.every((column) => open.includes(column))
        expect(`${what}: ${await may(role, attempt(privilege, table, some))}`).toBe(`${what}: ${expected}`)
      }
      expect(await hasOnSomeColumn(role, privilege, table), `${role} ${privilege} ${table}`).toBe(open.length > 0)
    }
  })

  test.each(outsiders)('lets %s do nothing', async (who) => {
    const columns = await columnsOf(table)
    for (const privilege of privileges) {
      expect(`${privilege}: ${await may(who, attempt(privilege, table, columns))}`).toBe(`${privilege}: false`)
    }
  })
})

test('functions can be executed by those listed and by nobody else', async () => {
  const { rows } = await db.query(
    `select p.proname::text as name, p.oid::regprocedure::text as signature from pg_proc p where p.pronamespace = $1::text::regnamespace`,
    [schema],
  )
  for (const { name, signature } of rows as { name: string; signature: string }[]) {
    for (const who of [...groupRoles, ...outsiders]) {
      const { rows: answer } = await db.query('select has_function_privilege($1::text, $2::text, $3::text) as may', [
        groupRoles.includes(who as GroupRole)
          ? `login_${groupRole(names, who as GroupRole)}`
          : who.replace('stranger', `stranger_${schema}`),
        signature,
        'execute',
      ])
      const listed = who === 'owner' || (functionGrants[name] ?? []).includes(who as GrantedRole)
      expect(`${who} ${name}: ${(answer[0] as { may: boolean }).may}`).toBe(`${who} ${name}: ${listed}`)
    }
  }
})

test.each(groupRoles)('%s can check at start whether it may work here', async (role) => {
  const login = logins.get(role)
  if (login === undefined) throw new Error(`Nobody logs in as ${role}.`)
  await assertSchema(login, names)
  expect((await migrate(login, names)).applied).toEqual([])
})

test('the owner can change the schema, the others cannot', async () => {
  for (const role of groupRoles) {
    expect(`${role}: ${await may(role, `create table ${schema}.extra (id int)`)}`).toBe(`${role}: ${role === 'owner'}`)
    expect(`${role}: ${await may(role, `alter table ${schema}.operation add column extra int`)}`).toBe(
      `${role}: ${role === 'owner'}`,
    )
  }
})

test('a grant that is not on the list is gone after the next run, and a second run changes nothing', async () => {
  await db.query(`grant all on ${schema}.audit_log to ${groupRole(names, 'app')}, public`)
  expect(await may('app', `select from ${schema}.audit_log`)).toBe(true)
  await migrate(db, { ...names, roles: true })
  expect(await may('app', `select from ${schema}.audit_log`)).toBe(false)
  expect(await may('stranger', `select from ${schema}.audit_log`)).toBe(false)
})

test('a later migration is handed to the owner and closed to everybody, without being asked for roles again', async () => {
  const next = shippedMigrations().length + 1
  const text =
    'create table :schema.added (id int); create function :schema.added_too() returns int language sql as $$select 1$$;'
  const added = parseMigration(`${String(next).padStart(4, '0')}_add_more.sql`, text)
  expect(await migrate(db, { ...names, migrations: [...shippedMigrations(), added] })).toMatchObject({ roles: true })
  expect(await may('owner', `alter table ${schema}.added add column more int`)).toBe(true)
  for (const who of ['app', 'readonly', ...outsiders]) {
    expect(`${who}: ${await may(who, `select from ${schema}.added`)}`).toBe(`${who}: false`)
    expect(`${who}: ${await may(who, `select ${schema}.added_too()`)}`).toBe(`${who}: false`)
  }
})

test('an older package leaves the roles of a newer one as they are', async () => {
  // What the list of the newer one grants. This package does not know the migration.
  await db.query(`grant select on ${schema}.added to ${groupRole(names, 'app')}`)
  const newer = [expect.stringContaining('_add_more')]
  expect(await pendingSql(db, { ...names, roles: true })).toEqual({ pending: [], newer, sql: '' })
  expect(await migrate(db, { ...names, roles: true })).toMatchObject({ applied: [], roles: true, newer })
  expect(await may('app', `select from ${schema}.added`)).toBe(true)
})

test('an administrator who is no superuser can make the roles', async () => {
  const admin = `admin_${schema}`
  await makeRole(admin, 'login createrole')
  await db.query(`grant create on database ${database.name} to ${admin}`)
  const login = connectAs(admin)
  const managed = `m${database.name}`
  expect(await migrate(login, { schema: managed, service: 'orders', roles: true })).toMatchObject({ roles: true })
  expect(await migrate(login, { schema: managed, service: 'orders', roles: true })).toMatchObject({ applied: [], roles: true })
  await login.close()
  await db.query(`drop schema ${managed} cascade`)
  for (const role of groupRoles) await db.query(`drop role ${groupRole({ schema: managed, service: 'orders' }, role)}`)
})
