import { expect, test } from 'vitest'
import {
  accounts,
  consumerFixture,
  deposited,
  published,
  videos,
  type ConsumerFixture,
} from '../../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { deadLetterDrains, drainBrokerDeadLetters } from './broker-dead-letters.ts'
import type { Consumer } from '../consumer.ts'
import { redriveDeadLetters } from './redrive.ts'
import { WaybillError, type ErrorCode } from '../../core/errors.ts'
import type { Service } from '../../core/service/lifetime.ts'
import { createFakeClock } from '../../testing/kit/fake-clock.ts'
import type { Transport } from '../../transport/port/transport.ts'
import type { ConsumerOptions } from '../model/consumer-options.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
const videosDead = `${videos.topic}.catalog.dead`

test.each(['hold', 'pass'] as const)(
  'what the broker gives up on while it is being applied makes no letter and holds nobody (%s)',
  async (onDead) => {
    const fixture = await consumerFixture(db)
    const [handling, gate] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
    const note: Parameters<Consumer['on']>[1] = async (event, { tx }) => {
      handling.resolve()
      await gate.promise
      await tx.query(`insert into ${fixture.schema}.effect (aggregate_id, version) values ($1, $2)`, [
        event.aggregateId,
        String(event.version),
      ])
    }
    const consumer = fixture.consumer({ onDead }).on(accounts.Deposited, note).on(videos.VideoPublished, note)
    const [topic, videoTopic] = ['bank.events.catalog.dead', 'video.events.catalog.dead']
    const topics = [topic, videoTopic]
    const options = { db, schema: fixture.schema, transport: fixture.broker, consumer: 'catalog', onDead, topics }
    const stop = fixture.start(consumer, drainBrokerDeadLetters(options) as Consumer)
    const events = [deposited('x', 1, 1), published('v', 1)] as const
    await fixture.publish(...events)
    await handling.promise
    await fixture.publish({ ...events[0], topic })
    const waiting = `select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`
    await eventually(async () => (await fixture.query(waiting)).length > 0)
    gate.resolve()
    await eventually(async () => (await fixture.count('effect')) === 2)
    await fixture.publish({ ...events[1], topic: videoTopic }, deposited('x', 2, 1))
    await eventually(async () => (await fixture.count('effect')) === 3)
    await fixture.broker.quiet()
    await stop()
    expect(await fixture.count('dead_letter')).toBe(0)
    expect(await fixture.count('inbox')).toBe(3)
    expect(await fixture.count('consumer_position', 'held_by is not null or waiting > 0')).toBe(0)
  },
)

test.each(['redriven at once', 'redriven in the end'])(
  'a letter that is passed over before its predecessors came keeps none of them from having its effect (%s)',
  async (when) => {
    const fixture = await consumerFixture(db)
    const consumer = fixture.consumer({ onDead: 'pass' }).on(accounts.Deposited, async (event, { tx }) => {
      await tx.query(`insert into ${fixture.schema}.effect (version) values ($1)`, [String(event.version)])
    })
    const topics = ['bank.events.catalog.dead']
    const options = {
      db,
      schema: fixture.schema,
      transport: fixture.broker,
      consumer: 'catalog',
      onDead: 'pass',
      topics,
    } as const
    const redrive = async (): Promise<unknown> =>
      await redriveDeadLetters({ db, schema: fixture.schema, filter: { all: true }, actor: 'ada' })
    const versions = async (): Promise<readonly number[]> =>
      (await fixture.query<{ version: number }>('select version::int from $schema.effect order by at')).map((row) => row.version)
    const stop = fixture.start(consumer, drainBrokerDeadLetters(options) as Consumer)
    await fixture.publish({ ...deposited('x', 3, 1), topic: 'bank.events.catalog.dead' }, deposited('x', 4, 1))
    await eventually(async () => (await fixture.count('dead_letter')) === 1 && (await fixture.count('inbox_message')) === 2)
    if (when === 'redriven at once') {
      await redrive()
      await eventually(async () => (await fixture.count('dead_letter', "state = 'redriven'")) === 1)
    }
    await fixture.publish(deposited('x', 1, 1), deposited('x', 2, 1))
    await eventually(async () => (await versions()).includes(4))
    if (when === 'redriven in the end') await redrive()
    await eventually(async () => (await versions()).length === 4)
    await stop()
    expect(await versions()).toEqual(when === 'redriven at once' ? [1, 2, 3, 4] : [1, 2, 4, 3])
    expect(await fixture.count('inbox_message')).toBe(0)
    expect(await fixture.count('consumer_position', 'waiting > 0 or version <> 4')).toBe(0)
  },
)

