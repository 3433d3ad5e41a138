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
import { drainBrokerDeadLetters } from './broker-dead-letters.ts'
import type { Consumer } from '../consumer.ts'
import type { ConsumerOptions } from '../model/consumer-options.ts'
import { groupDeadLetters, listDeadLetters, showDeadLetter, type DeadLetterFilter } from './dead-letters.ts'
import { discardDeadLetters } from './discard.ts'
import { pauseConsumer, resumeConsumer } from './pause.ts'
import { planRedrive, redriveDeadLetters, resumeRedrive } from './redrive.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

/** Writes down every deposit, unless its amount is in `broken`. */
function ledger(fixture: ConsumerFixture, broken: ReadonlySet<number>, options?: Partial<ConsumerOptions>): Consumer {
  const note = async (
    event: { id: string; aggregateId: string; version: bigint },
    tx: { query: typeof db.query },
  ): Promise<void> =>
    void (await tx.query(`insert into ${fixture.schema}.effect (event_id, aggregate_id, version) values ($1, $2, $3)`, [
      event.id,
      event.aggregateId,
      String(event.version),
    ]))
  return fixture
    .consumer({ maxAttempts: 1, ...options })
    .on(accounts.Deposited, async (event, { tx }) => {
      if (broken.has(event.data.amount)) throw new Error(`${event.data.amount} is broken`)
      await note(event, tx)
    })
    .on(videos.VideoPublished, async (event, { tx }) => {
      if (broken.has(event.data.title.length)) throw new Error('the title is broken')
      await note(event, tx)
    })
}

const effects = async (fixture: ConsumerFixture): Promise<readonly string[]> =>
  (await fixture.query<{ name: string }>(`select aggregate_id || ' ' || version as name from $schema.effect order by at`)).map(
    ({ name }) => name,
  )

const store = ({ schema }: ConsumerFixture): { db: typeof db; schema: string; actor: string } => ({ db, schema, actor: 'ada' })

const letters = (fixture: ConsumerFixture, state: string): Promise<number> => fixture.count('dead_letter', `state = '${state}'`)

test('letters are grouped by consumer, reason and type, and one shows its history and its bytes', async () => {
  const fixture = await consumerFixture(db)
  const stop = fixture.start(ledger(fixture, new Set([7])))
  await fixture.publish(deposited('x', 1, 7), deposited('y', 1, 7), published('v', 1, 'seven77'), deposited('z', 1, 1))
  await eventually(async () => (await letters(fixture, 'dead')) === 3)
  await stop()
  expect(await groupDeadLetters(store(fixture))).toMatchObject([
    { consumer: 'catalog', reason: 'failed', eventType: 'Deposited', count: 2, error: '7 is broken' },
    { consumer: 'catalog', reason: 'failed', eventType: 'VideoPublished', count: 1 },
  ])
  expect(await groupDeadLetters(store(fixture), { consumer: 'other' })).toEqual([])
  const [letter] = await listDeadLetters(store(fixture), { aggregateType: 'account', aggregateId: 'y' })
  expect(await showDeadLetter(store(fixture), letter?.id ?? '', { payload: true })).toMatchObject({
    aggregateId: 'y',
    topic: 'bank.events',
    attributes: { event_type: 'Deposited' },
    body: Buffer.from('{"amount":7}'),
    history: [{ state: 'dead', error: '7 is broken', attempts: 1 }],
  })
  await expect(showDeadLetter(store(fixture), '999')).rejects.toMatchObject({ code: 'NOT_FOUND' })
  await expect(listDeadLetters(store(fixture), { aggregateId: 'y' })).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  await expect(groupDeadLetters(store(fixture), { aggregateId: 'y' })).rejects.toMatchObject({ code: 'INVALID_OPTION' })
})

test('every field of a filter restricts the letters and their groups alike, and one that names nothing is no filter', async () => {
  const fixture = await consumerFixture(db)
  const stop = fixture.start(ledger(fixture, new Set([7])))
  const [x, v] = [deposited('x', 1, 7), published('v', 1, 'seven77')]
  await fixture.publish(x, v, { ...x, attributes: { ...x.attributes, event_id: 'unknown' } })
  await eventually(async () => (await letters(fixture, 'dead')) === 3)
  await stop()
  const [letter] = await listDeadLetters(store(fixture), { aggregateType: 'account' })
  const filters: readonly DeadLetterFilter[] = [
    { consumer: 'other' },
    { reason: 'not_ours' },
    { eventType: 'VideoPublished' },
    { ids: [letter?.id ?? ''] },
    { ids: [] },
    { eventId: letter?.eventId },
    { aggregateType: 'video' },
    { aggregateType: 'account', aggregateId: 'y' },
  ]
  for (const filter of filters) {
    const found = (await listDeadLetters(store(fixture), { ...filter, state: 'dead' })).length
    expect({ ...filter, found: found < 2 }).toEqual({ ...filter, found: true })
    const counts = (await groupDeadLetters(store(fixture), filter)).map(({ count }) => count)
    expect({ ...filter, found: counts.reduce((sum, count) => sum + count, 0) }).toEqual({ ...filter, found })
  }
  const unsaid = [{}, { consumer: undefined }, { reason: 'failed', consumer: undefined }, { consumers: 'x' }] as { all: true }[]
  for (const act of [planRedrive, redriveDeadLetters, discardDeadLetters])
    for (const filter of unsaid)
      await expect(act({ ...store(fixture), filter })).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  expect(await letters(fixture, 'dead')).toBe(3)
})

