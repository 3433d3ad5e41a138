import { expect, test } from 'vitest'
import {
  accounts,
  consumerFixture,
  deposited,
  message,
  published,
  uncounted,
  videos,
  type ConsumerFixture,
} from '../../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import type { Consumer } from '../consumer.ts'
import type { ConsumerOptions } from '../model/consumer-options.ts'
import { discard, retryAfter } from '../model/handler.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

/** A consumer that writes down every event of `videos`, unless `fails` has something against it. */
function recorder(
  fixture: ConsumerFixture,
  fails: (title: string, attempt: number) => Error | undefined,
  options?: Partial<ConsumerOptions>,
): Consumer {
  return fixture.consumer(options).on(videos.VideoPublished, async (event, { tx, attempt }) => {
    await tx.query(`insert into ${fixture.schema}.effect (event_id, aggregate_id, version, note) values ($1, $2, $3, $4)`, [
      event.id,
      event.aggregateId,
      String(event.version),
      event.data.title,
    ])
    const failure = fails(event.data.title, attempt)
    if (failure !== undefined) throw failure
  })
}

const effects = async (fixture: ConsumerFixture): Promise<readonly string[]> =>
  (await fixture.query<{ name: string }>(`select aggregate_id || ' ' || version as name from $schema.effect order by at`)).map(
    ({ name }) => name,
  )

const redrive = async (fixture: ConsumerFixture): Promise<void> =>
  void (await fixture.query(`update $schema.dead_letter set state = 'redriving'`))

test.each([0, 1, 250, 498, 499])('a poison at place %i of 500 lets the other 499 commit at the first delivery', async (place) => {
  const fixture = await consumerFixture(db)
  const seen = new Map<string, number>()
  const consumer = recorder(
    fixture,
    (title) => {
      seen.set(title, (seen.get(title) ?? 0) + 1)
      return title === 'poison' ? new Error('I am poison') : undefined
    },
    { maxAttempts: 3, lingerMs: 200 },
  )
  await fixture.publish(
    ...Array.from({ length: 500 }, (_, i) => published(`v${String(i).padStart(3, '0')}`, 1, i === place ? 'poison' : 'fine')),
  )
  const stop = fixture.start(consumer)
  await eventually(async () => (await fixture.count('inbox')) === 499)
  await eventually(
    async () =>
      (await fixture.count('dead_letter', `state = 'dead' and reason = 'failed' and attempts = 3 and error = 'I am poison'`)) ===
      1,
  )
  await stop()
  expect(new Set(await effects(fixture)).size).toBe(499)
  expect(await fixture.count('effect')).toBe(499)
  const others = fixture.broker.deliveries.filter(
    ({ attributes, deliveryAttempt }) =>
      attributes['aggregate_id'] !== `v${String(place).padStart(3, '0')}` && deliveryAttempt !== 1,
  )
  expect(others).toEqual([])
  expect(fixture.heard('consumer.failed').map(({ attempts }) => attempts)).toEqual([1, 2])
  expect(fixture.heard('consumer.dead')).toHaveLength(1)
  expect(await fixture.count('delivery_attempt')).toBe(0)
})

test('hold: what follows a dead letter waits for it, and comes in order after the redrive; a second redrive changes nothing', async () => {
  const fixture = await consumerFixture(db)
  let broken = true
  const stop = fixture.start(
    recorder(fixture, (title) => (broken && title === 'poison' ? new Error('broken') : undefined), { maxAttempts: 2 }),
  )
  await fixture.publish(published('a', 1), published('a', 2, 'poison'), published('a', 3), published('b', 1))
  await eventually(async () => (await fixture.count('dead_letter')) === 1 && (await fixture.count('inbox_message')) === 1)
  await fixture.publish(published('a', 4))
  await eventually(async () => (await fixture.count('inbox_message')) === 2)
  expect((await effects(fixture)).toSorted()).toEqual(['a 1', 'b 1'])
  expect(await fixture.query(`select version::int, waiting from $schema.consumer_position where aggregate_id = 'a'`)).toEqual([
    { version: 1, waiting: 2 },
  ])

  await redrive(fixture)
  await eventually(
    async () => (await fixture.count('dead_letter', `state = 'dead' and redrives = 1 and jsonb_array_length(history) = 2`)) === 1,
  )
  expect(await fixture.count('inbox')).toBe(2)

  broken = false
  await redrive(fixture)
  await eventually(async () => (await fixture.count('inbox')) === 5)
  await eventually(async () => (await fixture.count('dead_letter', `state = 'redriven'`)) === 1)
  expect((await effects(fixture)).filter((name) => name.startsWith('a'))).toEqual(['a 1', 'a 2', 'a 3', 'a 4'])

  await redrive(fixture)
  await eventually(async () => (await fixture.count('dead_letter', `state = 'redriven' and redrives = 3`)) === 1)
  await stop()
  expect(await fixture.count('effect')).toBe(5)
  expect(await fixture.count('inbox_message')).toBe(0)
  expect(
    await fixture.query(`select version::int, waiting, held_by from $schema.consumer_position where aggregate_id = 'a'`),
  ).toEqual([{ version: 4, waiting: 0, held_by: null }])
})

