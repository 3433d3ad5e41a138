import { afterAll, afterEach, beforeAll, describe, expect, inject, test } from 'vitest'

import { runLine } from '../../../test/setup/run-line.ts'
import { commandId } from '../../command/model/request-ids.ts'
import { showDeadLetter } from '../../consumer/operate/dead-letters.ts'
import { doctorRoles } from '../../ops/doctor/roles.ts'
import { trace } from '../../ops/trace/trace.ts'
import { createTestDatabase, type TestDatabase } from '../../testing/servers/test-database.ts'
import { connect, type Connection } from '../connect.ts'
import type { Database } from '../query/database.ts'
import { fromPg } from '../adapters/from-pg.ts'
import { migrate } from './migrate.ts'
import { formerGroupRole, groupRole, groupRoles, type GroupRole } from './roles.ts'
import { transaction } from '../transaction/transaction.ts'

/** Two services with the default schema, each in a database of its own, on one server. */
interface Side {
  readonly database: TestDatabase
  readonly names: { readonly schema: string; readonly service: string }
}

const sides: Side[] = []
const connections: Connection[] = []
const made: string[] = []

/** Names that no other run of this file on the same server has. */
async function side({ ownSchema = false } = {}): Promise<Side> {
  const database = await createTestDatabase(inject('postgres'))
  const one = { database, names: { schema: ownSchema ? `s${database.name}` : 'waybill', service: database.name } }
  sides.push(one)
  return one
}

const dbOf = ({ database }: Side): Database => fromPg(database.pool)

async function login(of: Side, role: GroupRole, attributes = 'login'): Promise<string> {
  const name = `login_${groupRole(of.names, role)}`.slice(0, 63)
  await make(of, name, `${attributes} in role ${groupRole(of.names, role)}`)
  return name
}

async function make(of: Side, name: string, attributes: string): Promise<void> {
  await of.database.pool.query(`create role ${name} ${attributes}`)
  made.push(name)
}

/** Past a pooler, which keeps open what is closed to new sessions. */
function as(user: string, to: Side): Connection {
  const url = new URL(to.database.url)
  url.host = new URL(inject('postgres').directUrl).host
  url.username = user
  const db = connect({ url: url.href, max: 1 })
  connections.push(db)
  return db
}

/** Ends what tests left, and takes their roles off the server. */
afterAll(async () => {
  for (const each of connections) await each.close()
  for (const { database } of sides) {
    await database.pool.query('drop schema if exists waybill cascade')
    for (const role of made) await database.pool.query(`drop owned by ${role}`).catch(() => undefined)
  }
  const [first] = sides
  for (const { names } of sides) {
    for (const role of groupRoles) {
      await first?.database.pool.query(`drop role if exists ${groupRole(names, role)}`).catch(() => undefined)
      for (const { database } of sides)
        await database.pool.query(`drop owned by ${groupRole(names, role)}`).catch(() => undefined)
      await first?.database.pool.query(`drop role if exists ${groupRole(names, role)}`)
    }
  }
  for (const role of made) await first?.database.pool.query(`drop role if exists ${role}`)
  for (const { database } of sides) await database.drop()
})

