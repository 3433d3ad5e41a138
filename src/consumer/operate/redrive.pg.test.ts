import { expect, test } from 'vitest'
import {
  accounts,
  consumerFixture,
  deposited,
  message,
  published,
  videos,
  type ConsumerFixture,
} from '../../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { rows } from '../../postgres/query/database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import type { OutgoingMessage } from '../../transport/port/transport.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { applyBatch, type ApplyDeps } from '../batch/apply-batch.ts'
import { drainBrokerDeadLetters } from './broker-dead-letters.ts'
import type { Consumer } from '../consumer.ts'
import { resolveConsumerOptions, type ConsumerOptions } from '../model/consumer-options.ts'
import { readRedriving } from '../tables/dead-letter.sql.ts'
import { fromStored, readItems } from '../model/decode.ts'
import { discardDeadLetters } from './discard.ts'
import { inboxTables } from '../tables/inbox.sql.ts'
import type { Applied } from '../model/batch-item.ts'
import { redriveDeadLetters } from './redrive.ts'
import { RouteBook } from '../model/routes.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

/** Writes down deposits and balances, unless their version is in `broken`. */
function ledger(fixture: ConsumerFixture, broken: ReadonlySet<bigint>, options?: Partial<ConsumerOptions>): Consumer {
  const note: Parameters<Consumer['on']>[1] = async (event, { tx }) => {
    if (broken.has(event.version)) throw new Error(`${event.version} is broken`)
    await tx.query(`insert into ${fixture.schema}.effect (event_id, aggregate_id, version) values ($1, $2, $3)`, [
      event.id,
      event.aggregateId,
      String(event.version),
    ])
  }
  return fixture
    .consumer({ maxAttempts: 1, ...options })
    .on(accounts.Deposited, note)
    .on(accounts.BalanceSet, note)
}

const balanceSet = (version: number): OutgoingMessage => ({
  ...message({ stream: accounts, type: 'BalanceSet', id: 'x', version }, { balance: 7 }),
  orderingKey: 'snapshot',
})

const versions = async (fixture: ConsumerFixture): Promise<readonly number[]> =>
  (await fixture.query<{ version: number }>('select version::int from $schema.effect order by at')).map(({ version }) => version)

const letters = (fixture: ConsumerFixture, state: string): Promise<number> => fixture.count('dead_letter', `state = '${state}'`)

const redrive = (
  { schema }: ConsumerFixture,
  filter: Parameters<typeof redriveDeadLetters>[0]['filter'] = { all: true },
): Promise<unknown> => redriveDeadLetters({ db, schema, filter, actor: 'ada' })

const atRest = { version: 60, waiting: 0, held_by: null }
const position = 'select version::int, waiting, held_by from $schema.consumer_position'

test('a redriven snapshot of a consumer that joined late lets everything behind it go on', async () => {
  const fixture = await consumerFixture(db)
  const broken = new Set([57n])
  const stop = fixture.start(ledger(fixture, broken))
  await fixture.publish(balanceSet(57))
  await eventually(async () => (await letters(fixture, 'dead')) === 1)
  await fixture.publish(deposited('x', 58, 1), deposited('x', 59, 1))
  await eventually(async () => (await fixture.count('inbox_message')) === 2)
  broken.clear()
  await redrive(fixture)
  await eventually(async () => (await versions(fixture)).length === 3)
  await fixture.publish(deposited('x', 60, 1))
  await eventually(async () => (await versions(fixture)).length === 4)
  await stop()
  expect(await versions(fixture)).toEqual([57, 58, 59, 60])
  expect(await fixture.query(position)).toEqual([atRest])
})

