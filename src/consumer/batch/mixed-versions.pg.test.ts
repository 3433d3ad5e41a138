import { randomBytes } from 'node:crypto'

import { expect, test } from 'vitest'
import { z } from 'zod'
import { accounts, consumerFixture, deposited, message, published, videos } from '../../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { delta, state, tombstone } from '../../core/event/event.ts'
import { createSigner, createVerifier } from '../../core/event/signing.ts'
import { stream } from '../../core/event/stream.ts'
import type { Database } from '../../postgres/query/database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { migrate } from '../../postgres/schema/migrate.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { postgresTransport } from '../../transport/postgres/postgres-transport.ts'
import type { OutgoingMessage } from '../../transport/port/transport.ts'
import type { Consumer } from '../consumer.ts'
import type { ConsumerOptions } from '../model/consumer-options.ts'
import { redriveDeadLetters } from '../operate/redrive.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

/** A stream that only newer instances read, on the topic that all of them read. */
const wallets = stream('wallet', {
  topic: videos.topic,
  events: { Charged: delta(z.object({ amount: z.number() })), Closed: tombstone() },
})
/** The stream of videos as newer instances know it. */
const newVideos = stream('video', {
  topic: videos.topic,
  events: {
    VideoPublished: state(z.object({ title: z.string() })),
    VideoRemoved: tombstone(),
    VideoRated: state(z.object({ stars: z.number() })),
  },
})

function charged(id: string, version: number): OutgoingMessage {
  return {
    ...message({ stream: accounts, type: 'Charged', id, version }, { amount: version }, { aggregate_type: 'wallet' }),
    topic: videos.topic,
  }
}

function rated(id: string, version: number): OutgoingMessage {
  return message({ stream: videos, type: 'VideoRated', id, version }, { stars: version })
}

async function world(options: Partial<ConsumerOptions> = {}) {
  const fixture = await consumerFixture(db)
  const note =
    (by: string) =>
    async (
      event: { id: string; aggregateId: string; version: bigint },
      { tx }: { tx: { query(text: string, values: readonly string[]): Promise<unknown> } },
    ) => {
      await tx.query(`insert into ${fixture.schema}.effect (event_id, aggregate_id, version, note) values ($1, $2, $3, $4)`, [
        event.id,
        event.aggregateId,
        event.version.toString(),
        by,
      ])
    }
  const old = (more: Partial<ConsumerOptions> = {}): Consumer =>
    fixture.consumer({ streams: [videos], ...options, ...more }).on(videos.VideoPublished, note('old'))
  const fresh = (more: Partial<ConsumerOptions> = {}): Consumer =>
    fixture
      .consumer({ streams: [newVideos, wallets], ...options, ...more })
      .on(newVideos.VideoPublished, note('new'))
      .on(newVideos.VideoRated, note('new'))
      .on(wallets.Charged, note('new'))
  const effects = async (): Promise<readonly string[]> =>
    (await fixture.query<{ text: string }>(`select aggregate_id || ' ' || version as text from $schema.effect order by at`)).map(
      ({ text }) => text,
    )
  const running = async (count: number): Promise<void> => {
    await eventually(async () => (await fixture.count('consumer_reader', 'expires_at > clock_timestamp()')) === count)
  }
  /** An instance of another version that runs elsewhere and gets nothing. */
  const register = async (reads: Readonly<Record<string, readonly string[]>>): Promise<void> => {
    await fixture.query(
      `insert into $schema.consumer_reader (consumer, instance, generation, host, reads, digest, expires_at)
       values ('catalog', gen_random_uuid(), 1, 'elsewhere', $1::jsonb, 'other', clock_timestamp() + interval '1 hour')`,
      [JSON.stringify(reads)],
    )
  }
  return { ...fixture, fixture, register, old, fresh, note, effects, running }
}

const upTo = (count: number): readonly number[] => Array.from({ length: count }, (_, i) => i + 1)