test('a redriven letter that fails at its turn is not overtaken by the void that stood in for it, without an ordering key either', async () => {
  const fixture = await consumerFixture(db)
  const consumer = fixture.consumer({ onDead: 'pass' }).on(accounts.Deposited, async (event, { tx }) => {
    if (event.version === 3n && fixture.heard('consumer.failed').length === 0) throw new Error('not yet')
    await tx.query(`insert into ${fixture.schema}.effect (version) values ($1)`, [String(event.version)])
  })
  const topic = 'bank.events.catalog.dead'
  const { schema, broker: transport } = fixture
  const drain = drainBrokerDeadLetters({ db, schema, transport, consumer: 'catalog', onDead: 'pass', topics: [topic] })
  const stop = fixture.start(consumer, drain as Consumer)
  await fixture.publish({ ...deposited('x', 3, 1), topic, orderingKey: undefined })
  await eventually(async () => (await fixture.count('dead_letter')) === 1)
  await redriveDeadLetters({ db, schema, filter: { all: true }, actor: 'ada' })
  await eventually(async () => (await fixture.count('inbox_message')) === 2)
  await fixture.publish(deposited('x', 1, 1), deposited('x', 2, 1))
  await eventually(async () => (await fixture.count('inbox_message')) === 0)
  await stop()
  expect(await fixture.query('select version::int from $schema.effect order by at')).toEqual([
    { version: 1 },
    { version: 2 },
    { version: 3 },
  ])
})

/** The drain of a consumer whose dead letters the broker refuses to hand out as often as told, each time for this reason. */
function refusedDrain({ broker, consumer }: ConsumerFixture, refusals: readonly ErrorCode[], options: Partial<ConsumerOptions>) {
  let asked = 0
  const transport: Pick<Transport, 'receive' | 'deadLetterTopic'> = {
    deadLetterTopic: (of, by) => `${of}.${by}.dead`,
    receive: async (receiving) => {
      const refusal = refusals[asked]
      asked += 1
      if (refusal !== undefined) throw new WaybillError(refusal, `Refused, the ${asked}th time.`)
      return await broker.receive(receiving)
    },
  }
  const [drain] = deadLetterDrains(
    consumer({ transport, streams: [videos], ...options }).on(videos.VideoPublished, () => undefined),
  )
  return { drain: drain as Service, asked: () => asked }
}

function run(drain: Service): () => Promise<void> {
  const stop = new AbortController()
  const running = drain.run({ stopping: stop.signal, aborting: new AbortController().signal })
  return async () => {
    stop.abort()
    await running
  }
}

test('dead letters that are refused at the start are drained once they are not, and each new reason is reported once', async () => {
  const fixture = await consumerFixture(db)
  const clock = createFakeClock()
  const refusals = ['FORBIDDEN', 'FORBIDDEN', 'NOT_FOUND'] as const
  const { drain, asked } = refusedDrain(fixture, refusals, { clock })
  await fixture.publish({ ...published('a', 1), topic: videosDead })
  const stop = run(drain)
  for (const nth of refusals.keys()) {
    await eventually(() => asked() > nth && clock.sleepers() === 1)
    expect(asked()).toBe(nth + 1)
    await clock.advance(60_000)
  }
  await eventually(async () => (await fixture.count('dead_letter')) === 1)
  await stop()
  const codes = fixture.heard('consumer.disturbed').map(({ error, ...of }) => [of, (error as WaybillError).code])
  expect(codes).toEqual(['FORBIDDEN', 'NOT_FOUND'].map((code) => [{ consumer: 'catalog', topic: videosDead }, code]))
})

test('where a consumer that stops has no dead letters, nothing is reported, and those that it gets later are drained', async () => {
  const fixture = await consumerFixture(db)
  const clock = createFakeClock()
  const { drain, asked } = refusedDrain(fixture, ['NOT_FOUND'], { clock, onPoison: 'stop' })
  await fixture.publish({ ...published('a', 1), topic: videosDead })
  const stop = run(drain)
  await eventually(() => asked() === 1 && clock.sleepers() === 1)
  await clock.advance(60_000)
  await eventually(async () => (await fixture.count('dead_letter')) === 1)
  await stop()
  expect(fixture.heard('consumer.disturbed')).toEqual([])
})

test('a drain that waits to ask again ends with its process', async () => {
  const fixture = await consumerFixture(db)
  const clock = createFakeClock()
  const { drain, asked } = refusedDrain(fixture, ['FORBIDDEN'], { clock })
  const stop = run(drain)
  await eventually(() => asked() === 1 && clock.sleepers() === 1)
  await stop()
  expect([asked(), clock.sleepers()]).toEqual([1, 0])
})
