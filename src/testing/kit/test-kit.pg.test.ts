import { AssertionError } from 'node:assert'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { runCommand } from '../../../scripts/run-command.ts'
import { accounts, consumerFixture, mails, videos, type ConsumerFixture } from '../../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import type { Consumer } from '../../consumer/consumer.ts'
import { redriveDeadLetters } from '../../consumer/operate/redrive.ts'
import { seededRandom } from '../../core/service/random.ts'
import { createRelay } from '../../outbox/relay/relay.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { memory } from '../../transport/memory/memory.ts'
import { expectAdded, expectApplied, expectNotApplied, expectPublished } from './expect.ts'
import { drain } from './drain.ts'
import { createTestKit } from './test-kit.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
const nothingLeft = { parked: 0, held: 0, delayed: 0, deadLetters: 0, waiting: 0 }
const patient = { timeoutMs: 120_000 }

function catalogOf({ schema, consumer }: ConsumerFixture, options: Parameters<ConsumerFixture['consumer']>[0] = {}): Consumer {
  return consumer(options).project(videos, {
    table: `${schema}.video_view`,
    key: 'video_id',
    set: ({ data }) => ({ title: data.title }),
  })
}

test('what was added is drained to the broker and into the consumers, and each step can be asserted', async () => {
  const fixture = await consumerFixture(db)
  const { schema, outbox } = fixture
  const kit = createTestKit({ db, outbox })
  const catalog = catalogOf(fixture, { transport: kit.transport })
  const added = await transaction(db, (tx) => outbox.add(tx, videos.VideoPublished, 'v1', { title: 'one' }))
  await expectAdded(db, videos.VideoPublished, { schema, aggregateId: 'v1', times: 1 })
  await expectPublished(db, videos.VideoPublished, { schema, times: 0 })
  await expectNotApplied(catalog, added)

  expect(await kit.drain([catalog])).toEqual(nothingLeft)
  const [event] = await expectPublished(db, videos.VideoPublished, { schema, data: { title: 'one' } })
  expect(event).toMatchObject({ id: added.id, version: 1n, data: { title: 'one' }, state: 'PUBLISHED' })
  await expectApplied(catalog, added)
  expect(await kit.verify([{ consumer: catalog }])).toMatchObject({ verdict: 'pass' })
})

test('what handlers emit is drained as well, over a broker with a bad day, in both modes', async () => {
  for (const mode of ['direct', 'stored'] as const) {
    const fixture = await consumerFixture(db)
    const { outbox } = fixture
    const kit = createTestKit({ db, outbox, transport: memory({ nasty: true, random: seededRandom(5) }) })
    const greeter = fixture.consumer({ transport: kit.transport, name: 'greeter', mode })
    greeter.on(accounts.Deposited, (event, { emit }) =>
      emit(mails.MailRequested, `${event.aggregateId}-${event.version}`, { to: event.aggregateId }),
    )
    const mailer = fixture.consumer({ transport: kit.transport, name: 'mailer', streams: [mails], mode })
    mailer.on(mails.MailRequested, async (event, { tx }) => {
      await tx.query(`insert into ${fixture.schema}.effect (event_id) values ($1)`, [event.id])
    })
    await transaction(db, async (tx) => {
      for (let n = 0; n < 20; n += 1) await outbox.add(tx, accounts.Deposited, `a${n % 3}`, { amount: n })
    })
    expect(await kit.drain([greeter, mailer])).toEqual(nothingLeft)
    expect(await fixture.count('effect')).toBe(20)
    expect(await kit.verify([{ consumer: greeter }, { consumer: mailer }])).toMatchObject({ verdict: 'pass' })
  }
})

test('a drain waits for relays and consumers that run already', async () => {
  const fixture = await consumerFixture(db)
  const { outbox, broker: transport } = fixture
  const relay = createRelay({ db, outbox, transport })
  const catalog = catalogOf(fixture)
  const stop = fixture.start(catalog)
  const stopping = new AbortController()
  const relaying = relay.run({ stopping: stopping.signal, aborting: new AbortController().signal })
  const added = await transaction(db, (tx) => outbox.add(tx, videos.VideoPublished, 'v1', { title: 'one' }))
  await drain({ relays: [relay], consumers: [catalog], start: false })
  await expectApplied(catalog, added)
  stopping.abort()
  await Promise.all([stop(), relaying])
})

