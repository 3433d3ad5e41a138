import { describe, expect, test } from 'vitest'
import { accounts, consumerFixture, published, videos } from '../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../test/setup/test-database.ts'
import { errorMessage } from '../core/errors.ts'
import { tombstone } from '../core/event/event.ts'
import { stream } from '../core/event/stream.ts'
import { fromPg } from '../postgres/adapters/from-pg.ts'
import { eventually } from '../testing/kit/eventually.ts'
import { createHealth } from '../ops/status/health.ts'
import { createFakeClock } from '../testing/kit/fake-clock.ts'
import { memory, type MemoryTransport } from '../transport/memory/memory.ts'
import type { Transport } from '../transport/port/transport.ts'
import { createConsumer } from './consumer.ts'
import { retryAfter } from './model/handler.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

test('a paused consumer takes nothing, and goes on where it was when it is resumed', async () => {
  const fixture = await consumerFixture(db)
  const stop = fixture.start(fixture.consumer().on(videos.VideoPublished, () => undefined))
  await fixture.publish(published('a', 1))
  await fixture.settled(1)
  await fixture.query(`update $schema.consumer set paused = true`)
  await eventually(() => fixture.heard('consumer.paused').length === 1)
  await fixture.publish(published('a', 2))
  await stop()
  const restarted = fixture.start(fixture.consumer().on(videos.VideoPublished, () => undefined))
  await eventually(() => fixture.heard('consumer.paused').length === 2)
  await fixture.query(`update $schema.consumer set paused = false`)
  await fixture.settled(2)
  await restarted()
  // Whoever starts paused says so: otherwise a restart would silence the alert of a pause that was forgotten.
  expect(fixture.heard('consumer.paused').map(({ paused }) => paused)).toEqual([true, true, false])
})

/** No transaction can be begun. */
async function noDatabase(): Promise<never> {
  throw Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' })
}

/** The fixture's broker, out of reach until `back` is called: whoever asks it for deliveries waits. */
function unreachable(broker: MemoryTransport): { readonly transport: Transport; asked(): number; back(): void } {
  const { promise: isBack, resolve: back } = Promise.withResolvers<void>()
  let asked = 0
  const receive: Transport['receive'] = async (options) => {
    asked += 1
    await isBack
    return await broker.receive(options)
  }
  return { transport: { ...broker, receive }, asked: () => asked, back }
}

describe('while the broker is out of reach', () => {
  test('a consumer that starts is alive, not ready, and does all that needs the database only', async () => {
    const fixture = await consumerFixture(db)
    const options = { mode: 'stored' as const, streams: [videos] }
    const notNow = (): never => {
      throw retryAfter(3_600_000)
    }
    const storing = fixture.start(fixture.consumer(options).on(videos.VideoPublished, notNow))
    await fixture.publish(published('a', 1))
    await eventually(async () => (await fixture.count('inbox_message', 'attempts > 0')) === 1)
    await storing()
    await fixture.query(`update $schema.inbox_message set next_attempt_at = now()`)
    await fixture.query(`update $schema.consumer set ready_at = now()`)

    const { transport, asked, back } = unreachable(fixture.broker)
    const clock = createFakeClock()
    const consumer = fixture.consumer({ ...options, transport, clock }).on(videos.VideoPublished, () => undefined)
    const health = createHealth({ consumers: [consumer] })
    const stop = fixture.start(consumer)
    await eventually(() => asked() === 1)
    await eventually(async () => {
      await clock.advance(1_000)
      expect(await fixture.count('inbox')).toBe(1)
    })
    await clock.advance(120_000)
    await eventually(() => expect(health.live()).toEqual({ ok: true, reasons: [], notes: [] }))
    expect((await health.ready()).reasons).toMatchObject([
      { code: 'lagging', message: expect.stringContaining('waits for the broker') },
    ])
    await fixture.publish(published('a', 2))
    back()
    await eventually(async () => {
      await clock.advance(1_000)
      expect(await fixture.count('inbox')).toBe(2)
    })
    await stop()
  })

  test('a pause and a resumption are taken up, and the resumed one reads when it is back', async () => {
    const fixture = await consumerFixture(db)
    const { transport, asked, back } = unreachable(fixture.broker)
    const consumer = fixture.consumer({ transport, streams: [videos] }).on(videos.VideoPublished, () => undefined)
    const stop = fixture.start(consumer)
    await eventually(() => asked() === 1)
    for (const [index, paused] of [true, false, true, false].entries()) {
      await fixture.query(`update $schema.consumer set paused = ${paused}`)
      await eventually(() => fixture.heard('consumer.paused').length === index + 1)
    }
    await eventually(() => asked() === 3)
    back()
    await fixture.publish(published('a', 1))
    await fixture.settled(1)
    await stop()
    expect(fixture.heard('consumer.paused').map(({ paused }) => paused)).toEqual([true, false, true, false])
  })

  test('a stop does not wait for it', async () => {
    const fixture = await consumerFixture(db)
    const { transport, asked } = unreachable(fixture.broker)
    const stop = fixture.start(fixture.consumer({ transport }).on(videos.VideoPublished, () => undefined))
    await eventually(() => asked() > 0)
    await stop()
  })

  test('what it refuses at last ends the consumer, with its loops', async () => {
    const fixture = await consumerFixture(db)
    const refusal = Promise.withResolvers<never>()
    const transport = { ...fixture.broker, receive: () => refusal.promise }
    const consumer = fixture.consumer({ transport }).on(videos.VideoPublished, () => undefined)
    const stop = fixture.start(consumer)
    await eventually(() => fixture.heard('consumer.in-flight').length >= 1)
    refusal.reject(new Error('no such topic'))
    await eventually(() => consumer.lastPassAgeMs() === undefined)
    await expect(stop()).rejects.toThrow('no such topic')
  })

  test('what it refuses at last ends the consumer, although a batch waits for the database', async () => {
    const fixture = await consumerFixture(db)
    const options = { mode: 'stored' as const, streams: [videos], db: { ...db, attempt: noDatabase } }
    const storing = fixture.start(fixture.consumer(options).on(videos.VideoPublished, () => undefined))
    await fixture.publish(published('a', 1))
    await eventually(async () => (await fixture.count('inbox_message')) === 1)
    await storing()
    const refusal = Promise.withResolvers<never>()
    const transport = { ...fixture.broker, receive: () => refusal.promise }
    const consumer = fixture.consumer({ ...options, transport }).on(videos.VideoPublished, () => undefined)
    const before = fixture.heard('consumer.retried').length
    const stop = fixture.start(consumer)
    await eventually(() => fixture.heard('consumer.retried').length > before)
    refusal.reject(new Error('no such topic'))
    await eventually(() => consumer.lastPassAgeMs() === undefined)
    await expect(stop()).rejects.toThrow('no such topic')
  })
})

