import { expect, test } from 'vitest'
import { accounts, consumerFixture, deposited, published, videos } from '../../../test/setup/consumer-fixture.ts'
import { accounts as ownAccounts, outboxFixture, videos as ownVideos } from '../../../test/setup/outbox-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { pauseConsumer } from '../../consumer/operate/pause.ts'
import { pauseOutbox } from '../../outbox/operate/pause.ts'
import { connect } from '../../postgres/connect.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { migrate } from '../../postgres/schema/migrate.ts'
import { groupRole, groupRoles } from '../../postgres/schema/roles.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { memory } from '../../transport/memory/memory.ts'
import { status } from './status.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

test('an outbox is seen with what waits in each state, what holds a key, who is paused, and how long publishing took', async () => {
  const fixture = await outboxFixture(db)
  const { schema } = fixture.outbox.tables
  const broker = memory({ rejects: ({ attributes }) => attributes['version'] === '2' && attributes['aggregate_id'] === 'bad' })
  for (let amount = 1; amount <= 4; amount += 1)
    await transaction(db, (tx) => fixture.outbox.add(tx, ownAccounts.Deposited, 'bad', { amount }))
  await fixture.relay(broker, { maxAttempts: 1, name: 'relay-a' }).once()
  await fixture.relay(broker).once()
  await fixture.publish('v1', 'later')
  await pauseOutbox({ db, outbox: fixture.outbox, aggregateType: 'video', actor: 'ada', reason: 'later' })
  const found = await status({ db, schema })
  expect(found).toMatchObject({
    service: 'test',
    schema,
    outbox: {
      dispatching: true,
      due: 1,
      retrying: 0,
      held: 2,
      parked: 1,
      estimated: false,
      highestAttempts: 1,
      lanes: { total: 64, owned: 0, unowned: 64, expiring: 0 },
      relays: [],
      heldKeys: [{ aggregateType: 'account', aggregateId: 'bad', version: '2', state: 'PARKED', attempts: 1, behind: 2 }],
      pauses: [{ aggregateType: 'video', reason: 'later', pausedBy: 'ada' }],
      publishDelay: { sample: 1, p50Ms: expect.any(Number), lastMs: expect.any(Number) },
    },
    consumers: [],
    commands: { cleanupLagMs: 0 },
  })
  expect(found.outbox.lagMs).toBeGreaterThan(0)
  expect(found.outbox.oldestAgeMs).toBeGreaterThan(found.outbox.lagMs)
  expect(found.outbox.heldKeys[0]?.error).not.toBe('')
})

test('what must not go out yet is not lag, whether it is delayed or paused; what failed is, behind however much that waits', async () => {
  const fixture = await outboxFixture(db)
  const { outbox } = fixture
  const { schema } = outbox.tables
  const lagMs = async (): Promise<number> => (await status({ db, schema })).outbox.lagMs
  const inAnHour = { notBefore: new Date(Date.now() + 3_600_000) }
  await transaction(db, (tx) => outbox.add(tx, ownVideos.VideoPublished, 'later', { title: 'x' }, inAnHour))
  expect(await lagMs()).toBe(0)
  await fixture.relay(memory()).once()
  expect(await lagMs()).toBe(0)

  const refusing = memory({ rejects: () => true })
  const slowly = { backoff: { firstMs: 3_600_000, maxMs: 3_600_000 } }
  await fixture.publish('paused', 'one')
  await fixture.relay(refusing, slowly).once()
  expect(await lagMs()).toBeGreaterThan(0)
  await pauseOutbox({ db, outbox, aggregateType: 'video', actor: 'ada' })
  await db.query(`update ${schema}.outbox_dispatch set next_retry_at = clock_timestamp() where publish_attempts > 0`)
  await fixture.publish('paused too', 'one')
  await fixture.relay(memory()).once()
  expect((await status({ db, schema })).outbox).toMatchObject({ due: 0, retrying: 3, lagMs: 0 })

  await transaction(db, (tx) => outbox.add(tx, ownAccounts.Deposited, 'failing', { amount: 1 }))
  await fixture.relay(refusing, slowly).once()
  expect(await lagMs()).toBeGreaterThan(0)
})