test('a redriven snapshot stands for the deltas that waited before it', async () => {
  const fixture = await consumerFixture(db)
  const broken = new Set([3n])
  const stop = fixture.start(ledger(fixture, broken))
  await fixture.publish(balanceSet(3))
  await eventually(async () => (await letters(fixture, 'dead')) === 1)
  await fixture.publish(deposited('x', 1, 1), deposited('x', 2, 1), deposited('x', 4, 1))
  await eventually(async () => (await fixture.count('inbox_message')) === 3)
  broken.clear()
  await redrive(fixture)
  await eventually(async () => (await fixture.count('inbox_message')) === 0)
  await stop()
  expect(await versions(fixture)).toEqual([3, 4])
  expect(await fixture.query(position)).toEqual([{ ...atRest, version: 4 }])
})

test('a redriven delta whose predecessor fails again waits for it, and both are applied in order', async () => {
  const fixture = await consumerFixture(db)
  const broken = new Set([1n])
  const topic = 'bank.events.catalog.dead'
  const options = { db, schema: fixture.schema, transport: fixture.broker, consumer: 'catalog', topics: [topic] }
  const stop = fixture.start(ledger(fixture, broken), drainBrokerDeadLetters(options) as Consumer)
  await fixture.publish({ ...deposited('x', 1, 1), topic })
  await eventually(async () => (await letters(fixture, 'dead')) === 1)
  await fixture.publish({ ...deposited('x', 2, 1), topic })
  await eventually(async () => (await letters(fixture, 'dead')) === 2)
  await fixture.publish(deposited('x', 3, 1))
  await eventually(async () => (await fixture.count('inbox_message')) === 1)

  await redrive(fixture)
  await eventually(async () => (await letters(fixture, 'redriven')) === 1 && (await letters(fixture, 'dead')) === 1)
  expect(await versions(fixture)).toEqual([])
  expect(await fixture.query('select version::int from $schema.inbox_message order by 1')).toEqual([
    { version: 2 },
    { version: 3 },
  ])

  broken.clear()
  await redrive(fixture)
  await eventually(async () => (await versions(fixture)).length === 3)
  await stop()
  expect(await versions(fixture)).toEqual([1, 2, 3])
  expect(await fixture.query(position)).toEqual([{ ...atRest, version: 3 }])
})

test('a redriven delta that waited and fails at its turn is dead again, with its history', async () => {
  const fixture = await consumerFixture(db)
  const broken = new Set([2n])
  const topic = 'bank.events.catalog.dead'
  const options = { db, schema: fixture.schema, transport: fixture.broker, consumer: 'catalog', topics: [topic] }
  const stop = fixture.start(ledger(fixture, broken), drainBrokerDeadLetters(options) as Consumer)
  await fixture.publish({ ...deposited('x', 2, 1), topic })
  await eventually(async () => (await letters(fixture, 'dead')) === 1)
  await redrive(fixture)
  await eventually(async () => (await fixture.count('inbox_message')) === 1)
  await fixture.publish(deposited('x', 1, 1))
  await eventually(async () => (await letters(fixture, 'dead')) === 1)
  await stop()
  expect(await versions(fixture)).toEqual([1])
  expect(
    await fixture.query(`select jsonb_path_query_array(history, '$[*].state') as states, redrives from $schema.dead_letter`),
  ).toEqual([{ states: ['dead', 'redriving', 'redriven', 'dead'], redrives: 1 }])
  expect(await fixture.query('select version::int, held_by is not null as held from $schema.consumer_position')).toEqual([
    { version: 1, held: true },
  ])
})

test('redriving a letter whose effect is committed releases what it held', async () => {
  const fixture = await consumerFixture(db)
  const stop = fixture.start(ledger(fixture, new Set([1n])))
  await fixture.publish(deposited('x', 1, 1), deposited('x', 2, 1))
  await eventually(async () => (await letters(fixture, 'dead')) === 1 && (await fixture.count('inbox_message')) === 1)
  await fixture.query(
    `insert into $schema.inbox (consumer, generation, event_id, source) select consumer, generation, event_id, 'account' from $schema.dead_letter`,
  )
  await redrive(fixture)
  await eventually(async () => (await versions(fixture)).length === 1)
  await stop()
  expect(await versions(fixture)).toEqual([2])
  expect(await fixture.query(position)).toEqual([{ ...atRest, version: 2 }])
})

