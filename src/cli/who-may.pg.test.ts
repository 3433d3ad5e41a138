import { afterAll, beforeAll, expect, test } from 'vitest'
import { runLine, type Ended } from '../../test/setup/run-line.ts'
import { testDatabase } from '../../test/setup/test-database.ts'
import { fromPg } from '../postgres/adapters/from-pg.ts'
import { migrate } from '../postgres/schema/migrate.ts'
import { groupRole, groupRoles } from '../postgres/schema/roles.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
const schema = `s${database.name}`
const names = { schema, service: 'orders' }
const logins = { app: `app_${schema}`, owner: `operator_${schema}` } as const

beforeAll(async () => {
  await migrate(db, { ...names, roles: true })
  for (const [role, login] of Object.entries(logins))
    await db.query(`create role ${login} login in role ${groupRole(names, role as keyof typeof logins)}`)
})

afterAll(async () => {
  await db.query(`drop schema ${schema} cascade`)
  for (const role of [...Object.values(logins), ...groupRoles.map((each) => groupRole(names, each))])
    await db.query(`drop owned by ${role}; drop role ${role}`)
})

function as(login: string, line: string): Promise<Ended> {
  const url = new URL(database.url)
  url.username = login
  return runLine(line, { folder: import.meta.dirname, env: { DATABASE_URL: url.href } })
}

test('who may not operate is told what Postgres refused, and who may; a member of the owner may', async () => {
  const pause = `outbox pause --stream account --schema ${schema}`
  const refused = await as(logins.app, pause)
  expect(refused).toMatchObject({ code: 1, out: '' })
  const role = (of: string): string => `${schema}_<service>_${of}`
  expect(refused.err).toBe(
    `This database role may not do that: permission denied for table outbox. Operators connect as a member of ${role('owner')}, relays of ${role('relay')}, consumers of ${role('consumer')}; payloads, and who asked for what, are for members of ${role('payloads')} (made by: waybill migrate up --roles).\n`,
  )
  expect(JSON.parse((await as(logins.app, `${pause} --json`)).err)).toMatchObject({ error: { code: 'FORBIDDEN' } })
  expect(await as(logins.owner, pause)).toMatchObject({ code: 0, err: '' })
})

test('who may not migrate is told who may make schemas', async () => {
  const { code, err } = await as(logins.app, 'migrate up --service orders --schema other')
  expect(code).toBe(1)
  expect(err).toContain(`permission denied for database ${database.name}. Use a role that may create schemas`)
  const again = `migrate up --roles --service orders --schema ${schema}`
  expect((await as(logins.app, again)).err).toContain(`a member of ${groupRole(names, 'owner')}`)
  expect(await as(logins.owner, again)).toMatchObject({ code: 0, err: '' })
})