test('a due retry is lag although more delayed events than are looked through stand before it', async () => {
  const { outbox } = await outboxFixture(db)
  const { schema } = outbox.tables
  await db.query(`insert into ${schema}.outbox_dispatch (key, event_id, lane, state, next_retry_at)
                  select n * 64, gen_random_uuid(), 0, 1, clock_timestamp() + interval '1 hour' from generate_series(1, 3000) as n`)
  const { rows } =
    await db.query(`insert into ${schema}.outbox (id, topic, aggregate_type, aggregate_id, version, event_type, schema_version, content_type, payload)
                  values (gen_random_uuid(), 't', 'video', 'v', 1, 'VideoPublished', 1, 'application/json', '') returning id`)
  await db.query(
    `insert into ${schema}.outbox_dispatch (key, event_id, lane, state, next_retry_at) values (0, $1, 0, 1, clock_timestamp())`,
    [(rows[0] as { id: string }).id],
  )
  expect((await status({ db, schema })).outbox.lagMs).toBeGreaterThan(0)
})

test('a relay that runs is seen with its lanes', async () => {
  const fixture = await outboxFixture(db)
  const stop = new AbortController()
  const relay = fixture.relay(memory(), { name: 'relay-b' })
  const running = relay.run({ stopping: stop.signal, aborting: new AbortController().signal })
  await eventually(async () => {
    const { outbox } = await status({ db, schema: fixture.outbox.tables.schema })
    expect(outbox).toMatchObject({
      lanes: { owned: 64, unowned: 0, expiring: 0 },
      relays: [{ relay: 'relay-b', lanes: 64, seenMs: expect.any(Number) }],
    })
  })
  stop.abort()
  await running
})

test('consumers are seen with what they applied, what waits, what is dead and who paused them', async () => {
  const fixture = await consumerFixture(db)
  const catalog = fixture
    .consumer({ maxAttempts: 1 })
    .on(accounts.Deposited, async () => {})
    .on(videos.VideoPublished, async ({ data }) => {
      if (data.title === 'poison') throw new Error('it is poison')
    })
  const stop = fixture.start(catalog)
  await fixture.publish(
    published('v1', 1),
    published('v2', 1, 'poison'),
    published('v2', 2),
    deposited('a1', 1, 5),
    deposited('a1', 3, 5),
  )
  await eventually(async () => (await fixture.count('dead_letter')) === 1 && (await fixture.count('inbox_message')) === 2)
  await stop()
  await pauseConsumer({ db, schema: fixture.schema, consumer: 'catalog', actor: 'ada' })
  const { consumers } = await status({ db, schema: fixture.schema })
  expect(consumers).toMatchObject([
    {
      consumer: 'catalog',
      generation: 1,
      paused: { by: 'ada' },
      delay: { sample: 2, p50Ms: expect.any(Number) },
      waiting: { messages: 2, aggregates: 2 },
      stored: { due: 0, retrying: 0, held: 0 },
      deadLetters: [{ reason: 'failed', count: 1 }],
    },
  ])
  expect(consumers[0]?.heldAggregates.map(({ aggregateId, waiting }) => `${aggregateId} ${waiting}`).toSorted()).toEqual([
    'a1 1',
    'v2 1',
  ])
})

test('what holds an aggregate is named: the event of a dead letter, or that somebody paused it', async () => {
  const fixture = await consumerFixture(db)
  const stop = fixture.start(fixture.consumer({ maxAttempts: 1 }).on(videos.VideoPublished, async () => {}))
  const dead = { ...published('v1', 1), body: Buffer.from('no json') }
  await fixture.publish(dead)
  await eventually(async () => (await fixture.count('dead_letter')) === 1)
  await stop()
  const aggregate = { type: 'video', id: 'v2' }
  await pauseConsumer({ db, schema: fixture.schema, consumer: 'catalog', aggregate, actor: 'ada' })
  const [report] = (await status({ db, schema: fixture.schema })).consumers
  // What somebody paused, somebody has to find again: it comes first, however little waits for it.
  expect(report?.heldAggregates).toMatchObject([
    { aggregateId: 'v2', paused: true, heldBy: undefined },
    { aggregateId: 'v1', paused: false, heldBy: dead.attributes['event_id'] },
  ])
})