/** A letter that is being redriven, as an instance has it in hand that does not keep an inbox. */
async function inHand(fixture: ConsumerFixture): Promise<{ readonly apply: () => Promise<Applied> }> {
  const streams = [videos]
  const options = {
    db,
    name: 'catalog',
    schema: fixture.schema,
    streams,
    transport: fixture.broker,
    inbox: false,
    offsets: 'postgres',
  } as const
  const book = new RouteBook('catalog', streams)
  book.on(videos.VideoPublished, async (event: { readonly id: string }, { tx }) => {
    await tx.query(`insert into ${fixture.schema}.effect (event_id) values ($1)`, [event.id])
  })
  const deps: ApplyDeps = {
    settings: resolveConsumerOptions(options),
    routes: book.build(),
    scope: { tables: inboxTables(fixture.schema), consumer: 'catalog', generation: 1 },
    emitting: true,
    aborting: new AbortController().signal,
  }
  const found = await rows(db, readRedriving(deps.scope, { batchSize: 10, batchBytes: 1_000_000 }))
  const unread = found.map((row) => fromStored(row, 'dead', deps.routes)).filter((item) => item !== undefined)
  const known = await readItems(unread, deps.routes)
  expect(known).toHaveLength(1)
  return { apply: () => applyBatch(deps, known, { drain: true, attempts: new Map() }) }
}

async function deadVideo(fixture: ConsumerFixture): Promise<void> {
  const broken = fixture.consumer({ maxAttempts: 1 }).on(videos.VideoPublished, () => {
    throw new Error('broken')
  })
  const stop = fixture.start(broken)
  await fixture.publish(published('v', 1))
  await eventually(async () => (await letters(fixture, 'dead')) === 1)
  await stop()
  await redrive(fixture)
}

test('two instances with the same redriven letter in hand apply it once, also without an inbox', async () => {
  const fixture = await consumerFixture(db)
  await deadVideo(fixture)
  const [one, other] = [await inHand(fixture), await inHand(fixture)]
  const applied = await Promise.all([one.apply(), other.apply()])
  expect(applied.reduce((sum, each) => sum + each.applied, 0)).toBe(1)
  expect(await fixture.count('effect')).toBe(1)
  expect(await letters(fixture, 'redriven')).toBe(1)
})

test('a redrive that is taken back has no effect, whoever has it in hand, and what waited for it goes on', async () => {
  const fixture = await consumerFixture(db)
  await deadVideo(fixture)
  const { apply } = await inHand(fixture)
  expect(await discardDeadLetters({ db, schema: fixture.schema, filter: { all: true }, actor: 'ada' })).toMatchObject({
    discarded: { length: 1 },
  })
  expect(await apply()).toMatchObject({ applied: 0 })
  expect(await letters(fixture, 'discarded')).toBe(1)
  const stop = fixture.start(
    fixture.consumer().on(videos.VideoPublished, async (event, { tx }) => {
      await tx.query(`insert into ${fixture.schema}.effect (version) values ($1)`, [String(event.version)])
    }),
  )
  await fixture.publish(published('v', 2))
  await eventually(async () => (await fixture.count('effect')) === 1)
  await stop()
  expect(await versions(fixture)).toEqual([2])
})

test('a letter that is being applied cannot be discarded', async () => {
  const fixture = await consumerFixture(db)
  await deadVideo(fixture)
  const [handling, gate] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  const stop = fixture.start(
    fixture.consumer().on(videos.VideoPublished, async (event, { tx }) => {
      handling.resolve()
      await gate.promise
      await tx.query(`insert into ${fixture.schema}.effect (version) values ($1)`, [String(event.version)])
    }),
  )
  await handling.promise
  expect(await discardDeadLetters({ db, schema: fixture.schema, filter: { all: true }, actor: 'ada' })).toEqual({
    discarded: [],
    applied: [],
  })
  gate.resolve()
  await eventually(async () => (await letters(fixture, 'redriven')) === 1)
  await stop()
  expect(await versions(fixture)).toEqual([1])
})