test('pass: what follows a dead letter goes on, and the redrive applies it once, late', async () => {
  const fixture = await consumerFixture(db)
  let broken = true
  const balances = fixture.consumer({ maxAttempts: 2, onDead: 'pass' }).on(accounts.Deposited, async (event, { tx }) => {
    if (broken && event.version === 2n) throw new Error('broken')
    await tx.query(`insert into ${fixture.schema}.effect (event_id, aggregate_id, version) values ($1, $2, $3)`, [
      event.id,
      event.aggregateId,
      String(event.version),
    ])
  })
  const stop = fixture.start(balances)
  await fixture.publish(deposited('x', 1, 1), deposited('x', 2, 1), deposited('x', 3, 1))
  await eventually(async () => (await fixture.count('inbox')) === 2)
  expect(await fixture.count('dead_letter', `state = 'dead'`)).toBe(1)
  broken = false
  await redrive(fixture)
  await eventually(async () => (await fixture.count('dead_letter', `state = 'redriven'`)) === 1)
  await redrive(fixture)
  await eventually(async () => (await fixture.count('dead_letter', `state = 'redriven' and redrives = 2`)) === 1)
  await stop()
  expect(await effects(fixture)).toEqual(['x 1', 'x 3', 'x 2'])
  expect(await fixture.query('select version::int from $schema.consumer_position')).toEqual([{ version: 3 }])
})

test('onPoison stop: nothing is given up, and the key stands still behind it until the handler is mended', async () => {
  const fixture = await consumerFixture(db)
  let broken = true
  const stop = fixture.start(
    recorder(fixture, (title) => (broken && title === 'poison' ? new Error('broken') : undefined), {
      maxAttempts: 2,
      onPoison: 'stop',
    }),
  )
  await fixture.publish(published('a', 1, 'poison'), published('a', 2), published('b', 1))
  await eventually(() => fixture.heard('consumer.stopped').length >= 2)
  expect(await effects(fixture)).toEqual(['b 1'])
  expect(await fixture.count('dead_letter')).toBe(0)
  broken = false
  await eventually(async () => (await fixture.count('inbox')) === 3)
  await stop()
  expect(await effects(fixture)).toEqual(['b 1', 'a 1', 'a 2'])
})

test('a handler steers: discard puts aside for good, retryAfter names the delay, and what it wrote is rolled back', async () => {
  const fixture = await consumerFixture(db)
  const stop = fixture.start(
    recorder(fixture, (title, attempt) => {
      if (title === 'unwanted') return discard('negative total')
      return title === 'later' && attempt === 1 ? retryAfter(3) : undefined
    }),
  )
  await fixture.publish(published('a', 1, 'unwanted'), published('a', 2), published('b', 1, 'later'))
  await eventually(async () => (await fixture.count('inbox')) === 3)
  await stop()
  expect((await effects(fixture)).toSorted()).toEqual(['a 2', 'b 1'])
  expect(await fixture.query('select state, reason, error from $schema.dead_letter')).toEqual([
    { state: 'discarded', reason: 'discarded', error: 'negative total' },
  ])
  expect(fixture.heard('consumer.failed')).toMatchObject([{ delayMs: 3, attempts: 1 }])
})

test('what cannot be read becomes a dead letter at its turn, with a reason, and is never acknowledged in silence', async () => {
  const fixture = await consumerFixture(db)
  const stop = fixture.start(recorder(fixture, () => undefined, { onDead: 'pass' }))
  const event = { stream: videos, type: 'VideoPublished', version: 1 }
  const { event_id: _gone, ...anonymous } = published('g', 1).attributes
  await fixture.publish(
    message({ ...event, id: 'a', type: 'VideoRated' }, {}),
    message({ ...event, id: 'b' }, { title: 'x' }, { schema_version: '7' }),
    message({ ...event, id: 'c' }, { title: 7 }),
    { ...message({ ...event, id: 'd' }, {}), body: Buffer.from('not json') },
    message({ ...event, id: 'e', type: '__proto__' }, {}),
    message({ ...event, id: 'f' }, {}, { version: '99999999999999999999' }),
    { ...published('g', 1), attributes: anonymous },
    message({ ...event, id: 'h' }, {}, { aggregate_type: '__proto__', event_type: 'constructor' }),
    published('i', 1),
  )
  await eventually(async () => (await fixture.count('dead_letter')) === 7 && (await fixture.count('inbox')) === 1)
  await stop()
  const letters = await fixture.query(`select attributes->>'aggregate_id' as id, reason from $schema.dead_letter order by 1`)
  expect(letters).toEqual([
    { id: 'a', reason: 'unknown_type' },
    { id: 'b', reason: 'unknown_schema' },
    { id: 'c', reason: 'invalid' },
    { id: 'd', reason: 'invalid' },
    { id: 'e', reason: 'unknown_type' },
    { id: 'f', reason: 'not_ours' },
    { id: 'g', reason: 'not_ours' },
  ])
  expect(await effects(fixture)).toEqual(['i 1'])
  expect(fixture.heard('consumer.ignored')).toMatchObject([{ aggregateType: '__proto__' }])
})

