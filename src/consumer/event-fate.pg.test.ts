/** What became of an event is told alike by the inbox, by its dead letter, by its stored copy and by its attempts. */
import { expect, test } from 'vitest'
import {
  accounts,
  consumerFixture,
  deposited,
  published,
  videos,
  type ConsumerFixture,
} from '../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../test/setup/test-database.ts'
import type { PgClient } from '../postgres/adapters/borrow-client.ts'
import { rows } from '../postgres/query/database.ts'
import { fromPg } from '../postgres/adapters/from-pg.ts'
import { transaction } from '../postgres/transaction/transaction.ts'
import { eventually } from '../testing/kit/eventually.ts'
import type { OutgoingMessage } from '../transport/port/transport.ts'
import type { Consumer } from './consumer.ts'
import type { ConsumerOptions } from './model/consumer-options.ts'
import { chargeAttempt, readAttempts, releaseAttempts, startAttempts } from './tables/dead-letter.sql.ts'
import { discardDeadLetters } from './operate/discard.ts'
import { inboxTables, type Scope } from './tables/inbox.sql.ts'
import { ItemFailure } from './model/batch-item.ts'
import { makeDeadLetter } from './failure/settle.ts'
import { pauseConsumer, resumeConsumer } from './operate/pause.ts'
import { planRedrive, redriveDeadLetters } from './operate/redrive.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

const idOf = (message: OutgoingMessage): string => message.attributes['event_id'] ?? ''
const scopeOf = ({ schema }: ConsumerFixture): Scope => ({ tables: inboxTables(schema), consumer: 'catalog', generation: 1 })
const letters = async ({ query }: ConsumerFixture): Promise<readonly string[]> =>
  (await query<{ state: string }>('select state from $schema.dead_letter order by id')).map(({ state }) => state)

/** A consumer whose handler of videos fails while it is told to. */
function fallible(fixture: ConsumerFixture, options: Partial<ConsumerOptions>): { readonly consumer: Consumer; broken: boolean } {
  const at = {
    broken: true,
    consumer: fixture.consumer({ maxAttempts: 1, ...options }).on(videos.VideoPublished, () => {
      if (at.broken) throw new Error('broken')
    }),
  }
  return at
}

/** As if another instance had buried it: with `onDead: 'pass'` nothing is held. */
async function bury(fixture: ConsumerFixture, message: OutgoingMessage): Promise<void> {
  await transaction(db, async (tx) => void (await makeDeadLetter(tx, scopeOf(fixture), burialOf(message))))
}

function burialOf(message: OutgoingMessage): Parameters<typeof makeDeadLetter>[2] {
  const { aggregate_type: type = '', aggregate_id: id = '', version = '' } = message.attributes
  return {
    eventId: idOf(message),
    eventType: message.attributes['event_type'] ?? '',
    aggregate: { type, id, version: BigInt(version) },
    message: { ...message, orderingKey: message.orderingKey, messageId: 'm', publishedAtMs: 0 },
    reason: 'failed',
    error: 'broken',
    attempts: 1,
    holds: false,
  }
}

const ways: readonly (readonly [string, Partial<ConsumerOptions>])[] = [
  ['direct mode', {}],
  ['stored mode', { mode: 'stored' }],
]

test.each(ways)(
  'in %s a dead letter whose event takes effect by another delivery is settled with that effect',
  async (_, options) => {
    const fixture = await consumerFixture(db)
    const handling = fallible(fixture, { onDead: 'pass', ...options })
    const stop = fixture.start(handling.consumer)
    const message = published('a', 1)
    await fixture.publish(message)
    await eventually(async () => (await letters(fixture)).join() === 'dead')
    handling.broken = false
    await fixture.publish(message)
    await eventually(async () => (await letters(fixture)).join() !== 'dead')
    await stop()
    expect(await fixture.query(`select state, redrives, history -> -1 ->> 'reason' as why from $schema.dead_letter`)).toEqual([
      { state: 'redriven', redrives: 0, why: 'Its event was delivered again, and applied.' },
    ])
  },
)

test('a letter of an event that only becomes a row is settled with that row, also where no position is kept', async () => {
  for (const options of [{}, { positions: 'needed' }, { inbox: false }, { inbox: false, positions: 'needed' }] as const) {
    const fixture = await consumerFixture(db)
    const message = published('a', 1)
    await bury(fixture, message)
    const view = { table: `${fixture.schema}.video_view`, key: 'video_id' }
    const stop = fixture.start(fixture.consumer(options).project(videos, { ...view, set: ({ data }) => ({ title: data.title }) }))
    await fixture.publish(message)
    await eventually(async () => (await fixture.count('video_view')) === 1)
    await stop()
    expect([options, await letters(fixture)]).toEqual([options, ['redriven']])
  }
})