test('a consumer without an inbox is drained by the versions of its rows', async () => {
  const fixture = await consumerFixture(db)
  const kit = createTestKit({ db, outbox: fixture.outbox, transport: fixture.broker })
  const catalog = catalogOf(fixture, { inbox: false, streams: [videos] })
  await transaction(db, async (tx) => {
    for (const title of ['one', 'two']) await fixture.outbox.add(tx, videos.VideoPublished, 'v1', { title })
  })
  await kit.drain([catalog])
  expect(await fixture.query('select title from $schema.video_view')).toEqual([{ title: 'two' }])
})

test('what a consumer without an inbox has applied cannot be asserted, one way or the other', async () => {
  const fixture = await consumerFixture(db)
  const kit = createTestKit({ db, outbox: fixture.outbox, transport: fixture.broker })
  const catalog = catalogOf(fixture, { inbox: false, streams: [videos] })
  const added = await transaction(db, (tx) => fixture.outbox.add(tx, videos.VideoPublished, 'v1', { title: 'one' }))
  await kit.drain([catalog], patient)
  const refused = { code: 'INVALID_OPTION', message: expect.stringContaining('look at its rows') as string }
  await expect(expectApplied(catalog, added)).rejects.toMatchObject(refused)
  await expect(expectNotApplied(catalog, added)).rejects.toMatchObject(refused)
})

test('what does not move by itself is counted, and ends no drain in a time-out', async () => {
  const fixture = await consumerFixture(db)
  const { outbox, broker, schema } = fixture
  const kit = createTestKit({ db, outbox, transport: broker, relay: { maxAttempts: 1 } })
  broker.setRejects(({ attributes }) => attributes['aggregate_id'] === 'bad')
  const ledger = fixture.consumer({ maxAttempts: 1 }).on(accounts.Deposited, async (event, { tx }) => {
    if (event.data.amount === 666) throw new Error('never')
    await tx.query(`insert into ${schema}.effect (event_id) values ($1)`, [event.id])
  })
  const added = await transaction(db, async (tx) => {
    for (const title of ['one', 'two']) await outbox.add(tx, videos.VideoPublished, 'bad', { title })
    await outbox.add(tx, videos.VideoPublished, 'later', { title: 'x' }, { notBefore: new Date(Date.now() + 3_600_000) })
    const poison = await outbox.add(tx, accounts.Deposited, 'a', { amount: 666 })
    return [poison, await outbox.add(tx, accounts.Deposited, 'a', { amount: 1 })]
  })
  expect(await kit.drain([ledger])).toEqual({ parked: 1, held: 1, delayed: 1, deadLetters: 1, waiting: 1 })
  await expect(expectApplied(ledger, added)).rejects.toThrow(
    /catalog has not applied:\nevent [-\w]+ was given up \(dead: failed: never\)\nevent [-\w]+ waits for an earlier version/,
  )
})

test('a copy that was stored after its event was applied is nothing that is left', async () => {
  const fixture = await consumerFixture(db)
  const kit = createTestKit({ db, outbox: fixture.outbox })
  const ledger = fixture.consumer({ transport: kit.transport, mode: 'stored' }).on(accounts.Deposited, async () => {})
  const { id } = await transaction(db, (tx) => fixture.outbox.add(tx, accounts.Deposited, 'a', { amount: 1 }))
  expect(await kit.drain([ledger])).toEqual(nothingLeft)
  await db.query(
    `insert into ${fixture.schema}.inbox_message (key, lane, state, consumer, generation, event_id, aggregate_type, aggregate_id, version,
                                                  topic, message_id, attributes, body, published_at)
     values (1, 1, 0, 'catalog', 1, $1, 'account', 'a', 1, 'bank.events', 'm1', '{}', '', now())`,
    [id],
  )
  expect(await drain({ consumers: [ledger], start: false })).toEqual(nothingLeft)
})

