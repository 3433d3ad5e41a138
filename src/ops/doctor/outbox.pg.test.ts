import { describe, expect, test } from 'vitest'
import { outboxFixture, type OutboxFixture } from '../../../test/setup/outbox-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { readBacklog } from '../../outbox/tables/backlog.sql.ts'
import { createOutbox } from '../../outbox/outbox.ts'
import { connect } from '../../postgres/connect.ts'
import { one } from '../../postgres/query/database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { migrate } from '../../postgres/schema/migrate.ts'
import { groupRole, groupRoles } from '../../postgres/schema/roles.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { memory } from '../../transport/memory/memory.ts'
import { doctorOutbox } from './outbox.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

async function problems({ outbox }: OutboxFixture): Promise<string[]> {
  const findings = await doctorOutbox(db, outbox)
  // The servers that tests start do not flush to disk.
  return findings.filter(({ text }) => !text.startsWith('fsync')).map(({ problem }) => problem)
}

/** An outbox with a few published events. */
async function healthy(): Promise<OutboxFixture> {
  const fixture = await outboxFixture(db)
  await fixture.publish('v1', 'a', 'b', 'c')
  await fixture.publish('v2', 'a', 'b')
  await fixture.relay(memory()).once()
  return fixture
}

test('an outbox as it was made has nothing wrong, empty or not', async () => {
  expect(await problems(await outboxFixture(db))).toEqual([])
  expect(await problems(await healthy())).toEqual([])
})

describe.each([
  ['updates-allowed', 'alter table :schema.outbox disable trigger outbox_append_only'],
  ['sequence-cached', `alter table :schema.outbox_dispatch alter column seq set cache 20`],
  [
    'sequence-behind',
    `insert into :schema.outbox_dispatch (lane, seq, key, event_id, state, parked_at) overriding system value
     select 0, 1000000, 0, id, 3, clock_timestamp() from :schema.outbox limit 1`,
  ],
  ['table-unlogged', 'alter table :schema.outbox_receipt set unlogged'],
  ['lanes-differ', 'delete from :schema.outbox_lane where lane = 63'],
  [
    'lane-wrong',
    `insert into :schema.outbox_dispatch (lane, key, event_id, state, parked_at) select 1, 2, id, 3, clock_timestamp() from :schema.outbox limit 1`,
  ],
  ['exposed', 'grant usage on schema :schema to public; grant select on :schema.outbox to public'],
  [
    'event-missing',
    `insert into :schema.outbox_dispatch (lane, key, event_id, state, next_retry_at) values (0, 0, gen_random_uuid(), 1, clock_timestamp() + interval '1 hour')`,
  ],
  [
    'event-lost',
    `update :schema.outbox_receipt set published_at = published_at - interval '1 hour' where event_id = (select id from :schema.outbox where aggregate_id = 'v1' and version = 1);
     delete from :schema.outbox_receipt where event_id = (select id from :schema.outbox where aggregate_id = 'v1' and version = 3)`,
  ],
  [
    'lane-unowned',
    `insert into :schema.outbox_dispatch (lane, key, event_id) select 0, 0, id from :schema.outbox limit 1;
     update :schema.outbox_lane set lock_token = gen_random_uuid(), lock_expires_at = clock_timestamp() - interval '11 seconds'`,
  ],
])('%s', (problem, harm) => {
  test('is found', async () => {
    const fixture = await healthy()
    await db.query(harm.replaceAll(':schema', fixture.outbox.tables.schema))
    expect(await problems(fixture)).toContain(problem)
  })
})

test('lanes without a relay are no trouble while nothing waits in them', async () => {
  const fixture = await healthy()
  await db.query(`update ${fixture.outbox.tables.schema}.outbox_lane set lock_token = null, lock_expires_at = null`)
  expect(await problems(fixture)).toEqual([])
})

test('between two runs of a relay that is a job, what waits is named with where to see how old it is', async () => {
  const fixture = await healthy()
  await fixture.publish('v3', 'x')
  const found = (await doctorOutbox(db, fixture.outbox)).find(({ problem }) => problem === 'lane-unowned')
  expect(found?.text).toMatch(/^1 lanes with waiting events have no relay: .*waybill relay --once.*waybill status$/)
})

test('a parked event is reported', async () => {
  const fixture = await healthy()
  await fixture.publish('v3', 'x')
  await fixture.relay(memory({ rejects: () => true }), { maxAttempts: 1 }).once()
  expect(await problems(fixture)).toEqual(['parked'])
})

test('events without receipts are no loss where receipts are off', async () => {
  const fixture = await outboxFixture(db)
  await fixture.publish('v1', 'a', 'b', 'c')
  await fixture.relay(memory(), { receipts: false }).once()
  expect(await problems(fixture)).toEqual([])
})

/** As if the receipts of the aggregate had been written an hour earlier. */
async function published(fixture: OutboxFixture, aggregateId: string): Promise<void> {
  const { schema } = fixture.outbox.tables
  await db.query(`update ${schema}.outbox_receipt set published_at = published_at - interval '1 hour'
                   where event_id in (select id from ${schema}.outbox where aggregate_id = '${aggregateId}')`)
}

