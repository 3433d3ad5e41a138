import { randomBytes } from 'node:crypto'
import { describe, expect, test } from 'vitest'
import { reading, readingKey, readings } from '../../../test/ingest/readings.ts'
import {
  accounts,
  consumerFixture,
  deposited,
  message,
  mails,
  published,
  videos,
  type ConsumerFixture,
} from '../../../test/setup/consumer-fixture.ts'
import { logFixture } from '../../../test/setup/log-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { createSigner, createVerifier, type Signer } from '../../core/event/signing.ts'
import { createIngest } from '../../ingest/ingest.ts'
import { rebuild } from '../../ops/rebuild/rebuild.ts'
import { createRelay } from '../../outbox/relay/relay.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { postgresTransport } from '../../transport/postgres/postgres-transport.ts'
import type { OutgoingMessage } from '../../transport/port/transport.ts'
import { drainBrokerDeadLetters } from '../operate/broker-dead-letters.ts'
import type { Consumer } from '../consumer.ts'
import type { ConsumerOptions } from '../model/consumer-options.ts'
import { redriveDeadLetters } from '../operate/redrive.ts'
import { listRefused } from '../failure/refused-messages.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

const secret = randomBytes(32)
const signer = createSigner({ keyId: 'owner', secret })
const verifier = createVerifier({ keys: [{ keyId: 'owner', secret }] })
const stranger = createSigner({ keyId: 'stranger', secret: randomBytes(32) })
const thief = createSigner({ keyId: 'owner', secret: randomBytes(32) })
const required = { verify: 'required', verifier } as const

const sign = (given: OutgoingMessage, by: Signer = signer): OutgoingMessage => by.sign(given)
const changed = (given: OutgoingMessage, attributes: Record<string, string>): OutgoingMessage => ({
  ...given,
  attributes: { ...given.attributes, ...attributes },
})

/** Videos become rows, deposits add up. */
function bank(fixture: ConsumerFixture, options: Partial<ConsumerOptions> = {}): Consumer {
  return fixture
    .consumer({ ...required, ...options })
    .project(videos, { table: `${fixture.schema}.video_view`, key: 'video_id', set: (e) => ({ title: e.data.title }) })
    .on(accounts.Deposited, async (event, { tx }) => {
      await tx.query(
        `insert into ${fixture.schema}.balance as b values ($1, $2)
         on conflict (account_id) do update set balance = b.balance + excluded.balance`,
        [event.aggregateId, event.data.amount],
      )
    })
}

const titles = async (fixture: ConsumerFixture): Promise<readonly string[]> =>
  (await fixture.query<{ title: string }>(`select title from $schema.video_view order by video_id`)).map(({ title }) => title)

const reasons = (fixture: ConsumerFixture): readonly string[] => fixture.heard('consumer.refused').map(({ reason }) => reason)

const farthest = { version: (2n ** 63n - 1n).toString() }

describe.each([{ mode: 'direct' }, { mode: 'stored' }, { mode: 'direct', onPoison: 'stop' }] as const)('with %o', (options) => {
  test('what is not signed, forged, or of an unknown key takes no effect, holds nothing and moves nothing', async () => {
    const fixture = await consumerFixture(db)
    const stop = fixture.start(bank(fixture, options))
    const [stolen, next] = [published('v', 2), deposited('a', 2, 2)]
    await fixture.publish(sign(published('v', 1)), sign(deposited('a', 1, 1)))
    await fixture.settled(2)
    const forged = [
      published('v', 2, 'unsigned', farthest),
      deposited('a', 2, 1_000, farthest),
      sign(published('v', 2, 'strange', farthest), stranger),
      sign(published('v', 2, 'forged', farthest), thief),
      changed(sign(published('v', 2, 'changed')), farthest),
      { ...sign(deposited('a', 2, 1)), body: Buffer.from('{"amount":1000}') },
      { ...sign(published('v', 2, 'moved')), topic: accounts.topic },
      published('other', 1, 'id taken', { event_id: stolen.attributes['event_id'] ?? '' }),
      deposited('a', 3, 1_000, { event_id: next.attributes['event_id'] ?? '' }),
      { ...published('v', 2), attributes: {} },
      changed(published('v', 2), { event_type: 'Unknown' }),
    ]
    await fixture.publish(...forged, sign(stolen), sign(next))
    await fixture.settled(4)
    await eventually(() => expect(reasons(fixture)).toHaveLength(11))
    await eventually(async () => expect(await fixture.count('refused_message')).toBe(11))
    await stop()
    expect(reasons(fixture).toSorted()).toEqual(
      [...Array<string>(4).fill('forged'), 'unknown_key', ...Array<string>(6).fill('unsigned')].toSorted(),
    )
    expect(await titles(fixture)).toEqual(['v 2'])
    expect(await fixture.query('select balance::int from $schema.balance')).toEqual([{ balance: 3 }])
    for (const table of ['dead_letter', 'delivery_attempt', 'inbox_message']) expect(await fixture.count(table)).toBe(0)
    expect(await fixture.count('inbox')).toBe(4)
    expect(await fixture.query('select version::int from $schema.consumer_position')).toEqual([{ version: 2 }, { version: 2 }])
    expect(fixture.heard('consumer.version-jumped')).toEqual([])
  })
})