test('stopping finishes what is in hand', async () => {
  const fixture = await consumerFixture(db)
  let entered = 0
  const { promise: goOn, resolve: letGo } = Promise.withResolvers<void>()
  const consumer = fixture.consumer().on(videos.VideoPublished, async () => {
    entered += 1
    await goOn
  })
  const stop = fixture.start(consumer)
  await fixture.publish(...Array.from({ length: 5 }, (_, i) => published(`v${i}`, 1)))
  await eventually(() => entered > 0)
  // The stop is asked for while a handler is at work, and only then may the handler end.
  const stopped = stop()
  letGo()
  await stopped
  const inbox = await fixture.count('inbox')
  expect(inbox).toBe(entered)
  expect(inbox).toBeGreaterThan(0)
})

describe('what cannot work is refused', () => {
  const options = { db, transport: memory(), name: 'catalog', streams: [videos] }

  test('when it is registered', () => {
    const consumer = createConsumer(options)
    expect(() => createConsumer(options).on(accounts.Deposited, () => undefined)).toThrow(/not among its streams/)
    expect(() => consumer.on(undefined as never, () => undefined)).toThrow(/takes an event type/)
    expect(() => consumer.on(videos.VideoPublished, undefined as never)).toThrow(/must be a function/)
    consumer.on(videos.VideoPublished, () => undefined)
    expect(() => consumer.on(videos.VideoPublished, () => undefined)).toThrow(/has a handler already/)
    expect(() => createConsumer(options).project(accounts as never, { table: 't', key: 'k', set: () => ({}) })).toThrow(
      /is a delta/,
    )
    expect(() => createConsumer({ ...options, streams: [videos, videos] })).toThrow(/listed twice/)
    expect(() => createConsumer({ ...options, name: 'No' })).toThrow(/lower-case/)
    expect(() => createConsumer({ ...options, batchsize: 3 } as never)).toThrow(/Did you mean "batchSize"/)
    consumer.routes()
    expect(() => consumer.on(videos.VideoRemoved, () => undefined)).toThrow(/after it was started/)
  })

  test('when it starts', async () => {
    const fixture = await consumerFixture(db)
    const life = { stopping: new AbortController().signal, aborting: new AbortController().signal }
    await expect(fixture.consumer().run(life)).rejects.toThrow(/does nothing/)
    await expect(
      fixture
        .consumer({ inbox: false })
        .on(videos.VideoPublished, () => undefined)
        .run(life),
    ).rejects.toThrow(/inbox: false/)
    // Its aggregates have no partition of their own, so the order of a log says nothing about their versions.
    const readings = stream('reading', { topic: 'meter.events', ordering: 'version', events: { ReadingTaken: tombstone() } })
    await expect(
      fixture
        .consumer({ streams: [readings], inbox: false, offsets: 'postgres' })
        .on(readings.ReadingTaken, () => undefined)
        .run({ ...life, stopping: AbortSignal.abort() }),
    ).rejects.toMatchObject({ code: 'INVALID_OPTION', message: expect.stringContaining("ordering: 'version' of reading") })
    const projecting = (table: string): Promise<void> =>
      fixture
        .consumer()
        .project(videos, { table, key: 'video_id', set: (e) => ({ title: e.data.title }) })
        .run(life)
    await expect(projecting(`${fixture.schema}.nowhere`)).rejects.toThrow(/does not exist. Run:\ncreate table/)
    await fixture.query('create table $schema.bare (title text not null)')
    const bare = projecting(`${fixture.schema}.bare`)
    await expect(bare).rejects.toThrow(/lacks video_id, version, deleted_at. Run:\nalter table .* add column/)
    const fix = await bare.then(
      () => '',
      (error: unknown) => errorMessage(error).split('Run:\n')[1] ?? '',
    )
    await fixture.query(fix)
    await expect(projecting(`${fixture.schema}.bare`)).rejects.toThrow(/no unique index on video_id. Run:\ncreate unique index/)
    await fixture.query('create unique index on $schema.bare (video_id)')
    await expect(projecting(`${fixture.schema}.bare`)).rejects.toThrow(/demands a value for title.*drop not null/s)
  })
})