test('what a paused aggregate keeps waiting does not age; a gap does, behind however much that is paused', async () => {
  const fixture = await consumerFixture(db)
  const { schema } = fixture
  const stop = fixture.start(fixture.consumer().on(accounts.Deposited, async () => {}))
  await fixture.publish(deposited('paused', 1, 5))
  await fixture.settled(1)
  await pauseConsumer({ db, schema, consumer: 'catalog', aggregate: { type: 'account', id: 'paused' }, actor: 'ada' })
  await fixture.publish(deposited('paused', 2, 5), deposited('paused', 3, 5))
  await eventually(async () => (await fixture.count('inbox_message')) === 2)
  await fixture.query(`update $schema.inbox_message set received_at = received_at - interval '1 day'`)
  expect((await status({ db, schema })).consumers).toMatchObject([
    { waiting: { messages: 2, aggregates: 1, held: 1, oldestMs: 0 } },
  ])
  await fixture.publish(deposited('gap', 2, 5))
  await eventually(async () => (await fixture.count('inbox_message')) === 3)
  await stop()
  const { waiting } = (await status({ db, schema })).consumers[0] ?? {}
  expect(waiting).toMatchObject({ messages: 3, aggregates: 2, held: 1 })
  expect(waiting?.oldestMs).toBeGreaterThan(0)
  expect(waiting?.oldestMs).toBeLessThan(3_600_000)
})

test('stored mode is seen with what is stored and how long it has been', async () => {
  const fixture = await consumerFixture(db)
  const stop = fixture.start(
    fixture
      .consumer({ mode: 'stored', maxAttempts: 9, backoff: { firstMs: 60_000, maxMs: 60_000 } })
      .on(videos.VideoPublished, async () => {
        throw new Error('not now')
      }),
  )
  await fixture.publish(published('v1', 1), published('v1', 2))
  await eventually(async () => {
    const { consumers } = await status({ db, schema: fixture.schema })
    expect(consumers[0]?.stored).toMatchObject({ retrying: 1, held: 1, estimated: false })
    expect(consumers[0]?.stored.lagMs).toBeGreaterThan(0)
  })
  await stop()
})

test('a backlog that is too large to be counted quickly is estimated, within a tenth', async () => {
  const { outbox } = await outboxFixture(db)
  const { schema } = outbox.tables
  await db.query(`insert into ${schema}.outbox_dispatch (key, event_id, lane)
                  select hashint8(n), gen_random_uuid(), hashint8(n) & 63 from generate_series(1, 60000) as n`)
  const found = await status({ db, schema })
  expect(found.outbox.estimated).toBe(true)
  expect(Math.abs(found.outbox.due - 60_000)).toBeLessThan(6_000)
})

test('markers are counted about, and late clean-up is seen', async () => {
  const schema = 'markers'
  await migrate(db, { schema, service: 'test' })
  await db.query(`insert into ${schema}.command_marker (created_at, principal, request_id, command, fingerprint)
                  select clock_timestamp() - interval '2 hours', 'ann', n::text, 'Do', '' from generate_series(1, 50) as n`)
  await db.query(`analyze ${schema}.command_marker`)
  const { commands } = await status({ db, schema })
  expect(commands.markers).toBe(50)
  expect(commands.cleanupLagMs).toBeGreaterThan(3_000_000)
  expect((await status({ db, schema, markerTtlMs: 86_400_000 })).commands.cleanupLagMs).toBe(0)
})

test('the role readonly may see all of it', async () => {
  const schema = `s${database.name}`
  await migrate(db, { schema, service: 'test', roles: true })
  const login = `login_${groupRole({ schema, service: 'test' }, 'readonly')}`
  await db.query(`create role ${login} login in role ${groupRole({ schema, service: 'test' }, 'readonly')}`)
  const url = new URL(database.url)
  url.username = login
  const reader = connect({ url: url.href, max: 1 })
  try {
    expect(await status({ db: reader, schema })).toMatchObject({ service: 'test', outbox: { due: 0 } })
  } finally {
    await reader.close()
    await db.query(`drop schema ${schema} cascade`)
    for (const role of [login, ...groupRoles.map((each) => groupRole({ schema, service: 'test' }, each))])
      await db.query(`drop owned by ${role}; drop role ${role}`)
  }
})