test('accept lets unsigned messages in and counts them; what is signed must be right', async () => {
  const fixture = await consumerFixture(db)
  const stop = fixture.start(bank(fixture, { verify: 'accept' }))
  await fixture.publish(
    published('a', 1),
    sign(published('b', 1)),
    sign(published('c', 1), thief),
    sign(published('d', 1), stranger),
  )
  await fixture.settled(2)
  await eventually(() => expect(reasons(fixture)).toHaveLength(2))
  await stop()
  expect(await titles(fixture)).toEqual(['a 1', 'b 1'])
  expect(fixture.heard('consumer.unsigned')).toEqual([{ consumer: 'catalog', topic: 'video.events' }])
  expect(reasons(fixture).toSorted()).toEqual(['forged', 'unknown_key'])
})

test('events of streams that the consumer does not read are ignored, whoever signed them; what is none is refused', async () => {
  const fixture = await consumerFixture(db)
  const stop = fixture.start(bank(fixture))
  const other = { ...message({ stream: mails, type: 'MailRequested', id: 'm', version: 1 }, {}), topic: videos.topic }
  await fixture.publish(other, changed(other, { event_id: 'none' }), sign(published('a', 1)))
  await fixture.settled(1)
  await eventually(() => expect(fixture.heard('consumer.ignored')).toHaveLength(1))
  await stop()
  expect(reasons(fixture)).toEqual(['unsigned'])
  expect(await fixture.count('dead_letter')).toBe(0)
})

test('a handler sees the attributes that were signed, and none that was added', async () => {
  const fixture = await consumerFixture(db)
  const seen: Readonly<Record<string, string>>[] = []
  const consumer = fixture.consumer(required).on(videos.VideoPublished, ({ attributes }) => void seen.push(attributes))
  const stop = fixture.start(consumer)
  const signed = sign(changed(published('a', 1), { tenant: 'ours' }))
  await fixture.publish(changed(signed, { tenant2: 'theirs', content_hash: 'f'.repeat(32) }), signed)
  await fixture.settled(1)
  await eventually(() => expect(fixture.heard('consumer.applied').some(({ duplicates }) => duplicates === 1)).toBe(true))
  await stop()
  expect(seen).toEqual([signed.attributes])
  expect(fixture.heard('consumer.fact-conflict')).toEqual([])
})

test('a flood of forged messages leaves a hundred of each reason, cut to size, and those of today in place of older ones', async () => {
  const fixture = await consumerFixture(db)
  const stop = fixture.start(bank(fixture))
  const long = { ...published('x', 1), body: randomBytes(50_000) }
  const wide = changed(long, Object.fromEntries(Array.from({ length: 1_000 }, (_, n) => [`n${n}`, 'v'.repeat(5_000)])))
  const unfit = changed(published('x', 1, '\u0000'), { 'a\u0000': '\ud800\u0000' })
  for (let round = 0; round < 6; round += 1) {
    await fixture.publish(...Array.from({ length: 50 }, (_, n) => published(`u${n}`, 1)), wide, unfit)
    await fixture.publish(...Array.from({ length: 50 }, (_, n) => sign(published(`f${n}`, 1), thief)))
  }
  await fixture.publish(sign(published('a', 1)))
  await fixture.settled(1)
  await eventually(() => expect(reasons(fixture)).toHaveLength(612))
  await stop()
  expect(await fixture.query('select reason, count(*)::int from $schema.refused_message group by 1 order by 1')).toEqual([
    { reason: 'forged', count: 100 },
    { reason: 'unsigned', count: 100 },
  ])
  expect(await fixture.count('refused_message', 'length(body) > 4096 or length(attributes::text) > 150000')).toBe(0)
  expect(await fixture.count('refused_message', 'body_bytes = 50000')).toBeGreaterThan(0)

  await fixture.query(`update $schema.refused_message set refused_at = refused_at - interval '2 days' where slot > 90`)
  const again = fixture.start(bank(fixture))
  await fixture.publish(...Array.from({ length: 50 }, (_, n) => published(`new${n}`, 1)))
  await eventually(async () => {
    const [newest] = await listRefused({ db, schema: fixture.schema, reason: 'unsigned', limit: 1 })
    expect(newest?.attributes['aggregate_id']).toMatch(/^new/)
  })
  await again()
  expect(await fixture.count('refused_message', "attributes->>'aggregate_id' like 'new%'")).toBe(10)
  expect(await fixture.count('refused_message')).toBe(200)
})

