import { describe, expect, test } from 'vitest'
import { outboxFixture, type OutboxFixture } from '../../test/setup/outbox-fixture.ts'
import { testDatabase } from '../../test/setup/test-database.ts'
import { connect } from '../postgres/connect.ts'
import { fromPg } from '../postgres/from-pg.ts'
import { memory } from '../transport/memory.ts'
import { doctorOutbox } from './doctor-outbox.ts'

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
    `delete from :schema.outbox_receipt where event_id = (select id from :schema.outbox where aggregate_id = 'v1' and version = 3)`,
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

test('settings that lose commits or stop relays are found', async () => {
  const { outbox } = await outboxFixture(db)
  await db.query(`alter database ${database.name} set synchronous_commit = off`)
  await db.query(`alter database ${database.name} set default_transaction_isolation = 'repeatable read'`)
  const other = connect({ url: database.directUrl, max: 1 })
  const findings = await doctorOutbox(other, outbox)
  await other.close()
  await db.query(`alter database ${database.name} reset synchronous_commit`)
  await db.query(`alter database ${database.name} reset default_transaction_isolation`)
  expect(findings.find(({ problem }) => problem === 'not-durable')?.text).toContain('synchronous_commit')
  expect(findings.map(({ problem }) => problem)).toContain('isolation')
})