test('a letter that is made while its event waits to be applied is settled with the effect', async () => {
  const fixture = await consumerFixture(db)
  const handling = fallible(fixture, { onDead: 'pass' })
  handling.broken = false
  const message = published('a', 1)
  const stop = fixture.start(handling.consumer)
  await transaction(db, async (tx) => {
    await makeDeadLetter(tx, scopeOf(fixture), burialOf(message))
    await fixture.publish(message)
    await eventually(
      async () =>
        (
          await fixture.query(
            `select from pg_locks l join pg_stat_activity a using (pid) where not l.granted and a.datname = current_database() and a.query like '%"${fixture.schema}"."inbox"%'`,
          )
        ).length > 0,
    )
  })
  await fixture.settled(1)
  await stop()
  expect(await letters(fixture)).toEqual(['redriven'])
})

test('a letter whose stored copy waited behind another is settled when the copy is applied', async () => {
  for (const mode of ['direct', 'stored'] as const) {
    const fixture = await consumerFixture(db)
    const seen: bigint[] = []
    const consumer = fixture.consumer({ mode }).on(accounts.Deposited, ({ version }) => void seen.push(version))
    const second = deposited('x', 2, 1)
    await bury(fixture, second)
    const stop = fixture.start(consumer)
    await fixture.publish(second)
    await eventually(async () => (await fixture.count('inbox_message', 'state = 4')) === 1)
    expect(await letters(fixture)).toEqual(['dead'])
    await fixture.publish(deposited('x', 1, 1))
    await fixture.settled(2)
    await stop()
    expect([seen, await letters(fixture)]).toEqual([[1n, 2n], ['redriven']])
  }
})

test('an event that is held by its own letter has no effect by another delivery, and the letter stays dead', async () => {
  const fixture = await consumerFixture(db)
  const handling = fallible(fixture, { onDead: 'hold' })
  const stop = fixture.start(handling.consumer)
  const message = published('a', 1)
  await fixture.publish(message)
  await eventually(async () => (await letters(fixture)).join() === 'dead')
  handling.broken = false
  await fixture.publish(message, published('b', 1))
  await fixture.settled(1)
  expect(await letters(fixture)).toEqual(['dead'])
  // While it is paused its copy waits; the letter and the copy have one effect between them.
  const aggregate = { type: 'video', id: 'a' }
  await pauseConsumer({ db, schema: fixture.schema, consumer: 'catalog', aggregate, actor: 'ada' })
  await fixture.publish(message)
  await eventually(async () => (await fixture.count('inbox_message', 'state = 4')) === 1)
  await resumeConsumer({ db, schema: fixture.schema, consumer: 'catalog', aggregate, actor: 'ada' })
  await redriveDeadLetters({ db, schema: fixture.schema, filter: { all: true }, actor: 'ada' })
  await eventually(async () => (await fixture.count('inbox_message')) === 0)
  await stop()
  expect([await letters(fixture), await fixture.count('inbox')]).toEqual([['redriven'], 2])
})

test('a discard leaves out a letter whose event took effect, closes it, and says so', async () => {
  const fixture = await consumerFixture(db)
  const { schema } = fixture
  const [applied, open] = [published('a', 1), published('b', 1)]
  for (const message of [applied, open]) await bury(fixture, message)
  await fixture.query(`insert into $schema.inbox (consumer, generation, event_id, source) values ('catalog', 1, $1, 'video')`, [
    idOf(applied),
  ])
  const outcome = await discardDeadLetters({ db, schema, filter: { all: true }, actor: 'ada', reason: 'tidy' })
  expect(outcome).toEqual({ discarded: ['2'], applied: ['1'] })
  expect(await letters(fixture)).toEqual(['redriven', 'discarded'])
  const audit = await fixture.query(
    `select details -> 'letters' as letters, details -> 'applied' as applied from $schema.audit_log where action = 'dlq.discard'`,
  )
  expect(audit).toEqual([{ letters: ['2'], applied: ['1'] }])
})

test('a second burial of an event that took effect meanwhile settles the letter it has', async () => {
  const fixture = await consumerFixture(db)
  const message = published('a', 1)
  await bury(fixture, message)
  await fixture.query(`insert into $schema.inbox (consumer, generation, event_id, source) values ('catalog', 1, $1, 'video')`, [
    idOf(message),
  ])
  await bury(fixture, message)
  expect(await letters(fixture)).toEqual(['redriven'])
  expect(await planRedrive({ db, schema: fixture.schema, filter: { all: true } })).toEqual([])
})