test('a redrive of a group applies each letter once, what waited follows in order, and a second redrive finds nothing', async () => {
  const fixture = await consumerFixture(db)
  const broken = new Set([7])
  const other = ledger(fixture, new Set(), { name: 'other' })
  const stop = fixture.start(ledger(fixture, broken), other)
  await fixture.publish(
    deposited('x', 1, 7),
    deposited('x', 2, 1),
    deposited('x', 3, 1),
    deposited('y', 1, 7),
    deposited('z', 1, 1),
  )
  await eventually(async () => (await letters(fixture, 'dead')) === 2 && (await fixture.count('inbox_message')) === 2)
  await eventually(async () => (await fixture.count('inbox')) === 6)
  await fixture.query('delete from $schema.effect')

  broken.clear()
  const filter = { consumer: 'catalog', reason: 'failed', eventType: 'Deposited' }
  expect(await planRedrive({ ...store(fixture), filter })).toMatchObject([
    { verdict: 'apply', holding: 2, because: 'It is applied, and 2 that wait behind it follow.' },
    { verdict: 'apply', holding: 0 },
  ])
  expect(await letters(fixture, 'dead')).toBe(2)
  const outcome = await redriveDeadLetters({ ...store(fixture), filter, reason: 'mended' })
  expect(outcome).toMatchObject({ redriven: 2, refused: 0 })
  await eventually(async () => (await fixture.count('inbox', `consumer = 'catalog'`)) === 5)
  await eventually(async () => (await letters(fixture, 'redriven')) === 2)
  expect(await redriveDeadLetters({ ...store(fixture), filter })).toMatchObject({ redriven: 0 })
  await stop()
  expect((await effects(fixture)).filter((name) => name.startsWith('x'))).toEqual(['x 1', 'x 2', 'x 3'])
  expect(await fixture.count('effect')).toBe(4)
  expect(
    await fixture.query(`select actor, action, details->>'reason' as reason from $schema.audit_log where action = 'dlq.redrive'`),
  ).toEqual([{ actor: 'ada', action: 'dlq.redrive', reason: 'mended' }])
  expect(await fixture.query(`select state, progress from $schema.operation where id = '${outcome.operation}'`)).toEqual([
    { state: 'finished', progress: { redriven: 2, refused: 0 } },
  ])
})

test('a plan predicts duplicates, stale versions and order, and refuses what is capped, forgotten or superseded', async () => {
  const fixture = await consumerFixture(db)
  const stop = fixture.start(ledger(fixture, new Set([7]), { onDead: 'pass' }))
  await fixture.publish(
    deposited('stale', 1, 7),
    deposited('stale', 2, 1),
    deposited('order', 1, 7),
    deposited('order', 2, 7),
    ...['dup', 'capped', 'forgotten', 'superseded', 'fine'].map((id) => deposited(id, 1, 7)),
  )
  await eventually(async () => (await letters(fixture, 'dead')) === 8 && (await fixture.count('inbox')) === 1)
  await stop()
  const change = (id: string, set: string): Promise<unknown> =>
    fixture.query(`update $schema.dead_letter set ${set} where aggregate_id = '${id}'`)
  await change('capped', 'redrives = 10')
  await change('forgotten', `dead_at = dead_at - interval '40 days'`)
  await change('superseded', 'generation = 9')
  await fixture.query(
    `insert into $schema.inbox (consumer, generation, event_id, source) select consumer, generation, event_id, 'account' from $schema.dead_letter where aggregate_id = 'dup'`,
  )
  await fixture.query(`update $schema.consumer set forgotten_before = clock_timestamp() - interval '35 days'`)
  const planned = await planRedrive({ ...store(fixture), filter: { consumer: 'catalog' } })
  const verdicts = Object.fromEntries(planned.map((each) => [`${each.aggregateId} ${each.version}`, each.verdict]))
  expect(verdicts).toEqual({
    'stale 1': 'stale',
    'order 1': 'stale',
    'order 2': 'apply',
    'dup 1': 'duplicate',
    'capped 1': 'capped',
    'forgotten 1': 'forgotten',
    'superseded 1': 'superseded',
    'fine 1': 'apply',
  })
  const [, second] = await listDeadLetters(store(fixture), { aggregateType: 'account', aggregateId: 'order' })
  expect(await planRedrive({ ...store(fixture), filter: { ids: [second?.id ?? ''] } })).toMatchObject([
    { verdict: 'out-of-order', because: expect.stringContaining('Version 1') },
  ])

  const outcome = await redriveDeadLetters({ ...store(fixture), filter: { all: true } })
  expect(outcome).toMatchObject({ redriven: 5, refused: 3 })
  expect(outcome.refusals.find(({ verdict }) => verdict === 'forgotten')?.because).toMatch(
    /before the time that the inbox of catalog remembers.*applied twice/,
  )
  const insisted = { ...store(fixture), filter: { consumer: 'catalog' }, beyondMemory: true, maxRedrives: 11 }
  expect(await redriveDeadLetters(insisted)).toMatchObject({ redriven: 2, refused: 1 })
})

