import { afterAll, beforeAll, expect, test } from 'vitest'
import { testDatabase } from '../../test/setup/test-database.ts'
import { connect, type Connection } from '../postgres/connect.ts'
import { fromPg } from '../postgres/adapters/from-pg.ts'
import { migrate } from '../postgres/schema/migrate.ts'
import { groupRole, groupRoles } from '../postgres/schema/roles.ts'
import { createDashboard } from './dashboard.ts'

const database = await testDatabase()
const admin = fromPg(database.pool)
const schema = `s${database.name}`
const roles = ['readonly', 'owner'] as const
const logins = new Map<string, Connection>()

beforeAll(async () => {
  await migrate(admin, { schema, service: 'shop', roles: true })
  for (const role of roles) {
    const login = `login_${groupRole({ schema, service: 'shop' }, role)}`
    await admin.query(`create role ${login} login in role ${groupRole({ schema, service: 'shop' }, role)}`)
    const url = new URL(database.url)
    url.username = login
    logins.set(role, connect({ url: url.href, max: 2 }))
  }
})

afterAll(async () => {
  for (const login of logins.values()) await login.close()
  await admin.query(`drop schema ${schema} cascade`)
  for (const role of [
    ...roles.map((each) => `login_${groupRole({ schema, service: 'shop' }, each)}`),
    ...groupRoles.map((each) => groupRole({ schema, service: 'shop' }, each)),
  ])
    await admin.query(`drop owned by ${role}; drop role ${role}`)
})

async function asked(
  role: (typeof roles)[number],
  place: string,
  body?: object,
): Promise<{ readonly status: number; readonly body: unknown }> {
  const db = logins.get(role)
  if (db === undefined) throw new Error(`Nobody logs in as ${role}.`)
  const { handler } = createDashboard({
    services: [{ name: 'shop', db, schema }],
    authorize: () => ({ name: 'ada', mayAct: true }),
    origin: 'http://ops',
  })
  const seal = 'a'.repeat(43)
  const headers = { origin: 'http://ops', 'x-waybill-seal': seal, cookie: `waybill_seal=${seal}` }
  const init = body === undefined ? {} : { method: 'POST', headers, body: JSON.stringify(body) }
  const response = await handler(new Request(`http://ops/api/${place}`, init))
  return { status: response.status, body: await response.json() }
}

test.each(['parked?service=shop', 'letters?service=shop', 'doctor?service=shop'])(
  'a role that may only read sees %s',
  async (place) => {
    expect((await asked('readonly', place)).status).toBe(200)
  },
)

test('a role that may only read sees the overview, and what it may not do is refused with who may', async () => {
  expect(await asked('readonly', 'overview')).toMatchObject({ body: { services: [{ status: { service: 'shop' } }] } })
  expect(await asked('readonly', 'trace?id=r1&principal=ann')).toMatchObject({ status: 404 })
  expect(await asked('readonly', 'trace?id=r1')).toMatchObject({
    status: 403,
    body: { error: { code: 'FORBIDDEN', message: expect.stringContaining(`${schema}_<service>_payloads`) } },
  })
  const pause = { service: 'shop', aggregateType: 'video' }
  expect(await asked('readonly', 'actions/pause-stream', pause)).toMatchObject({
    status: 403,
    body: { error: { code: 'FORBIDDEN', message: expect.stringContaining(`a member of ${schema}_<service>_owner`) } },
  })
  expect(await asked('owner', 'actions/pause-stream', pause)).toEqual({
    status: 200,
    body: { text: 'Paused: stream video.', done: true },
  })
})
