import { expect, test } from 'vitest'
import { accounts, consumerFixture, type ConsumerFixture } from '../../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { createRelay } from '../../outbox/relay/relay.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import type { OutgoingMessage, PublishOptions } from '../../transport/port/transport.ts'
import { listGaps, repairGap, type RepairOptions } from './repair-gap.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

/** Five deposits of an owner; version 3 was published to nobody, and nobody will publish it again. */
async function dropped(
  mode: 'direct' | 'stored',
): Promise<{ owner: ConsumerFixture; fixture: ConsumerFixture; stop: () => Promise<void> }> {
  const owner = await consumerFixture(db)
  const fixture = await consumerFixture(db)
  const consumer = fixture.consumer({ mode, gapAlertMs: 1 }).on(accounts.Deposited, async (event, { tx }) => {
    await tx.query(
      `insert into ${fixture.schema}.balance (account_id, balance) values ($1, $2)
       on conflict (account_id) do update set balance = balance.balance * 10 + excluded.balance`,
      [event.aggregateId, event.data.amount],
    )
  })
  const stop = fixture.start(consumer)
  for (let amount = 1; amount <= 5; amount += 1)
    await transaction(db, (tx) => owner.outbox.add(tx, accounts.Deposited, 'x', { amount }, { headers: { tenant: 'acme' } }))
  const lossy = {
    ...fixture.broker,
    publish: async (messages: readonly OutgoingMessage[], options: PublishOptions) => {
      const isLost = messages.map(({ attributes }) => attributes['version'] === '3')
      const outcomes = [
        ...(await fixture.broker.publish(
          messages.filter((_, i) => isLost[i] !== true),
          options,
        )),
      ]
      return isLost.map((lost) => (lost ? { status: 'confirmed' as const, messageId: 'lost' } : outcomes.shift()!))
    },
  }
  await createRelay({ db, outbox: owner.outbox, transport: lossy, streams: [accounts] }).once()
  await eventually(async () => (await fixture.count('inbox_message', 'state = 4')) === 2)
  return { owner, fixture, stop }
}

test.each(['direct', 'stored'] as const)(
  'a delta that was lost for ever is reported as a gap and brought from the outbox of its owner (%s)',
  async (mode) => {
    const { owner, fixture, stop } = await dropped(mode)
    const options: RepairOptions = {
      db,
      schema: fixture.schema,
      consumer: 'catalog',
      olderThanMs: 0,
      owner: { db, schema: owner.schema },
      actor: 'ada',
    }
    await eventually(() => fixture.heard('consumer.backlog').some(({ alert, messages }) => alert && messages === 2))
    expect(await listGaps(options)).toMatchObject([{ aggregateId: 'x', position: '2', next: '4', waiting: 2 }])
    expect(await listGaps({ ...options, olderThanMs: 3_600_000 })).toEqual([])
    expect(await repairGap(options)).toMatchObject([{ aggregateId: 'x', brought: 1, missing: 0 }])
    await fixture.settled(5)
    expect(await repairGap(options)).toEqual([])
    await stop()
    expect(await fixture.query('select balance::int from $schema.balance')).toEqual([{ balance: 12_345 }])
    expect(await fixture.count('inbox_message')).toBe(0)
    expect(await fixture.count('audit_log', `action = 'consumer.repair-gap'`)).toBe(1)
  },
)

test.each([
  { last: 'skipped', acts: ['redrive', 'skip'], becomes: 'its marker, and is not applied', balance: 1_245 },
  { last: 'redrove', acts: ['skip', 'redrive'], becomes: 'itself', balance: 12_345 },
])('a delta that an operator $last in the end closes the gap as $becomes', async ({ acts, balance }) => {
  const { owner, fixture, stop } = await dropped('direct')
  for (const act of acts)
    await owner.query(
      `insert into $schema.audit_log (actor, action, details)
       select 'ada', 'outbox.${act}', jsonb_build_object('events', jsonb_build_array(jsonb_build_object('eventId', id))) from $schema.outbox where version = 3`,
    )
  const common = { db, schema: fixture.schema, consumer: 'catalog', olderThanMs: 0, actor: 'ada' }
  expect(await repairGap({ ...common, owner: { db, schema: owner.schema } })).toMatchObject([{ brought: 1, missing: 0 }])
  await fixture.settled(5)
  await stop()
  expect(await fixture.query('select balance::int from $schema.balance')).toEqual([{ balance }])
})

test('what the owner does not keep any more is named as missing, and nothing is applied over the gap', async () => {
  const { owner, fixture, stop } = await dropped('direct')
  await owner.query('delete from $schema.outbox where version = 3')
  const options = {
    db,
    schema: fixture.schema,
    consumer: 'catalog',
    olderThanMs: 0,
    owner: { db, schema: owner.schema },
    actor: 'ada',
  }
  expect(await repairGap(options)).toMatchObject([{ brought: 0, missing: 1 }])
  await stop()
  expect(await fixture.query('select balance::int from $schema.balance')).toEqual([{ balance: 12 }])
  await expect(repairGap({ ...options, consumer: 'nobody' })).rejects.toMatchObject({ code: 'NOT_FOUND' })
})

test.each([
  { gone: 'version between 3 and 202', brought: 1_000, missing: 200 },
  { gone: 'version > 2', brought: 0, missing: 1_497 },
])('what is gone is counted though the gap is larger than what is brought at once: $gone', async ({ gone, brought, missing }) => {
  const last = 1_500
  const { owner, fixture, stop } = await dropped('direct')
  await stop()
  // The owner's versions up to the last one, of which the consumer has had two.
  await owner.query(
    `insert into $schema.outbox (id, topic, aggregate_type, aggregate_id, version, event_type, schema_version, content_type, payload, headers, occurred_at)
     select gen_random_uuid(), topic, aggregate_type, aggregate_id, v, event_type, schema_version, content_type, payload, headers, occurred_at
       from $schema.outbox o, generate_series(6, ${last}) as v where o.version = 5`,
  )
  await owner.query(`delete from $schema.outbox where ${gone}`)
  await fixture.query(`update $schema.inbox_message set version = version + ${last - 4} where state = 4`)
  const common = { db, schema: fixture.schema, consumer: 'catalog', olderThanMs: 0, actor: 'ada' }
  const repaired = await repairGap({ ...common, owner: { db, schema: owner.schema } })
  expect(repaired).toMatchObject([{ next: `${last}`, brought, missing }])
})
