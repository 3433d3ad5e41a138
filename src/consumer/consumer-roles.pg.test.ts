import { afterAll, beforeAll, expect, test } from 'vitest'
import { accounts, deposited, published, videos } from '../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../test/setup/test-database.ts'
import { createSignals } from '../core/signals.ts'
import { createOutbox } from '../outbox/outbox.ts'
import { connect, type Connection } from '../postgres/connect.ts'
import { fromPg } from '../postgres/adapters/from-pg.ts'
import { migrate } from '../postgres/schema/migrate.ts'
import { groupRole, groupRoles } from '../postgres/schema/roles.ts'
import { ReadinessWatch } from '../projection/readiness.ts'
import { eventually } from '../testing/kit/eventually.ts'
import { createFakeClock } from '../testing/kit/fake-clock.ts'
import { memory } from '../transport/memory/memory.ts'
import { postgresTransport } from '../transport/postgres/postgres-transport.ts'
import type { Transport } from '../transport/port/transport.ts'
import { createConsumer, type Consumer } from './consumer.ts'
import { createInboxRetention } from './operate/retention.ts'
import { redriveDeadLetters } from './operate/redrive.ts'

const database = await testDatabase()
const admin = fromPg(database.pool)
const schema = `s${database.name}`
const login = `login_${groupRole({ schema, service: 'bank' }, 'consumer')}`
const aborting = new AbortController().signal
const denied = { code: '42501' }
let db: Connection

beforeAll(async () => {
  await migrate(admin, { schema, service: 'bank', roles: true })
  await admin.query(`create role ${login} login in role ${groupRole({ schema, service: 'bank' }, 'consumer')}`)
  await admin.query(
    `create table ${schema}.video_view (video_id text primary key, title text, version bigint not null, deleted_at timestamptz)`,
  )
  await admin.query(`grant select, insert, update, delete on ${schema}.video_view to ${login}`)
  const url = new URL(database.url)
  url.username = login
  db = connect({ url: url.href, max: 8 })
})

afterAll(async () => {
  await db.close()
  await admin.query(`drop schema if exists ${schema} cascade`)
  for (const name of [login, ...groupRoles.map((role) => groupRole({ schema, service: 'bank' }, role))])
    await admin.query(`drop owned by ${name}; drop role ${name}`)
})

async function count(table: string, where = 'true'): Promise<number> {
  const { rows } = await admin.query(`select count(*)::int as count from ${schema}.${table} where ${where}`)
  return (rows as readonly { readonly count: number }[])[0]?.count ?? 0
}

/** Projects videos, and counts deposits; one of the amount 13 fails for as long as it is broken. */
function consumerOf(options: {
  readonly name: string
  readonly mode: 'direct' | 'stored'
  readonly transport: Transport
  readonly isBroken: () => boolean
}): Consumer {
  const { name, mode, transport, isBroken } = options
  return createConsumer({
    db,
    transport,
    name,
    mode,
    archive: mode === 'stored',
    streams: [videos, accounts],
    outbox: createOutbox({ schema }),
    schema,
    signals: createSignals(),
    lingerMs: 1,
    pollMs: 5,
    maxAttempts: 2,
    backoff: { firstMs: 1, maxMs: 2 },
  })
    .project(videos, { table: `${schema}.video_view`, key: 'video_id', set: (event) => ({ title: event.data.title }) })
    .on(accounts.Deposited, (event) => {
      if (event.data.amount === 13 && isBroken()) throw new Error('unlucky')
    })
}

