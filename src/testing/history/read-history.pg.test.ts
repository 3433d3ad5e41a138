import { expect, test } from 'vitest'
import { accounts, consumerFixture, videos, type ConsumerFixture } from '../../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import type { Consumer } from '../../consumer/consumer.ts'
import { discard } from '../../consumer/model/handler.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { createTestKit } from '../kit/test-kit.ts'
import { checkHistory, type Verdict } from './checker.ts'
import { readHistory, type HistoryConsumer } from './read-history.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

interface Lived extends ConsumerFixture {
  readonly catalog: Consumer
  judge(consumer?: Partial<HistoryConsumer>): Promise<Verdict>
}

/** A small system that has lived: titles that changed and went, deposits, one of them discarded, a balance that stands for others. */
async function lived(): Promise<Lived> {
  const fixture = await consumerFixture(db)
  const { schema, outbox, broker } = fixture
  const catalog = fixture.consumer()
  catalog.project(videos, { table: `${schema}.video_view`, key: 'video_id', set: ({ data }) => ({ title: data.title }) })
  const record: Parameters<typeof catalog.on>[1] = async (event, { tx }) => {
    if ((event.data as { amount?: number }).amount === 666) throw discard('not this one')
    await tx.query(`insert into ${schema}.effect (event_id, aggregate_id, version) values ($1, $2, $3)`, [
      event.id,
      event.aggregateId,
      String(event.version),
    ])
  }
  catalog.on(accounts.Deposited, record).on(accounts.BalanceSet, record)
  await transaction(db, async (tx) => {
    for (const id of ['a', 'b']) await outbox.add(tx, videos.VideoPublished, id, { title: 'one' })
    await outbox.add(tx, videos.VideoPublished, 'a', { title: 'two' })
    await outbox.add(tx, videos.VideoRemoved, 'b')
    for (const amount of [1, 666, 3]) await outbox.add(tx, accounts.Deposited, 'x', { amount })
    await outbox.add(tx, accounts.BalanceSet, 'x', { balance: 4 })
  })
  const kit = createTestKit({ db, outbox, transport: broker })
  await kit.drain([catalog])
  return {
    ...fixture,
    catalog,
    judge: async (more = {}) =>
      checkHistory(await readHistory({ owner: { db, schema }, consumers: [{ consumer: catalog, ...more }] })),
  }
}

const texts = ({ violations }: Verdict): string[] => violations.map(({ text }) => text)

const effectsOf = ({ schema }: Lived): NonNullable<HistoryConsumer['effects']> => ({
  query: `select event_id::text as event, 'account ' || aggregate_id as aggregate, version::text as after from ${schema}.effect order by at`,
  of: [accounts.Deposited, accounts.BalanceSet],
})

test('the databases of a system that kept its promises tell a history that passes', async () => {
  const world = await lived()
  const verdict = await world.judge({ effects: effectsOf(world) })
  expect(texts(verdict)).toEqual([])
  expect(verdict.counts.ops).toMatchObject({ commit: 8, log: 8, apply: 3, state: 4 })
  expect((await world.judge()).counts.ops).toMatchObject({ apply: 8 })
  for (const id of ['no-loss', 'no-ghost', 'one-effect', 'version-monotonic', 'projection-equals-owner', 'liveness'] as const)
    expect(verdict.invariants[id].state).toBe('held')
})

test.each<{ readonly what: string; readonly change: string; readonly found: RegExp }>([
  {
    what: 'a receipt without which nobody knows of a publication',
    change: `delete from $schema.outbox_receipt where event_id = (select id from $schema.outbox where aggregate_id = 'a' and version = 2)`,
    found: /^no-loss: video a v2 was committed and never published$/,
  },
  {
    what: 'an event that consumers know and the owner does not',
    change: `delete from $schema.outbox where aggregate_id = 'a' and version = 1`,
    found: /^no-ghost: event [-\w]+ was applied and was never committed$/,
  },
  {
    what: 'an effect that is missing in the inbox',
    change: `delete from $schema.inbox where event_id = (select id from $schema.outbox where aggregate_id = 'a' and version = 2)`,
    found: /^one-effect: video a v2 was never applied by catalog$/,
  },
  {
    what: 'an effect that is missing although a later state was applied',
    change: `delete from $schema.inbox where event_id = (select id from $schema.outbox where aggregate_id = 'a' and version = 1)`,
    found: /^one-effect: video a v1 was never applied by catalog$/,
  },
  {
    what: 'a projection that is behind',
    change: `update $schema.video_view set version = 1 where video_id = 'a'`,
    found: /^projection-equals-owner: video a is v1 at catalog, and v2 at the owner$/,
  },
  {
    what: 'a projection that forgot a deletion',
    change: `delete from $schema.video_view where video_id = 'b'`,
    found: /^projection-equals-owner: video b is not there at catalog, and v2 at the owner$/,
  },
  {
    what: 'a projected row that the owner does not know',
    change: `insert into $schema.video_view (video_id, version) values ('ghost', 1)`,
    found: /^projection-equals-owner: video ghost is v1 at catalog, and not there at the owner$/,
  },
  {
    what: 'a row that is still in the outbox',
    change: `insert into $schema.outbox_dispatch (key, event_id, lane, state) select 1, id, 0, 3 from $schema.outbox limit 1`,
    found: /^liveness: 1 outbox rows \(parked\) are left$/,
  },
])('it is found in the databases: $what', async ({ change, found }) => {
  const world = await lived()
  await world.query(change)
  const violations = texts(await world.judge())
  expect(violations).toHaveLength(1)
  expect(violations[0]).toMatch(found)
})

test('an effect that happened twice shows in the table of effects', async () => {
  const world = await lived()
  await world.query(
    'insert into $schema.effect (event_id, aggregate_id, version) select event_id, aggregate_id, version from $schema.effect where version = 1',
  )
  expect(texts(await world.judge({ effects: effectsOf(world) }))).toEqual([
    'one-effect: account x v1 was applied twice by catalog',
    'version-monotonic: account x at catalog went back from v4 to v1',
  ])
})

test('states are compared as the queries of both sides return them', async () => {
  const world = await lived()
  const { schema, catalog } = world
  await world.query('create table $schema.video (id text, title text)')
  await world.query(`insert into $schema.video values ('a', 'two'), ('c', 'three')`)
  const owner = { db, schema, states: { video: `select id, title as value from ${schema}.video` } }
  const states = { video: `select video_id as id, title as value from ${schema}.video_view where deleted_at is null` }
  expect(texts(checkHistory(await readHistory({ owner, consumers: [{ consumer: catalog, states }] })))).toEqual([
    'projection-equals-owner: video c is not there at catalog, and three at the owner',
  ])
  await expect(readHistory({ owner, consumers: [{ consumer: catalog }] })).rejects.toThrow(
    'states: the owner gives those of video, and catalog, which projects it, does not.',
  )
})