test('an unreadable delta waits for its turn before it is given up, and those behind it follow the policy', async () => {
  const fixture = await consumerFixture(db)
  const stop = fixture.start(
    fixture.consumer({ onDead: 'pass' }).on(accounts.Deposited, async (event, { tx }) => {
      await tx.query(`insert into ${fixture.schema}.effect (aggregate_id, version) values ($1, $2)`, [
        event.aggregateId,
        String(event.version),
      ])
    }),
  )
  const unreadable = message({ stream: accounts, type: 'Deposited', id: 'x', version: 2 }, { amount: 'much' })
  await fixture.publish({ ...unreadable, orderingKey: 'early' }, { ...deposited('x', 3, 1), orderingKey: 'too' })
  await eventually(async () => (await fixture.count('inbox_message')) === 2)
  expect(await fixture.count('dead_letter')).toBe(0)
  await fixture.publish(deposited('x', 1, 1))
  await eventually(async () => (await fixture.count('inbox')) === 2)
  await stop()
  expect(await effects(fixture)).toEqual(['x 1', 'x 3'])
  expect(await fixture.count('dead_letter', `reason = 'invalid'`)).toBe(1)
})

test('an event that keeps ending the process is given up by those that come after, and nobody else is', async () => {
  const fixture = await consumerFixture(db)
  const [killer, neighbour] = [published('a', 1, 'killer'), published('b', 1)]
  for (const each of [killer, neighbour]) {
    await fixture.query(
      `insert into $schema.delivery_attempt (consumer, generation, event_id, unfinished) values ('catalog', 1, $1::uuid, $2)`,
      [each.attributes['event_id'] ?? '', each === killer ? 3 : 1],
    )
  }
  // What comes first after a start is looked up.
  const handled: string[] = []
  const stop = fixture.start(
    recorder(
      fixture,
      (title) => {
        handled.push(title)
        return undefined
      },
      { transport: uncounted(fixture.broker) },
    ),
  )
  await fixture.publish(killer, neighbour)
  await eventually(
    async () => (await fixture.count('dead_letter', `reason = 'crashed'`)) === 1 && (await fixture.count('inbox')) === 1,
  )
  await stop()
  expect(handled).toEqual(['b 1'])
  expect(await fixture.count('delivery_attempt')).toBe(0)
})

test.each(['direct', 'stored'] as const)(
  'onPoison stop: what keeps ending the process rests and is not given up (%s)',
  async (mode) => {
    const fixture = await consumerFixture(db)
    const killer = published('a', 1, 'killer')
    // The rest doubles from the third process on: 54 minutes, of which 53 are over.
    await fixture.query(
      `insert into $schema.delivery_attempt (consumer, generation, event_id, unfinished, started_at)
     values ('catalog', 1, $1::uuid, 19, clock_timestamp() - interval '53 minutes')`,
      [killer.attributes['event_id'] ?? ''],
    )
    const options = { mode, onPoison: 'stop', onDead: 'pass', backoff: { firstMs: 50, maxMs: 50 } } as const
    const stop = fixture.start(recorder(fixture, () => undefined, { ...options, transport: uncounted(fixture.broker) }))
    await fixture.publish(killer, published('a', 2), published('b', 1))
    await eventually(() => fixture.heard('consumer.stopped').length >= 2)
    await eventually(async () => (await fixture.count('inbox')) === 1)
    expect(fixture.heard('consumer.stopped')[0]).toMatchObject({
      aggregateId: 'a',
      attempts: 19,
      error: 'The process ended 19 times while it handled this event.',
    })
    expect(await effects(fixture)).toEqual(['b 1'])
    expect(await fixture.count('dead_letter')).toBe(0)

    await fixture.query(`update $schema.delivery_attempt set started_at = clock_timestamp() - interval '55 minutes'`)
    await eventually(async () => (await fixture.count('inbox')) === 3)
    await stop()
    expect(await effects(fixture)).toEqual(['b 1', 'a 1', 'a 2'])
    expect(await fixture.count('delivery_attempt')).toBe(0)
  },
)

test('a stored delta that fails does not take down the event that closed its gap', async () => {
  const fixture = await consumerFixture(db)
  const stop = fixture.start(
    fixture.consumer({ maxAttempts: 2 }).on(accounts.Deposited, async (event, { tx }) => {
      await tx.query(`insert into ${fixture.schema}.effect (aggregate_id, version) values ($1, $2)`, [
        event.aggregateId,
        String(event.version),
      ])
      if (event.version === 2n) throw new Error('two')
    }),
  )
  await fixture.publish({ ...deposited('x', 2, 1), orderingKey: 'early' })
  await eventually(async () => (await fixture.count('inbox_message')) === 1)
  await fixture.publish(deposited('x', 1, 1))
  await eventually(async () => (await fixture.count('dead_letter')) === 1)
  await stop()
  expect(await effects(fixture)).toEqual(['x 1'])
  expect(await fixture.query('select version::int, waiting from $schema.consumer_position')).toEqual([{ version: 1, waiting: 0 }])
})