describe('two services in two databases of one server, with the default schema', () => {
  let a: Side
  let b: Side

  beforeAll(async () => {
    ;[a, b] = [await side(), await side()]
    for (const each of [a, b]) await migrate(dbOf(each), { ...each.names, roles: true })
    for (const role of groupRoles) await login(a, role)
  })

  test.each(groupRoles)("%s of one can do nothing in the other's database", async (role) => {
    const there = as(`login_${groupRole(a.names, role)}`.slice(0, 63), b)
    const attempts = [
      `select waybill.add_event('payroll.events', 'salary', 'ceo', 'SalaryRaised', '{}'::bytea)`,
      'select aggregate_id from waybill.outbox',
      'select from waybill.migration',
      'begin; lock table waybill.operation in share update exclusive mode',
      'select from waybill.transport_topic for share',
      `insert into waybill.audit_log (actor, action) values ('me', 'x')`,
      'drop schema waybill cascade',
    ]
    for (const attempt of attempts) {
      await expect(there.query(attempt)).rejects.toMatchObject({ code: '42501' })
      await there.query('rollback')
    }
  })

  test('no right of any role of one is on anything in the other', async () => {
    const { rows } = await b.database.pool.query(
      `select r.rolname from pg_shdepend s join pg_roles r on r.oid = s.refobjid
        where s.refclassid = 'pg_authid'::regclass and s.dbid = (select oid from pg_database where datname = current_database()) and r.rolname = any ($1::text[])`,
      [groupRoles.map((role) => groupRole(a.names, role))],
    )
    expect(rows).toEqual([])
  })

  test('the doctor finds a login that reaches both, at both, and says that the database is open to all', async () => {
    expect(await doctorRoles(dbOf(a), 'waybill')).toEqual({ findings: [], openToPublic: a.database.name })
    const both = `both_${a.database.name}`
    await make(a, both, `login in role ${groupRole(a.names, 'relay')}, ${groupRole(b.names, 'readonly')}`)
    for (const [here, other] of [
      [a, b],
      [b, a],
    ] as const) {
      const { findings } = await doctorRoles(dbOf(here), 'waybill')
      expect(findings).toMatchObject([
        { problem: 'role-crosses', text: expect.stringMatching(new RegExp(`${both}.*${other.database.name}`)) },
        { problem: 'role-foreign', text: expect.stringMatching(new RegExp(`${both}.*service ${other.names.service}`)) },
      ])
    }
    await a.database.pool.query(`revoke ${groupRole(b.names, 'readonly')} from ${both}`)
    expect((await doctorRoles(dbOf(a), 'waybill')).findings).toEqual([])
  })

  test('`migrate roles` prints what closes the database, and runs it when it is asked to, as its owner alone', async () => {
    const stranger = `stranger_${a.database.name}`
    await make(a, stranger, 'login')
    const cli = (line: string, user = 'postgres'): ReturnType<typeof runLine> => {
      const url = new URL(a.database.url)
      url.username = user
      return runLine(line, { folder: import.meta.dirname, env: { DATABASE_URL: url.href } })
    }
    const admin = new URL(a.database.url).username
    const printed = await cli('migrate roles --print', admin)
    expect(printed.out).toContain(`revoke connect, temporary on database "${a.database.name}" from public;`)
    await as(stranger, a).query('select')
    expect(await cli('migrate roles', admin)).toMatchObject({ code: 2 })
    const operator = `login_${groupRole(a.names, 'owner')}`.slice(0, 63)
    expect((await cli('migrate roles --revoke-connect', operator)).err).toContain('Only the owner of the database')
    expect((await cli('doctor', admin)).err).toContain('is open to every login of the server')

    expect(await cli('migrate roles --revoke-connect', admin)).toMatchObject({ code: 0, err: '' })
    await expect(as(stranger, a).query('select')).rejects.toMatchObject({ code: '42501' })
    for (const role of groupRoles) await as(`login_${groupRole(a.names, role)}`.slice(0, 63), a).query('select')
    expect((await doctorRoles(dbOf(a), 'waybill')).openToPublic).toBeUndefined()
    expect((await cli('doctor', admin)).err).not.toContain('is open to every login')
    const { rows } = await a.database.pool.query('select action, database_user from waybill.audit_log order by id desc limit 1')
    expect(rows).toEqual([{ action: 'database.close', database_user: admin }])
  })
})