test('an interrupted redrive goes on where it was, and a finished one does nothing more', async () => {
  const fixture = await consumerFixture(db)
  await fixture.query(`insert into $schema.consumer (name) values ('catalog')`)
  await fixture.query(
    `insert into $schema.dead_letter (consumer, generation, event_id, event_type, topic, reason, error, attempts, message_id, attributes, body, published_at, first_failed_at)
     select 'catalog', 1, gen_random_uuid(), 'Deposited', 'bank.events', 'failed', 'broken', 1, 'm', '{}', '', clock_timestamp(), clock_timestamp() from generate_series(1, 1200)`,
  )
  let batches = 0
  const failing = {
    ...db,
    query: db.query.bind(db),
    attempt: ((options, work) => {
      batches += 1
      if (batches === 4) throw new Error('the machine is gone')
      return db.attempt(options, work)
    }) as typeof db.attempt,
  }
  const action = { ...store(fixture), db: failing, filter: { consumer: 'catalog' } }
  await expect(redriveDeadLetters(action)).rejects.toThrow('the machine is gone')
  expect(await letters(fixture, 'redriving')).toBe(1_000)
  const [operation] = await fixture.query<{ id: string }>('select id::text from $schema.operation')
  expect(await resumeRedrive(store(fixture), operation?.id ?? '')).toMatchObject({ redriven: 1_200, refused: 0 })
  expect(await letters(fixture, 'redriving')).toBe(1_200)
  expect(await resumeRedrive(store(fixture), operation?.id ?? '')).toMatchObject({ redriven: 1_200 })
  expect(await fixture.count('audit_log', `action = 'dlq.redrive'`)).toBe(3)
})

test('a discarded letter lets the next versions go on in order, and its late delivery has no effect', async () => {
  const fixture = await consumerFixture(db)
  const poison = deposited('x', 2, 7)
  const broken = new Set([7])
  const stop = fixture.start(ledger(fixture, broken))
  await fixture.publish(deposited('x', 1, 1), poison, deposited('x', 3, 1), published('v', 1, 'seven77'), published('v', 2))
  await eventually(async () => (await letters(fixture, 'dead')) === 2 && (await fixture.count('inbox_message')) === 2)
  expect((await effects(fixture)).toSorted()).toEqual(['x 1'])

  expect(await discardDeadLetters({ ...store(fixture), filter: { consumer: 'catalog' }, reason: 'a test' })).toMatchObject({
    discarded: { length: 2 },
  })
  await eventually(async () => (await effects(fixture)).length === 3)
  broken.clear()
  await fixture.publish(deposited('x', 4, 1), { ...poison, orderingKey: 'late' })
  await eventually(async () => (await effects(fixture)).length === 4)
  await eventually(() => fixture.heard('consumer.applied').some(({ duplicates }) => duplicates > 0))
  await stop()
  expect((await effects(fixture)).toSorted()).toEqual(['v 2', 'x 1', 'x 3', 'x 4'])
  expect(await fixture.count('inbox_message')).toBe(0)
  expect(await fixture.count('consumer_position', 'waiting <> 0 or held_by is not null')).toBe(0)
  expect(await letters(fixture, 'discarded')).toBe(2)
  expect(await fixture.count('audit_log', `action = 'dlq.discard' and details->>'reason' = 'a test'`)).toBe(1)
  expect(await discardDeadLetters({ ...store(fixture), filter: { all: true } })).toEqual({ discarded: [], applied: [] })
})

