import { afterAll, beforeAll, expect, test } from 'vitest'
import { accounts } from '../../test/setup/outbox-fixture.ts'
import { testDatabase } from '../../test/setup/test-database.ts'
import { doctorOutbox } from './doctor/outbox.ts'
import { listLanes, listOutbox, outboxStatus } from './status/outbox-status.ts'
import { connect, type Connection } from '../postgres/connect.ts'
import { fromPg } from '../postgres/adapters/from-pg.ts'
import { migrate } from '../postgres/schema/migrate.ts'
import { groupRole, groupRoles, type GroupRole } from '../postgres/schema/roles.ts'
import { transaction } from '../postgres/transaction/transaction.ts'
import { memory } from '../transport/memory/memory.ts'
import { createOutbox, event } from '../outbox/outbox.ts'
import { listParked, skipParked } from '../outbox/operate/parked.ts'
import { pauseOutbox, resumeOutbox } from '../outbox/operate/pause.ts'
import { createRelay } from '../outbox/relay/relay.ts'
import { createOutboxRetention } from '../outbox/operate/retention.ts'

const database = await testDatabase()
const admin = fromPg(database.pool)
const schema = `s${database.name}`
const outbox = createOutbox({ schema })
const logins = new Map<GroupRole, Connection>()
const denied = { code: '42501' }

beforeAll(async () => {
  await migrate(admin, { schema, service: 'bank', roles: true })
  for (const role of groupRoles) {
    const login = `login_${groupRole({ schema, service: 'bank' }, role)}`
    await admin.query(`create role ${login} login in role ${groupRole({ schema, service: 'bank' }, role)}`)
    const url = new URL(database.url)
    url.username = login
    logins.set(role, connect({ url: url.href, max: 4 }))
  }
})

afterAll(async () => {
  for (const login of logins.values()) await login.close()
  await admin.query(`drop schema if exists ${schema} cascade`)
  for (const role of groupRoles) {
    for (const name of [`login_${groupRole({ schema, service: 'bank' }, role)}`, groupRole({ schema, service: 'bank' }, role)])
      await admin.query(`drop owned by ${name}; drop role ${name}`)
  }
})

function as(role: GroupRole): Connection {
  const login = logins.get(role)
  if (login === undefined) throw new Error(`Nobody logs in as ${role}.`)
  return login
}

function add(role: GroupRole, id: string): Promise<unknown> {
  return transaction(as(role), (tx) => outbox.add(tx, accounts.Deposited, id, { amount: 1 }))
}

test('app and consumer add events, one or many, and can do nothing else to the outbox', async () => {
  for (const role of ['app', 'consumer'] as const) {
    await add(role, role)
    const source = { name: 'handler', eventId: '018f0000-0000-7000-8000-000000000000', ordinal: role.length }
    const more = ['a', 'b'].map((id) =>
      event(
        accounts.Deposited,
        `${role}-${id}`,
        { amount: 2 },
        { source: { ...source, ordinal: source.ordinal + id.length + id.charCodeAt(0) } },
      ),
    )
    await transaction(as(role), (tx) => outbox.addMany(tx, more))
    await expect(as(role).query(`select from ${schema}.outbox`)).rejects.toMatchObject(denied)
    await expect(as(role).query(`delete from ${schema}.outbox_dispatch`)).rejects.toMatchObject(denied)
    await expect(as(role).query(`insert into ${schema}.outbox (id) values (gen_random_uuid())`)).rejects.toMatchObject(denied)
  }
})

test('relay publishes, holds, parks and removes, but cannot add, forge or change an event', async () => {
  await add('app', 'bad')
  await add('app', 'bad')
  await add('app', 'good')
  const broker = memory({ rejects: ({ attributes, body }) => attributes['aggregate_id'] === 'bad' && body.byteLength > 0 })
  const db = as('relay')
  await createRelay({ db, outbox, transport: broker, maxAttempts: 1 }).once()
  expect(broker.published.map(({ attributes }) => attributes['aggregate_id'])).toContain('good')
  expect(await listParked(admin, outbox)).toHaveLength(1)
  const retention = createOutboxRetention({ db, outbox, eventsMs: 0, receiptsMs: 0, sourcesMs: 0 })
  await retention.pass(new AbortController().signal)
  expect((await admin.query(`select from ${schema}.outbox`)).rowCount).toBe(2)
  await createRelay({ db, outbox, transport: broker, retain: 'none', receipts: false }).once()

  await expect(add('relay', 'x')).rejects.toMatchObject(denied)
  await expect(db.query(`update ${schema}.outbox set topic = 'x'`)).rejects.toMatchObject(denied)
  await expect(db.query(`update ${schema}.outbox_dispatch set event_id = gen_random_uuid()`)).rejects.toMatchObject(denied)
  await expect(db.query(`select ${schema}.outbox_set_dispatching(false)`)).rejects.toMatchObject(denied)
  await expect(
    db.query(`insert into ${schema}.outbox_pause (aggregate_type, reason, paused_by) values ('x', '', '')`),
  ).rejects.toMatchObject(denied)
})

test('owner does what operators do', async () => {
  const db = as('owner')
  expect((await skipParked({ db, outbox, filter: { all: true }, actor: 'ada' })).events).toHaveLength(1)
  expect(await pauseOutbox({ db, outbox, aggregateType: 'account', actor: 'ada' })).toBe(true)
  expect(await resumeOutbox({ db, outbox, aggregateType: 'account', actor: 'ada' })).toBe(0)
  await db.query(`select ${schema}.outbox_change_lanes(32)`)
  await db.query(`select ${schema}.outbox_set_dispatching(false); select ${schema}.outbox_set_dispatching(true)`)
  expect((await doctorOutbox(db, outbox)).map(({ problem }) => problem)).not.toContain('exposed')
})

test('readonly sees everything and changes nothing', async () => {
  const db = as('readonly')
  expect(await listLanes(db, outbox)).toHaveLength(32)
  expect((await outboxStatus(db, outbox)).dispatching).toBe(true)
  expect((await listOutbox(db, outbox, { aggregateType: 'account', aggregateId: 'bad' })).length).toBeGreaterThan(0)
  await doctorOutbox(db, outbox)
  await expect(skipParked({ db, outbox, filter: { all: true }, actor: 'eve' })).resolves.toEqual({ events: [], refused: [] })
  await expect(pauseOutbox({ db, outbox, aggregateType: 'account', actor: 'eve' })).rejects.toMatchObject(denied)
})