test.each(['direct', 'stored'] as const)(
  'while an old instance runs beside a new one, all deltas of a stream that only the new one reads are applied in order (%s)',
  async (mode) => {
    const w = await world({ mode })
    const stop = w.start(w.old(), w.old(), w.fresh())
    await w.running(3)
    for (const version of upTo(10)) await w.publish(...['a', 'b', 'c', 'd'].map((id) => charged(id, version)))
    await eventually(async () => (await w.effects()).length === 40)
    await stop()
    const effects = await w.effects()
    for (const id of ['a', 'b', 'c', 'd'])
      expect(effects.filter((each) => each.startsWith(id))).toEqual(upTo(10).map((version) => `${id} ${version}`))
    expect(w.heard('consumer.ignored')).toEqual([])
    expect(await w.count('inbox_message')).toBe(0)
    expect(await w.count('dead_letter')).toBe(0)
    expect(await w.count('delivery_attempt')).toBe(0)
    expect(await w.count('consumer_reader')).toBe(0)
  },
)

test.each(['direct', 'stored'] as const)(
  'an event type that only the new instance knows is applied by it, in line with the others (%s)',
  async (mode) => {
    const w = await world({ mode })
    const stop = w.start(w.old(), w.old(), w.fresh())
    await w.running(3)
    for (const version of upTo(10))
      await w.publish(...['a', 'b', 'c', 'd'].map((id) => (version % 3 === 0 ? rated(id, version) : published(id, version))))
    await eventually(async () => (await w.effects()).length === 40)
    await stop()
    const effects = await w.effects()
    for (const id of ['a', 'b', 'c', 'd'])
      expect(effects.filter((each) => each.startsWith(id))).toEqual(upTo(10).map((version) => `${id} ${version}`))
    expect(await w.count('effect', `note = 'old' and version % 3 = 0`)).toBe(0)
    expect(await w.count('inbox_message')).toBe(0)
    expect(await w.count('dead_letter')).toBe(0)
    expect(await w.count('delivery_attempt')).toBe(0)
  },
)

test('the same over the Postgres transport', async () => {
  const w = await world()
  await migrate(db, { schema: w.schema, service: 'test' })
  const transport = postgresTransport({ db, schema: w.schema })
  const stop = w.start(w.old({ transport }), w.fresh({ transport }))
  await w.running(2)
  const signal = new AbortController().signal
  for (const version of upTo(10)) {
    const sent = ['a', 'b', 'c', 'd'].map((id) => charged(id, version))
    const outcomes = await transport.publish(sent, { signal, maySend: () => true })
    expect(outcomes.every(({ status }) => status === 'confirmed')).toBe(true)
  }
  await eventually(async () => (await w.effects()).length === 40)
  await stop()
  for (const id of ['a', 'b', 'c', 'd'])
    expect((await w.effects()).filter((each) => each.startsWith(id))).toEqual(upTo(10).map((version) => `${id} ${version}`))
  expect(await w.count('inbox_message')).toBe(0)
  await transport.close()
})

test('rows of a stream that only the new instance projects come to the newest state, tombstones too', async () => {
  const w = await world()
  const films = stream('film', {
    topic: videos.topic,
    events: { Shot: state(z.object({ title: z.string() })), Burnt: tombstone() },
  })
  const fresh = w.fixture
    .consumer({ streams: [videos, films] })
    .on(videos.VideoPublished, w.note('new'))
    .project(films, { table: `${w.schema}.video_view`, key: 'video_id', set: ({ data }) => ({ title: data.title }) })
  const film = (type: string, id: string, version: number): OutgoingMessage => ({
    ...message({ stream: videos, type, id, version }, type === 'Burnt' ? null : { title: `${id} ${version}` }, {
      aggregate_type: 'film',
    }),
  })
  const stop = w.start(w.old(), fresh)
  await w.running(2)
  for (const version of upTo(5)) await w.publish(...['a', 'b', 'c', 'd'].map((id) => film('Shot', id, version)))
  await w.publish(film('Burnt', 'd', 6))
  await eventually(async () => (await w.count('video_view', 'version >= 5')) === 4)
  await eventually(async () => (await w.count('video_view', 'deleted_at is not null and version = 6')) === 1)
  await stop()
  expect(await w.count('video_view', `title = video_id || ' 5'`)).toBe(3)
  expect(await w.count('inbox_message')).toBe(0)
})