test('what waits behind a dead letter is awaited once the letter moves again, in both modes', async () => {
  for (const mode of ['direct', 'stored'] as const) {
    const fixture = await consumerFixture(db)
    const { outbox, schema } = fixture
    const kit = createTestKit({ db, outbox })
    let isBroken = true
    const ledger = fixture
      .consumer({ transport: kit.transport, mode, maxAttempts: 1, batchSize: 1, processBatchSize: 1 })
      .on(accounts.Deposited, (event) => {
        if (isBroken && event.version === 1n) throw new Error('not yet')
      })
    await transaction(db, async (tx) => {
      for (let n = 0; n < 10; n += 1) await outbox.add(tx, accounts.Deposited, 'a', { amount: n })
    })
    expect(await kit.drain([ledger], patient)).toEqual({ ...nothingLeft, deadLetters: 1, waiting: 9 })
    isBroken = false
    await redriveDeadLetters({ db, schema, filter: { all: true }, actor: 'ada' })
    expect(await kit.drain([ledger], patient)).toEqual(nothingLeft)
    expect(await fixture.count('inbox')).toBe(10)
  }
})

test('a drain into consumers refuses a relay that removes what it has published', async () => {
  const fixture = await consumerFixture(db)
  const { outbox } = fixture
  const kit = createTestKit({ db, outbox, relay: { retain: 'none' } })
  const catalog = catalogOf(fixture, { transport: kit.transport })
  await transaction(db, (tx) => outbox.add(tx, videos.VideoPublished, 'v1', { title: 'one' }))
  await expect(kit.drain([catalog])).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  expect(await kit.drain([], patient)).toEqual(nothingLeft)
  expect(kit.transport.published).toHaveLength(1)
})

test('a drain that does not end says what still moves', async () => {
  const fixture = await consumerFixture(db)
  const kit = createTestKit({ db, outbox: fixture.outbox })
  const deaf = catalogOf(fixture, { transport: memory() })
  await transaction(db, (tx) => fixture.outbox.add(tx, videos.VideoPublished, 'v1', { title: 'one' }))
  // What is published already, the first look finds, however late it comes.
  await kit.drain()
  const drained = kit.drain([deaf], { timeoutMs: 100 })
  await expect(drained).rejects.toThrow(AssertionError)
  await expect(drained).rejects.toThrow(/Not drained within 100 ms:[\s\S]*catalog has not dealt with video v1 v1/)
})

test('a consumer that cannot run fails the drain with its own error', async () => {
  const fixture = await consumerFixture(db)
  const kit = createTestKit({ db, outbox: fixture.outbox })
  const wrong = fixture
    .consumer({ transport: kit.transport })
    .project(videos, { table: 'no.such_table', key: 'id', set: ({ data }) => ({ title: data.title }) })
  await transaction(db, (tx) => fixture.outbox.add(tx, videos.VideoPublished, 'v1', { title: 'one' }))
  await expect(kit.drain([wrong])).rejects.toThrow(/does not exist/)
})

test('assertions that fail say what there is instead', async () => {
  const fixture = await consumerFixture(db)
  const { schema, outbox } = fixture
  const look = expectPublished(db, videos.VideoPublished, { schema })
  await expect(look).rejects.toThrow(
    /at least one VideoPublished to be published, found 0. The outbox has no VideoPublished at all/,
  )
  await transaction(db, (tx) => outbox.add(tx, videos.VideoPublished, 'v1', { title: 'one' }))
  await expect(expectPublished(db, videos.VideoPublished, { schema })).rejects.toThrow(/found 0. .*: v1 v1 PENDING/)
  await expect(expectAdded(db, videos.VideoPublished, { schema, data: { title: 'two' } })).rejects.toMatchObject({
    name: 'AssertionError',
    operator: 'expectAdded',
    actual: [{ aggregateId: 'v1', data: { title: 'one' }, state: 'PENDING' }],
    expected: { data: { title: 'two' } },
  })
  await expectAdded(db, videos.VideoPublished, { schema, data: ({ title }) => title.startsWith('o'), times: 1 })
  await expect(expectAdded(db, videos.VideoPublished, { schema, times: 2 })).rejects.toThrow(/Expected 2 VideoPublished/)
})