test('events whose receipts have expired are not lost because an older one was published late', async () => {
  const fixture = await outboxFixture(db)
  const { schema } = fixture.outbox.tables
  await fixture.publish('late', 'a')
  await fixture.publish('v1', 'a', 'b', 'c')
  await fixture.relay(memory()).once()
  await db.query(
    `delete from ${schema}.outbox_receipt where event_id in (select id from ${schema}.outbox where aggregate_id = 'v1')`,
  )
  await fixture.publish('v2', 'a')
  await fixture.relay(memory()).once()
  expect(await problems(fixture)).toEqual([])
})

test('events that a connector published are not lost when relays publish again; those added after that are', async () => {
  const fixture = await outboxFixture(db)
  const { schema } = fixture.outbox.tables
  await fixture.publish('before', 'a')
  await fixture.relay(memory()).once()
  await published(fixture, 'before')
  await db.query(`select ${schema}.outbox_set_dispatching(false)`)
  await fixture.publish('by connector', 'a', 'b')
  await db.query(`select ${schema}.outbox_set_dispatching(true)`)
  await db.query(`insert into ${schema}.audit_log (actor, action) values ('ada', 'outbox.cdc-off')`)
  await fixture.publish('after', 'a', 'b')
  await fixture.relay(memory()).once()
  expect(await problems(fixture)).toEqual([])
  await db.query(
    `delete from ${schema}.outbox_receipt where event_id = (select id from ${schema}.outbox where aggregate_id = 'after' and version = 1)`,
  )
  expect(await problems(fixture)).toEqual(['event-lost'])
})

test('a lost event is found behind however many ids that carry no time, and is not to be added again unseen', async () => {
  const fixture = await healthy()
  const { schema } = fixture.outbox.tables
  await published(fixture, 'v1')
  await db.query(`insert into ${schema}.outbox (id, topic, aggregate_type, aggregate_id, version, event_type, schema_version, content_type, payload)
                  select ('ffffffff-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 't', 'order', n::text, 1, 'Placed', 1, 'application/json', ''
                    from generate_series(1, 100000) as n`)
  await db.query(
    `delete from ${schema}.outbox_receipt where event_id = (select id from ${schema}.outbox where aggregate_id = 'v2' and version = 1)`,
  )
  const lost = (await doctorOutbox(db, fixture.outbox)).find(({ problem }) => problem === 'event-lost')
  expect(lost?.text).toMatch(/waybill trace .*Add again only what nobody has/)
})

test('a role that may not see the transactions of others is told so, and may look at all the rest', async () => {
  const schema = `s${database.name}`
  const outbox = createOutbox({ schema })
  await migrate(db, { schema, service: 'test', roles: true })
  const url = new URL(database.directUrl)
  url.username = `login_${schema}`
  await db.query(`create role ${url.username} login in role ${groupRole({ schema, service: 'test' }, 'relay')}`)
  const relay = connect({ url: url.href, max: 1 })
  const found = async (): Promise<string[]> =>
    (await doctorOutbox(relay, outbox)).filter(({ text }) => !text.startsWith('fsync')).map(({ problem }) => problem)
  try {
    await transaction(db, async (tx) => {
      await tx.query('select pg_current_xact_id()')
      await tx.query('declare held cursor for select 1')
      expect(await one(relay, readBacklog(outbox.tables))).toMatchObject({ due: 0, oldestSnapshotAgeMs: null })
      expect(await found()).toEqual(['snapshots-hidden'])
      await db.query(`grant pg_read_all_stats to ${url.username}`)
      expect((await one(relay, readBacklog(outbox.tables))).oldestSnapshotAgeMs).toBeGreaterThan(0)
      expect(await found()).toEqual([])
    })
  } finally {
    await relay.close()
    await db.query(`drop schema ${schema} cascade`)
    for (const role of [url.username, ...groupRoles.map((each) => groupRole({ schema, service: 'test' }, each))])
      await db.query(`drop owned by ${role}; drop role ${role}`)
  }
})

test('settings that lose commits, slow relays or spoil payloads are found', async () => {
  const { outbox } = await outboxFixture(db)
  await db.query(`alter database ${database.name} set synchronous_commit = off`)
  await db.query(`alter database ${database.name} set default_transaction_isolation = 'repeatable read'`)
  await db.query(`alter database ${database.name} set bytea_output = 'escape'`)
  const other = connect({ url: database.directUrl, max: 1 })
  const findings = await doctorOutbox(other, outbox)
  await other.close()
  await db.query(`alter database ${database.name} reset synchronous_commit`)
  await db.query(`alter database ${database.name} reset default_transaction_isolation`)
  await db.query(`alter database ${database.name} reset bytea_output`)
  expect(findings.find(({ problem }) => problem === 'not-durable')?.text).toContain('synchronous_commit')
  expect(findings.map(({ problem }) => problem)).toEqual(expect.arrayContaining(['isolation', 'bytes']))
})