test.each(['direct', 'stored'] as const)(
  'what is put aside rests in line without an attempt, also when all who know it are gone, and is taken when one comes (%s)',
  async (mode) => {
    const w = await world({ mode })
    const stop = w.start(w.old())
    await w.running(1)
    await w.register({ video: ['VideoPublished', 'VideoRated', 'VideoRemoved'], wallet: ['Charged'] })
    await w.publish(published('a', 1), rated('a', 2), published('a', 3), published('b', 1), charged('x', 1), charged('x', 2))
    await eventually(async () => (await w.count('inbox_message', 'state = 4')) === 4)
    await eventually(async () => (await w.effects()).length === 2)
    await w.query(`update $schema.consumer_reader set expires_at = clock_timestamp() where host = 'elsewhere'`)
    await w.publish(charged('x', 3), published('a', 4))
    await eventually(() => w.heard('consumer.ignored').length === 1)
    await eventually(async () => (await w.count('inbox_message', 'state = 4')) === 5)
    expect((await w.effects()).toSorted()).toEqual(['a 1', 'b 1'])
    expect(await w.count('delivery_attempt')).toBe(0)
    expect(await w.count('dead_letter')).toBe(0)
    expect(
      w
        .heard('consumer.put-aside')
        .map(({ eventType, version }) => `${eventType} ${version}`)
        .toSorted(),
    ).toEqual(['Charged 1', 'Charged 2', 'VideoRated 2'])
    const stopNew = w.start(w.fresh())
    await eventually(async () => (await w.effects()).length === 7)
    await Promise.all([stop(), stopNew()])
    const effects = await w.effects()
    expect(effects.filter((each) => each.startsWith('a'))).toEqual(['a 1', 'a 2', 'a 3', 'a 4'])
    expect(effects.filter((each) => each.startsWith('x'))).toEqual(['x 1', 'x 2'])
    expect(await w.count('inbox_message')).toBe(0)
  },
)

test('without a running instance that reads it, a stream is ignored and an unknown type is a dead letter, as ever', async () => {
  const w = await world()
  const stop = w.start(w.old(), w.old())
  await w.running(2)
  await w.publish(charged('x', 1), charged('x', 2), rated('a', 1))
  await eventually(async () => (await w.count('dead_letter', `reason = 'unknown_type'`)) === 1)
  await eventually(() => w.heard('consumer.ignored').length > 0)
  await stop()
  expect(await w.count('inbox_message')).toBe(0)
  expect(await w.count('dead_letter')).toBe(1)
})

test('with onUnknownStream: dead-letter an event that nobody reads is a letter that holds nothing, and a redrive applies it in turn', async () => {
  const w = await world({ onUnknownStream: 'dead-letter' })
  const stop = w.start(w.old())
  await w.running(1)
  await w.publish(charged('x', 1), charged('x', 2), charged('x', 3))
  await eventually(async () => (await w.count('dead_letter', `reason = 'unknown_stream' and aggregate_id = 'x'`)) === 3)
  await stop()
  expect(await w.count('consumer_position', `aggregate_type = 'wallet'`)).toBe(0)
  const stopNew = w.start(w.fresh())
  await redriveDeadLetters({ db, schema: w.schema, filter: { all: true }, actor: 'ada' })
  await eventually(async () => (await w.effects()).length === 3)
  await stopNew()
  expect(await w.effects()).toEqual(['x 1', 'x 2', 'x 3'])
})