test('a database that cannot keep the sample keeps nothing waiting', async () => {
  const fixture = await consumerFixture(db)
  await fixture.query('drop table $schema.refused_message')
  const stop = fixture.start(bank(fixture))
  await fixture.publish(...Array.from({ length: 20 }, (_, n) => published(`u${n}`, 1)), sign(published('a', 1)))
  await fixture.settled(1)
  await eventually(() => expect(reasons(fixture)).toHaveLength(20))
  await stop()
  expect(fixture.heard('consumer.disturbed').length).toBeGreaterThan(0)
})

test('offsets that are kept in Postgres move over what is refused, and no partition stands still', async () => {
  const w = await logFixture(db)
  const forged = published('a', 2, 'forged', farthest)
  w.log.append('0', [forged, sign(published('a', 1)), forged, sign(published('a', 2)), sign(published('b', 1), thief)])
  w.log.append('0', [sign(published('b', 1)), forged])
  const stop = w.start(w.recorder(required))
  await eventually(() => w.log.members.length === 1)
  await w.log.assign(w.log.members[0], ['0'])
  await eventually(async () => (await w.offsets())[0] === '0 6')
  await eventually(() => expect(reasons(w)).toHaveLength(4))
  await stop()
  expect(await w.effects()).toEqual(['a 1', 'a 2', 'b 1'])
  expect(await w.count('dead_letter')).toBe(0)
})

test('what was verified when it came is redriven and released as it is, with keys that have changed since', async () => {
  const fixture = await consumerFixture(db)
  let isBroken = true
  const open = (options: Partial<ConsumerOptions>): Consumer =>
    fixture
      .consumer({ ...required, streams: [accounts], maxAttempts: 1, ...options })
      .on(accounts.Deposited, async (event, { tx }) => {
        if (isBroken && event.version === 1n) throw new Error('not yet')
        await tx.query(`insert into ${fixture.schema}.effect (version) values ($1)`, [String(event.version)])
      })
  const stop = fixture.start(open({}))
  await fixture.publish(sign(deposited('a', 1, 1)), sign(deposited('a', 2, 1)))
  await eventually(async () => (await fixture.count('inbox_message', 'state = 4')) === 1)
  await stop()
  isBroken = false
  const young = createVerifier({ keys: [{ keyId: 'young', secret: randomBytes(32) }] })
  const again = fixture.start(open({ verifier: young }))
  await redriveDeadLetters({ db, schema: fixture.schema, actor: 'test', filter: { reason: 'failed' } })
  await fixture.settled(2)
  await again()
  expect(await fixture.query('select version::int from $schema.effect order by at')).toEqual([{ version: 1 }, { version: 2 }])
  expect(reasons(fixture)).toEqual([])
})

test('what the broker gives up on becomes a dead letter only if it is signed for the topic that it came from', async () => {
  const fixture = await consumerFixture(db)
  const topic = 'video.events.catalog.dead'
  const drain = drainBrokerDeadLetters({
    ...required,
    db,
    schema: fixture.schema,
    transport: fixture.broker,
    consumer: 'catalog',
    topics: [topic],
    publishedTo: videos.topic,
    signals: fixture.signals,
  })
  const stop = fixture.start(drain as Consumer)
  const added = changed(sign(published('a', 1)), { CloudPubSubDeadLetterSourceDeliveryCount: '10' })
  await fixture.publish({ ...added, topic }, { ...published('b', 1), topic }, sign({ ...published('c', 1), topic }))
  await eventually(() => expect(reasons(fixture)).toEqual(['unsigned', 'forged']))
  await eventually(async () => (await fixture.count('dead_letter')) === 1)
  await stop()
  expect(await fixture.query('select aggregate_id from $schema.dead_letter')).toEqual([{ aggregate_id: 'a' }])
})