test.each([
  ['direct', 'memory'],
  ['stored', 'memory'],
  ['direct', 'postgres'],
] as const)('a member of the consumer role applies, buries, redrives and becomes ready (%s, %s)', async (mode, kind) => {
  const name = `catalog_${mode}_${kind}`
  const transport = kind === 'memory' ? memory() : postgresTransport({ db, schema })
  const publisher = kind === 'memory' ? transport : postgresTransport({ db: admin, schema })
  let isBroken = true
  const consumer = consumerOf({ name, mode, transport, isBroken: () => isBroken })
  const stop = new AbortController()
  const running = consumer.run({ stopping: stop.signal, aborting })
  running.catch(() => undefined)
  const sent = [published(`${name}-a`, 1), deposited(`${name}-x`, 1, 13), deposited(`${name}-x`, 2, 1)]
  await publisher.publish(sent, { signal: aborting, maySend: () => true })
  const mine = `consumer = '${name}'`
  await eventually(async () => (await count('inbox_message', `${mine} and state = 4`)) === 1)
  expect(await count('dead_letter', `${mine} and state = 'dead'`)).toBe(1)
  isBroken = false
  await redriveDeadLetters({ db: admin, schema, filter: { consumer: name }, actor: 'ada' })
  await eventually(async () => (await count('inbox', mine)) === 3)
  expect(await count('dead_letter', `${mine} and state = 'redriven'`)).toBe(1)
  expect(await count('video_view', `video_id = '${name}-a'`)).toBe(1)
  expect((await count('inbox_archive', mine)) > 0).toBe(mode === 'stored')
  if ('sweep' in transport) await transport.sweep()

  await admin.query(`update ${schema}.inbox set processed_at = processed_at - interval '1 minute' where ${mine}`)
  const clock = createFakeClock()
  const idle = new ReadinessWatch({ db, schema, consumer: name, clock, readyLagMs: 30_000, backoff: { maxMs: 2 } })
  idle.opened(() => true)
  await clock.advance(60_000)
  expect(await idle.readiness()).toEqual({ ready: true, reasons: [], notes: [] })
  stop.abort()
  await running
  await transport.close()
})

test('a member of the consumer role removes what is old, and can change nothing of what is kept', async () => {
  await admin.query(`truncate ${schema}.inbox, ${schema}.inbox_archive, ${schema}.delivery_attempt, ${schema}.dead_letter`)
  await admin.query(
    `insert into ${schema}.inbox (consumer, generation, event_id, source, processed_at)
     select 'old', 1, gen_random_uuid(), 'broker', clock_timestamp() - n * interval '30 days' from generate_series(0, 2) as n`,
  )
  await admin.query(
    `insert into ${schema}.delivery_attempt (consumer, generation, event_id, first_at)
     select 'old', 1, gen_random_uuid(), clock_timestamp() - n * interval '30 days' from generate_series(0, 2) as n`,
  )
  await admin.query(
    `insert into ${schema}.dead_letter (consumer, generation, event_id, event_type, topic, reason, error, attempts, state, message_id, attributes, body, published_at, first_failed_at, dead_at)
     select 'old', 1, gen_random_uuid(), 'Deposited', 'bank.events', 'failed', 'broken', 1, 'discarded', 'm', '{}', '', clock_timestamp(), clock_timestamp(), clock_timestamp() - n * interval '60 days'
       from generate_series(0, 2) as n`,
  )
  await admin.query(
    `insert into ${schema}.inbox_archive (consumer, generation, event_id, aggregate_type, aggregate_id, version, topic, message_id, attributes, body, published_at, received_at, archived_at)
     select 'old', 1, gen_random_uuid(), 'account', 'x', n + 1, 'bank.events', 'm', '{}', '', clock_timestamp(), clock_timestamp(), clock_timestamp() - n * interval '5 days'
       from generate_series(0, 2) as n`,
  )
  const signals = createSignals()
  const heard: unknown[] = []
  signals.on('inbox.retained', (removed) => void heard.push(removed))
  expect(await createInboxRetention({ db, schema, signals }).pass(aborting)).toBe('idle')
  expect(heard).toEqual([{ inbox: 1, attempts: 1, deadLetters: 1, archive: 1 }])

  await expect(db.query(`update ${schema}.inbox set event_id = gen_random_uuid()`)).rejects.toMatchObject(denied)
  await expect(db.query(`update ${schema}.inbox_archive set body = ''`)).rejects.toMatchObject(denied)
})