test('a kit leaves alone what went to the broker of another, and finds what its own has lost', async () => {
  const fixture = await consumerFixture(db)
  const { schema, outbox } = fixture
  await fixture.query('create table $schema.mirror_view (like $schema.video_view including all)')
  const add = (id: string): Promise<{ readonly id: string }> =>
    transaction(db, (tx) => outbox.add(tx, videos.VideoPublished, id, { title: id }))
  const one = createTestKit({ db, outbox })
  const catalog = catalogOf(fixture, { transport: one.transport })
  const before = await add('v1')
  await one.drain([catalog])
  await one.verify([{ consumer: catalog }])

  const other = createTestKit({ db, outbox })
  const again = catalogOf(fixture, { transport: other.transport })
  const mirror = fixture
    .consumer({ transport: other.transport, name: 'mirror' })
    .project(videos, { table: `${schema}.mirror_view`, key: 'video_id', set: ({ data }) => ({ title: data.title }) })
  const added = await add('v2')
  expect(await other.drain([again, mirror])).toEqual(nothingLeft)
  await expectApplied(mirror, added)
  await expectNotApplied(mirror, before)
  expect(await other.verify([{ consumer: again }, { consumer: mirror }])).toMatchObject({ verdict: 'pass' })

  await add('v3')
  await fixture.query('delete from $schema.outbox_dispatch')
  await expect(other.verify([{ consumer: again }])).rejects.toThrow('no-loss: video v3 v1 was committed and never published')
})

test('verify explains what was broken', async () => {
  const fixture = await consumerFixture(db)
  const kit = createTestKit({ db, outbox: fixture.outbox, transport: fixture.broker })
  const catalog = catalogOf(fixture)
  await transaction(db, (tx) => fixture.outbox.add(tx, videos.VideoPublished, 'v1', { title: 'one' }))
  await kit.drain([catalog])
  await fixture.query('delete from $schema.video_view')
  const verified = kit.verify([{ consumer: catalog }])
  await expect(verified).rejects.toThrow(AssertionError)
  await expect(verified).rejects.toThrow(
    /projection-equals-owner: video v1 is not there at catalog, and v1 at the owner\n.*state/,
  )
})

test('events that a consumer gave up are left, unless the test expects them or they were those of another kit', async () => {
  const fixture = await consumerFixture(db)
  const { outbox } = fixture
  const one = createTestKit({ db, outbox })
  const handlerOn = (transport: typeof one.transport): Consumer =>
    fixture.consumer({ transport, maxAttempts: 1 }).on(accounts.Deposited, ({ data }) => {
      if (data.amount === 666) throw new Error('never')
    })
  const handler = handlerOn(one.transport)
  await transaction(db, (tx) => outbox.add(tx, accounts.Deposited, 'a', { amount: 666 }))
  await one.drain([handler])
  await expect(one.verify([{ consumer: handler }])).rejects.toThrow('liveness: 1 dead letters of catalog are left')
  expect(await one.verify([{ consumer: handler }], { deadLetters: 'expected' })).toMatchObject({ verdict: 'pass' })

  const other = createTestKit({ db, outbox })
  const again = handlerOn(other.transport)
  await transaction(db, (tx) => outbox.add(tx, accounts.Deposited, 'b', { amount: 1 }))
  await other.drain([again])
  expect(await other.verify([{ consumer: again }])).toMatchObject({ verdict: 'pass' })
})

test('the kit works under node:test', async () => {
  const file = fileURLToPath(new URL('../../../test/fixtures/test-kit-under-node-test.ts', import.meta.url))
  const { code, output } = await runCommand(['node', '--test', file], { env: { DATABASE_URL: database.url } })
  expect(output).toMatch(/pass 2\b[\s\S]*fail 0\b/)
  expect(code).toBe(0)
})