test('a letter that is redriven is left to the instance that knows it', async () => {
  const w = await world({ onUnknownStream: 'dead-letter' })
  let looks = 0
  const query: Database['query'] = async (text, values) => {
    if (text.includes('d.id as seq')) looks += 1
    return await db.query(text, values)
  }
  const stop = w.start(w.old({ db: { ...db, query } }))
  await w.running(1)
  await w.publish(rated('a', 1), charged('x', 1))
  await eventually(async () => (await w.count('dead_letter', `state = 'dead'`)) === 2)
  await w.register({ video: ['VideoPublished', 'VideoRated', 'VideoRemoved'], wallet: ['Charged'] })
  await redriveDeadLetters({ db, schema: w.schema, filter: { all: true }, actor: 'ada' })
  const looked = looks
  await eventually(() => looks > looked + 2)
  expect(await w.count('dead_letter', `state = 'redriving'`)).toBe(2)
  const stopNew = w.start(w.fresh())
  await eventually(async () => (await w.effects()).length === 2)
  await Promise.all([stop(), stopNew()])
  expect(await w.count('dead_letter', `state = 'redriven'`)).toBe(2)
})

test('an unknown type that waits behind a gap is a dead letter at its turn, if nobody knows it', async () => {
  const fixture = await consumerFixture(db)
  const stop = fixture.start(fixture.consumer({ streams: [accounts] }).on(accounts.Deposited, () => undefined))
  await fixture.publish(message({ stream: accounts, type: 'Withdrawn', id: 'x', version: 2 }, {}))
  await eventually(async () => (await fixture.count('inbox_message')) === 1)
  await fixture.publish(deposited('x', 1, 1))
  await eventually(async () => (await fixture.count('dead_letter', `reason = 'unknown_type'`)) === 1)
  await stop()
  expect(await fixture.count('inbox_message')).toBe(0)
})

test('an event is ignored only after a look that began behind its arrival, and one look serves all that wait', async () => {
  const w = await world()
  const [asked, mayAnswer] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  let looks = 0
  const query: Database['query'] = async (text, values) => {
    const isLook = text.includes('distinct r.reads')
    const answer = await db.query(text, values)
    if (isLook && (looks += 1) === 1) {
      asked.resolve()
      await mayAnswer.promise
    }
    return answer
  }
  const stop = w.start(w.old({ db: { ...db, query } }))
  await w.running(1)
  await w.publish(charged('early', 1))
  await asked.promise
  // The look under way does not see it, so nobody who comes behind it may be decided by that look.
  await w.register({ wallet: ['Charged'] })
  await w.publish(...upTo(300).map((id) => charged(`late ${id}`, 1)))
  await eventually(() => w.broker.deliveries.length >= 301)
  mayAnswer.resolve()
  await eventually(async () => (await w.count('inbox_message')) === 300)
  expect(w.heard('consumer.ignored')).toHaveLength(1)
  await stop()
  expect(await w.count('inbox_message', `aggregate_id = 'early'`)).toBe(0)
  expect(looks).toBeLessThan(10)
})

test.each(['ignore', 'dead-letter'] as const)(
  'an event of an unread stream that is not believed is refused, and neither put aside nor a dead letter (%s)',
  async (onUnknownStream) => {
    const secret = randomBytes(32)
    const signer = createSigner({ keyId: 'owner', secret })
    const verifier = createVerifier({ keys: [{ keyId: 'owner', secret }] })
    const w = await world({ verify: 'required', verifier, onUnknownStream })
    if (onUnknownStream === 'ignore') await w.register({ wallet: ['Charged'] })
    const stop = w.start(w.old())
    await w.publish(charged('a', 2), signer.sign(charged('a', 1)), signer.sign(published('v', 1)))
    const kept = onUnknownStream === 'ignore' ? 'inbox_message' : 'dead_letter'
    await eventually(async () => expect([await w.count(kept), await w.count('inbox')]).toEqual([1, 1]))
    await eventually(async () => expect(await w.count('refused_message')).toBe(1))
    await stop()
    expect(await w.count(kept, `version = 1`)).toBe(1)
    expect(w.heard('consumer.refused').map(({ reason }) => reason)).toEqual(['unsigned'])
  },
)