test('attempts of an event go with its effect, also if another instance wrote them down', async () => {
  for (const options of [{ maxInFlight: 5 }, { maxInFlight: 5, mode: 'stored' }] as const) {
    const fixture = await consumerFixture(db)
    const scope = scopeOf(fixture)
    const message = published('a', 1)
    const handling = fallible(fixture, options)
    handling.broken = false
    const stop = fixture.start(handling.consumer)
    // After the start no delivery is suspect by itself.
    await fixture.publish(...Array.from({ length: 20 }, (__, i) => published(`n${i}`, 1)))
    await eventually(async () => (await fixture.count('consumer_position')) === 20)
    await rows(db, chargeAttempt(scope, idOf(message), 'broken'))
    await fixture.publish(message)
    await eventually(async () => (await fixture.count('consumer_position')) === 21)
    await stop()
    expect([options, await fixture.count('delivery_attempt')]).toEqual([options, 0])
  }
})

test('attempts of an event that waited go when it is applied behind another, or passed over', async () => {
  const fixture = await consumerFixture(db)
  const scope = scopeOf(fixture)
  const consumer = fixture.consumer().on(accounts.Deposited, () => undefined)
  const stop = fixture.start(consumer)
  const second = deposited('x', 2, 1)
  await fixture.publish(second)
  await eventually(async () => (await fixture.count('inbox_message', 'state = 4')) === 1)
  await rows(db, chargeAttempt(scope, idOf(second), 'broken'))
  await fixture.publish(deposited('x', 1, 1))
  await fixture.settled(2)
  await stop()
  expect(await fixture.count('delivery_attempt')).toBe(0)
})

test('a start that is given back untried leaves nothing behind, and keeps what was charged before', async () => {
  const fixture = await consumerFixture(db)
  const scope = scopeOf(fixture)
  const [fresh, charged] = [idOf(published('a', 1)), idOf(published('b', 1))]
  await rows(db, chargeAttempt(scope, charged, 'broken'))
  await rows(db, startAttempts(scope, [fresh, charged]))
  await rows(db, releaseAttempts(scope, [fresh, charged]))
  expect(await fixture.query('select event_id::text as id, attempts, unfinished from $schema.delivery_attempt')).toEqual([
    { id: charged, attempts: 1, unfinished: 0 },
  ])
})

/** As another instance would: it applies the event and removes its stored copy. */
const apply = async ({ schema }: ConsumerFixture, client: PgClient, id: string): Promise<void> => {
  await client.query(
    `insert into ${schema}.inbox (consumer, generation, event_id, source) values ('catalog', 1, $1::text::uuid, 'video')`,
    [id],
  )
  await client.query(`delete from ${schema}.inbox_message where event_id = $1::text::uuid`, [id])
}

test('a failure is not counted against an event that another instance has applied, or is applying', async () => {
  for (const when of ['before', 'while'] as const) {
    const fixture = await consumerFixture(db)
    const message = published('a', 1)
    const other = await database.pool.connect()
    const failed = Promise.withResolvers<void>()
    // After the transaction of the handler and before that of the charge.
    const attempt: typeof db.attempt = (options, work) =>
      db.attempt(options, work).catch(async (error: unknown) => {
        if (!(error instanceof ItemFailure)) throw error
        await other.query('begin')
        await apply(fixture, other, idOf(message))
        if (when === 'before') await other.query('commit')
        failed.resolve()
        throw error
      })
    const consumer = fixture
      .consumer({ mode: 'stored', maxInFlight: 5, concurrency: 1, db: { ...db, attempt } })
      .on(videos.VideoPublished, () => Promise.reject(new Error('broken')))
    const stop = fixture.start(consumer)
    await fixture.publish(message)
    await failed.promise
    // It does not wait for the other one, whose handlers may take their time.
    await eventually(() => fixture.heard('consumer.retried').length + fixture.heard('consumer.failed').length > 0)
    if (when === 'while') await other.query('commit')
    other.release()
    await eventually(async () => (await fixture.count('inbox_message')) === 0)
    await stop()
    expect([when, await fixture.count('delivery_attempt'), fixture.heard('consumer.failed')]).toEqual([when, 0, []])
  }
})

test('the mark of a redrive goes although an operator settled its letter meanwhile', async () => {
  const fixture = await consumerFixture(db)
  const message = published('a', 1)
  await bury(fixture, message)
  const scope = scopeOf(fixture)
  await fixture.query(`update $schema.dead_letter set state = 'redriving'`)
  let isSettled = false
  // Between the mark, which begins an attempt, and the transaction of the attempt.
  const attempt: typeof db.attempt = async (options, work) => {
    if (!isSettled && (await fixture.count('delivery_attempt')) === 1) {
      isSettled = true
      await fixture.query(`update $schema.dead_letter set state = 'discarded'`)
    }
    return await db.attempt(options, work)
  }
  const consumer = fixture.consumer({ db: { ...db, attempt } }).on(videos.VideoPublished, () => undefined)
  const stop = fixture.start(consumer)
  await eventually(() => isSettled)
  await eventually(async () => (await rows(db, readAttempts(scope, [idOf(message)]))).length === 0)
  await stop()
})