describe('a role that exists already is refused, and nothing is changed', () => {
  afterEach(async () => {
    for (const role of made.splice(0)) {
      for (const { database } of sides) await database.pool.query(`drop owned by ${role}`).catch(() => undefined)
      await sides[0]?.database.pool.query(`drop role if exists ${role}`)
    }
  })

  async function refused(of: Side, why: RegExp): Promise<void> {
    const run = migrate(dbOf(of), { ...of.names, roles: true })
    await expect(run).rejects.toMatchObject({ code: 'REFUSED', message: expect.stringMatching(why) })
    const { rows } = await of.database.pool.query(`select to_regnamespace('waybill') is null as none`)
    expect(rows).toEqual([{ none: true }])
  }

  test.each(['login', 'createrole', 'superuser', 'bypassrls'])('with %s', async (attribute) => {
    const squatted = await side()
    await make(squatted, groupRole(squatted.names, 'app'), attribute)
    await refused(squatted, /_app" exists and may log in or has rights of an administrator. Take those away: alter role/)
  })

  test('with a member that is not known', async () => {
    const squatted = await side()
    const owner = groupRole(squatted.names, 'owner')
    await make(squatted, owner, 'nologin')
    await make(squatted, `mallory_${squatted.database.name}`, `login in role ${owner}`)
    await refused(squatted, /_owner" exists and was not made for this schema/)
    // Nor does a comment that names this schema help.
    await squatted.database.pool.query(
      `comment on role ${owner} is 'Waybill: service ${squatted.names.service}, schema waybill, database ${squatted.database.name}'`,
    )
    await refused(squatted, /has members already: mallory_/)
  })

  test('with rights in another database, or a comment that names one', async () => {
    const [mine, other] = [await side(), await side()]
    const app = groupRole(mine.names, 'app')
    await make(other, app, 'nologin')
    await other.database.pool.query(`grant create on schema public to ${app}`)
    await refused(mine, new RegExp(`has rights in other databases \\(${other.database.name}\\)`))
    await other.database.pool.query(
      `comment on role ${app} is 'Waybill: service ${mine.names.service}, schema waybill, database ${other.database.name}'`,
    )
    await refused(mine, /serves another schema or database/)
  })
})

test('a login that a role of this schema was given later is refused at the next run with roles', async () => {
  const one = await side()
  await migrate(dbOf(one), { ...one.names, roles: true })
  await login(one, 'app')
  await migrate(dbOf(one), { ...one.names, roles: true })
  await one.database.pool.query(`alter role ${groupRole(one.names, 'relay')} login`)
  await expect(migrate(dbOf(one), { ...one.names, roles: true })).rejects.toMatchObject({ code: 'REFUSED' })
})

test('a copy of a database on the same server gets no roles of its original, which keeps its own', async () => {
  const original = await side()
  const direct = connect({ url: original.database.directUrl })
  await migrate(direct, { ...original.names, roles: true })
  await direct.close()
  await original.database.pool.end()
  const copied = await createTestDatabase(inject('postgres'), { template: original.database.name })
  const admin = connect({ url: copied.url })
  await admin.query('delete from waybill.deployment')
  const run = migrate(admin, { ...original.names, roles: true })
  await expect(run).rejects.toMatchObject({
    code: 'REFUSED',
    message: expect.stringContaining(`database ${original.database.name}`),
  })
  await admin.close()
  await copied.drop()
  const again = connect({ url: original.database.url })
  expect(await migrate(again, { ...original.names, roles: true })).toMatchObject({ roles: true })
  for (const role of groupRoles) await again.query(`drop owned by ${groupRole(original.names, role)} cascade`)
  await again.query('drop schema if exists waybill cascade')
  for (const role of groupRoles) await again.query(`drop role ${groupRole(original.names, role)}`)
  await again.close()
  sides.splice(sides.indexOf(original), 1)
})

test('roles with the names of before are renamed with their members, unless they serve another database, too', async () => {
  const [one, other] = [await side({ ownSchema: true }), await side()]
  const { schema } = one.names
  const db = dbOf(one)
  await migrate(db, { ...one.names, roles: true })
  const member = await login(one, 'app')
  for (const role of groupRoles) {
    await db.query(`comment on role ${groupRole(one.names, role)} is null`)
    await db.query(`alter role ${groupRole(one.names, role)} rename to ${formerGroupRole(schema, role)}`)
  }
  await other.database.pool.query(`grant create on schema public to ${formerGroupRole(schema, 'app')}`)
  await expect(migrate(db, { ...one.names, roles: true })).rejects.toMatchObject({
    code: 'REFUSED',
    message: expect.stringContaining(`serves other databases of this server, too (${other.database.name})`),
  })
  await other.database.pool.query(`revoke create on schema public from ${formerGroupRole(schema, 'app')}`)
  expect(await migrate(db, { ...one.names, roles: true })).toMatchObject({ roles: true })
  await as(member, one).query(`select from ${schema}.deployment`)
  const { rows } = await db.query('select from pg_roles where rolname = $1', [formerGroupRole(schema, 'app')])
  expect(rows).toEqual([])
  await db.query(`drop schema ${schema} cascade`)
})

describe('the audit log keeps what it has', () => {
  let one: Side

  beforeAll(async () => {
    one = await side()
    await migrate(dbOf(one), { ...one.names, roles: true })
    await login(one, 'owner')
  })

  test('an operator adds rows, as the user that it is, and can change, remove or forge none', async () => {
    const name = `login_${groupRole(one.names, 'owner')}`.slice(0, 63)
    const operator = as(name, one)
    await operator.query(`select waybill.record_audit('ada', 'outbox.pause', '{}')`)
    await operator.query(
      `insert into waybill.audit_log (actor, database_user, action, at) values ('the boss', 'postgres', 'forged', '2001-01-01')`,
    )
    const { rows } = await operator.query(
      `select actor, database_user, at > clock_timestamp() - interval '1 hour' as fresh from waybill.audit_log order by id`,
    )
    expect(rows).toEqual([
      { actor: 'ada', database_user: name, fresh: true },
      { actor: 'the boss', database_user: name, fresh: true },
    ])
    for (const db of [operator, dbOf(one)])
      for (const attempt of [
        `update waybill.audit_log set actor = 'nobody'`,
        'delete from waybill.audit_log',
        'truncate waybill.audit_log',
        `insert into waybill.audit_log (id, actor, action) overriding system value values (1, 'x', 'y') on conflict (id) do update set actor = 'nobody'`,
      ])
        await expect(db.query(attempt)).rejects.toMatchObject({ code: '42501' })
    await transaction(dbOf(one), async (tx) => {
      // As a replication worker writes: ordinary triggers do not fire.
      await tx.query('set local session_replication_role = replica')
      await tx.query('savepoint one')
      await expect(tx.query('delete from waybill.audit_log')).rejects.toMatchObject({ code: '42501' })
      await tx.query('rollback to one')
    })
  })

  test('the doctor tells when a trigger of it is off', async () => {
    const db = dbOf(one)
    await db.query('alter table waybill.audit_log disable trigger audit_log_keep')
    expect((await doctorRoles(db, 'waybill')).findings).toMatchObject([{ problem: 'audit-open' }])
    await db.query('alter table waybill.audit_log enable always trigger audit_log_keep')
    expect((await doctorRoles(db, 'waybill')).findings).toEqual([])
  })
})

describe('a member of readonly', () => {
  let one: Side
  let letter: string
  const request = { principal: 'ann', requestId: 'r1' }

  beforeAll(async () => {
    one = await side()
    const db = dbOf(one)
    await migrate(db, { ...one.names, roles: true })
    await login(one, 'readonly')
    await make(
      one,
      `both_${one.database.name}`,
      `login in role ${groupRole(one.names, 'readonly')}, ${groupRole(one.names, 'payloads')}`,
    )
    const { rows } = await db.query(
      `insert into waybill.dead_letter (consumer, generation, event_id, event_type, reason, error, attempts, topic, message_id, attributes, body, published_at, first_failed_at)
       values ('catalog', 1, gen_random_uuid(), 'Deposited', 'failed', 'no', 1, 't', 'm', '{}', 'secret', now(), now()) returning id::text`,
    )
    letter = (rows[0] as { id: string }).id
    await transaction(db, async (tx) => {
      await tx.query(`select from waybill.claim_command('ann', 'r1', 'Deposit', '\\x00', '{}', '{}', '1000')`)
      await tx.query(`select waybill.add_event('t', 'account', 'a', 'Deposited', '{}'::bytea, headers => $1::text::jsonb)`, [
        JSON.stringify({ command_id: commandId(request) }),
      ])
    })
  })

  test('sees a dead letter without its body, and with it as a member of payloads', async () => {
    const [reader, both] = [as(`login_${groupRole(one.names, 'readonly')}`, one), as(`both_${one.database.name}`, one)]
    expect(await showDeadLetter({ db: reader, schema: 'waybill' }, letter)).toMatchObject({ reason: 'failed', body: undefined })
    await expect(showDeadLetter({ db: reader, schema: 'waybill' }, letter, { payload: true })).rejects.toMatchObject({
      code: '42501',
    })
    const shown = await showDeadLetter({ db: both, schema: 'waybill' }, letter, { payload: true })
    expect(Buffer.from(shown.body ?? []).toString()).toBe('secret')
    const url = new URL(one.database.url)
    url.username = `login_${groupRole(one.names, 'readonly')}`
    const told = await runLine(`dlq show --id ${letter} --payload`, {
      folder: import.meta.dirname,
      env: { DATABASE_URL: url.href },
    })
    expect(told.err).toContain('payloads, and who asked for what, are for members of waybill_<service>_payloads')
  })

  test('follows an event and a request that it names, and is told who may see who asked', async () => {
    const [reader, both] = [as(`login_${groupRole(one.names, 'readonly')}`, one), as(`both_${one.database.name}`, one)]
    const { rows } = await reader.query('select id::text from waybill.outbox')
    const event = (rows[0] as { id: string }).id
    const hidden = await trace([{ db: reader, schema: 'waybill' }], { id: event })
    expect(hidden).toMatchObject({ request: undefined, notes: [expect.stringContaining('waybill_<service>_payloads')] })
    expect(await trace([{ db: both, schema: 'waybill' }], { id: event })).toMatchObject({ request, notes: [] })
    const named = await trace([{ db: reader, schema: 'waybill' }], { id: 'r1', principal: 'ann' })
    expect(named).toMatchObject({ request: { command: 'Deposit' }, events: [{ eventId: event }] })
    await expect(trace([{ db: reader, schema: 'waybill' }], { id: 'r1' })).rejects.toMatchObject({ code: 'FORBIDDEN' })
    expect(await trace([{ db: both, schema: 'waybill' }], { id: 'r1' })).toMatchObject({ request })
  })
})