describe('signed by those who publish', () => {
  test.each(['memory', 'postgres'] as const)('events of a relay are believed (%s)', async (name) => {
    const fixture = await consumerFixture(db)
    const { schema, outbox, broker } = fixture
    const transport = name === 'memory' ? broker : postgresTransport({ db, schema })
    const stop = fixture.start(bank(fixture, { transport }))
    const relay = createRelay({ db, outbox, transport, signer })
    const headers = { traceparent: '00-1-2-01', größe: '"\ud83d\udc18"' }
    await transaction(db, async (tx) => {
      await outbox.add(tx, videos.VideoPublished, 'größe/1', { title: 'signed' }, { headers })
      await outbox.add(tx, videos.VideoRemoved, 'gone', undefined)
    })
    await relay.once()
    await transport.publish([published('b', 1)], { signal: AbortSignal.timeout(60_000), maySend: () => true })
    await fixture.settled(2)
    await eventually(() => expect(reasons(fixture)).toEqual(['unsigned']))
    await stop()
    if (name === 'postgres') await transport.close()
    expect(await titles(fixture)).toEqual([null, 'signed'])
  })

  test('facts of an ingest are believed, and those of one without a signer are not', async () => {
    const fixture = await consumerFixture(db)
    const consumer = fixture.consumer({ ...required, streams: [readings] }).on(readings.ReadingTaken, async (event, { tx }) => {
      await tx.query(`insert into ${fixture.schema}.effect (note) values ($1)`, [String(event.data.value)])
    })
    const stop = fixture.start(consumer)
    const options = { event: readings.ReadingTaken, key: readingKey, to: fixture.broker }
    await createIngest({ ...options, signer }).accept(reading(1))
    await createIngest(options).accept(reading(2))
    await fixture.settled(1)
    await eventually(() => expect(reasons(fixture)).toEqual(['unsigned']))
    await stop()
    expect(await fixture.count('effect')).toBe(1)
    const to = { db, outbox: fixture.outbox }
    expect(() => createIngest({ ...options, to, signer })).toThrow('ingest.signer: signs what goes to a broker')
  })

  test.each(['outbox', 'earliest'])(
    'a rebuild believes the owner’s outbox, and of the broker what is signed (%s)',
    async (from) => {
      const fixture = await consumerFixture(db)
      const { schema, outbox, broker } = fixture
      const consumer = fixture
        .consumer(required)
        .project(videos, { table: `${schema}.video_view`, key: 'video_id', set: (e) => ({ title: e.data.title }) })
      const stop = fixture.start(consumer)
      const relay = createRelay({ db, outbox, transport: broker, signer })
      for (const id of ['a', 'b']) await transaction(db, (tx) => outbox.add(tx, videos.VideoPublished, id, { title: id }))
      await relay.once()
      await fixture.publish(published('a', 900, 'forged'))
      await fixture.settled(2)
      await fixture.query(`update $schema.consumer_position set updated_at = clock_timestamp() - interval '1 minute'`)
      const options = { consumer, from, swap: true, actor: 'test', pollMs: 20, stallMs: 60_000, transport: broker }
      expect(await rebuild(options)).toMatchObject({ swapped: true })
      await stop()
      expect(await titles(fixture)).toEqual(['a', 'b'])
    },
  )
})

test.each<[string, Partial<ConsumerOptions>]>([
  ["consumer: verify: 'required' needs verifier", { verify: 'required' }],
  ["consumer: verify: 'accept' needs verifier", { verify: 'accept' }],
  ["consumer: a verifier does nothing while verify is 'off'", { verifier }],
  ['consumer.verify: must be one of', { verify: 'always' as never, verifier }],
])('keys that nobody uses, and verification without keys, are refused: %s', async (why, options) => {
  const fixture = await consumerFixture(db)
  expect(() => fixture.consumer(options)).toThrow(why)
})
