import { expect, test } from 'vitest'
import { consumerFixture, published, videos, type ConsumerFixture } from '../../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { WaybillError, type ErrorCode } from '../../core/errors.ts'
import type { Service } from '../../core/service/lifetime.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { createFakeClock } from '../../testing/kit/fake-clock.ts'
import type { Transport } from '../../transport/port/transport.ts'
import type { ConsumerOptions } from '../model/consumer-options.ts'
import { deadLetterDrains } from './dead-letter-drains.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
const topic = `${videos.topic}.catalog.dead`

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
  await fixture.publish({ ...published('a', 1), topic })
  const stop = run(drain)
  for (const nth of refusals.keys()) {
    await eventually(() => asked() > nth && clock.sleepers() === 1)
    expect(asked()).toBe(nth + 1)
    await clock.advance(60_000)
  }
  await eventually(async () => (await fixture.count('dead_letter')) === 1)
  await stop()
  const codes = fixture.heard('consumer.disturbed').map(({ error, ...of }) => [of, (error as WaybillError).code])
  expect(codes).toEqual(['FORBIDDEN', 'NOT_FOUND'].map((code) => [{ consumer: 'catalog', topic }, code]))
})

test('where a consumer that stops has no dead letters, nothing is reported, and those that it gets later are drained', async () => {
  const fixture = await consumerFixture(db)
  const clock = createFakeClock()
  const { drain, asked } = refusedDrain(fixture, ['NOT_FOUND'], { clock, onPoison: 'stop' })
  await fixture.publish({ ...published('a', 1), topic })
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