test('a paused aggregate waits and goes on in order; others are not disturbed; a paused consumer takes nothing', async () => {
  const fixture = await consumerFixture(db)
  const stop = fixture.start(ledger(fixture, new Set()))
  await fixture.publish(deposited('x', 1, 1))
  await eventually(async () => (await fixture.count('effect')) === 1)
  const aggregate = { ...store(fixture), consumer: 'catalog', aggregate: { type: 'account', id: 'x' } }
  expect(await pauseConsumer(aggregate)).toBe(true)
  expect(await pauseConsumer(aggregate)).toBe(false)
  await fixture.publish(deposited('x', 2, 1), deposited('x', 3, 1), deposited('y', 1, 1))
  await eventually(async () => (await fixture.count('effect')) === 2 && (await fixture.count('inbox_message')) === 2)
  expect(await resumeConsumer(aggregate)).toBe(true)
  await eventually(async () => (await fixture.count('effect')) === 4)
  expect(await effects(fixture)).toEqual(['x 1', 'y 1', 'x 2', 'x 3'])
  expect(await resumeConsumer(aggregate)).toBe(false)

  const whole = { ...store(fixture), consumer: 'catalog', reason: 'deploy' }
  expect(await pauseConsumer(whole)).toBe(true)
  await eventually(() => fixture.heard('consumer.paused').length === 1)
  await fixture.publish(deposited('y', 2, 1))
  expect(await resumeConsumer(whole)).toBe(true)
  await eventually(async () => (await fixture.count('effect')) === 5)
  await stop()
  expect(fixture.heard('consumer.paused')).toMatchObject([{ paused: true }, { paused: false }])
  expect(await fixture.count('audit_log')).toBe(4)
  await expect(pauseConsumer({ ...whole, consumer: 'nobody' })).rejects.toMatchObject({ code: 'NOT_FOUND' })
})

test('what the broker gave up on becomes a letter here, once, and a redrive applies it and what waited for it', async () => {
  const fixture = await consumerFixture(db)
  const topic = 'bank.events.catalog.dead'
  const drain = drainBrokerDeadLetters({
    db,
    schema: fixture.schema,
    transport: fixture.broker,
    consumer: 'catalog',
    topics: [topic],
  })
  const stop = fixture.start(ledger(fixture, new Set()), drain as Consumer)
  const lost = deposited('x', 1, 1)
  const done = deposited('y', 1, 1)
  await fixture.publish(done)
  await eventually(async () => (await fixture.count('inbox')) === 1)
  const { event_id: _gone, ...anonymous } = lost.attributes
  await fixture.publish({ ...lost, topic }, { ...lost, topic }, { ...done, topic }, { ...lost, topic, attributes: anonymous })
  await eventually(async () => (await letters(fixture, 'dead')) === 2)
  await fixture.publish(deposited('x', 2, 1))
  await eventually(async () => (await fixture.count('inbox_message')) === 1)
  expect(await groupDeadLetters(store(fixture))).toMatchObject([
    { reason: 'broker', eventType: 'Deposited', count: 1 },
    { reason: 'not_ours', count: 1 },
  ])
  await redriveDeadLetters({ ...store(fixture), filter: { reason: 'broker' } })
  await eventually(async () => (await fixture.count('effect')) === 3)
  await stop()
  expect((await effects(fixture)).toSorted()).toEqual(['x 1', 'x 2', 'y 1'])
})

test('a dead letter keeps no secret that its handler’s error quoted', async () => {
  const fixture = await consumerFixture(db)
  const broken = (): never => {
    throw new Error('connect ECONNREFUSED postgres://ada:hunter2@db/pay Authorization: Bearer eyJsecret')
  }
  const stop = fixture.start(fixture.consumer({ maxAttempts: 1 }).on(videos.VideoPublished, broken))
  await fixture.publish(published('a', 1))
  await eventually(async () => (await fixture.count('dead_letter')) === 1)
  await stop()
  const rows = await fixture.query('select error, history::text as history from $schema.dead_letter')
  expect(JSON.stringify(rows)).toContain('postgres://ada:***@db/pay')
  expect(JSON.stringify(rows)).not.toMatch(/hunter2|eyJsecret/)
})

test('a signal of a retry keeps no secret that the error quoted', async () => {
  const fixture = await consumerFixture(db)
  let attempts = 0
  const away: typeof db = {
    ...db,
    attempt: async (options, work) => {
      attempts += 1
      if (attempts === 1) throw Object.assign(new Error('lost postgres://ada:hunter2@db/pay'), { code: 'ECONNREFUSED' })
      return await db.attempt(options, work)
    },
  }
  const stop = fixture.start(fixture.consumer({ db: away }).on(videos.VideoPublished, () => {}))
  await fixture.publish(published('a', 1))
  await eventually(() => fixture.heard('consumer.retried').length > 0)
  await stop()
  expect(fixture.heard('consumer.retried').map(({ error }) => error)).toContain('lost postgres://ada:***@db/pay')
})
