/** The handlers of a batch share its transaction, and nothing that one of them set in it. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { consumerFixture, mails, published, videos, type ConsumerFixture } from '../../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import type { Tx } from '../../postgres/query/database.ts'
import type { PgClient } from '../../postgres/adapters/borrow-client.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { eventually } from '../../testing/kit/eventually.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
const role = `tenant_${process.pid}`
beforeAll(async () => void (await database.pool.query(`create role ${role}`)))
afterAll(async () => void (await database.pool.query(`drop role ${role}`)))

const look = `select current_user::text as role, current_setting('search_path') as path, current_setting('app.tenant', true) as tenant,
                     current_setting('statement_timeout') as limit, current_setting('timezone') as zone`

/** Publishes two events that come in one batch, `change` is done by the first of them; returns what the second one finds. */
async function afterChange(
  change: (tx: Tx) => Promise<unknown>,
): Promise<{ fixture: ConsumerFixture; seen: unknown[]; calls: string[] }> {
  const fixture = await consumerFixture(db)
  const seen: unknown[] = []
  const calls: string[] = []
  const consumer = fixture
    .consumer({ lingerMs: 50, maxAttempts: 1, concurrency: 1 })
    .project(videos, { table: `${fixture.schema}.video_view`, key: 'video_id', set: ({ data }) => ({ title: data.title }) })
    .on(videos.VideoPublished, async (event, { tx, emit }) => {
      calls.push(event.aggregateId)
      if (event.aggregateId === 'a') await change(tx)
      else seen.push((await tx.query(look)).rows[0])
      emit(mails.MailRequested, event.aggregateId, { to: 'x' })
    })
  await fixture.publish(published('a', 1), published('b', 1))
  const stop = fixture.start(consumer)
  await eventually(async () => (await fixture.count('inbox')) + (await fixture.count('dead_letter')) === 2)
  await stop()
  return { fixture, seen, calls }
}

const all = async (tx: Tx): Promise<void> => {
  await tx.query(`select set_config('app.tenant', $1, true)`, ['7'])
  await tx.query(`set local statement_timeout = '9s'`)
  await (tx.native as PgClient).query('set local timezone = 3')
  await tx.query('set local search_path = pg_temp')
  await tx.query(`set local role ${role}`)
}

test('what a handler sets is put back before the next one, and before what is written for all of them', async () => {
  const { fixture, seen } = await afterChange(all)
  const outside = { ...((await database.pool.query(look)).rows[0] as object), limit: '30s', tenant: '' }
  expect(seen.at(-1)).toEqual(outside)
  expect(await fixture.count('inbox')).toBe(2)
  expect(await fixture.count('video_view')).toBe(2)
  // Emitted events are written behind the handlers, by a role that the first one's could not be.
  expect(await fixture.count('outbox')).toBe(2)
  expect(fixture.heard('consumer.failed')).toEqual([])
})

test('a batch whose handler is found to set something runs once more, and later ones do not', async () => {
  const fixture = await consumerFixture(db)
  let calls = 0
  const consumer = fixture.consumer({ lingerMs: 1 }).on(videos.VideoPublished, async (_event, { tx }) => {
    calls += 1
    await tx.query(`set local search_path = public`)
  })
  const stop = fixture.start(consumer)
  for (const id of ['a', 'b', 'c']) {
    const before = await fixture.count('inbox')
    await fixture.publish(published(id, 1))
    await fixture.settled(before + 1)
  }
  await stop()
  expect(calls).toBe(4)
})

test.each([
  ['a session’s setting', `set search_path = ''`],
  ['a temporary table', 'create temp table mine (id int)'],
  ['a deferral', 'set constraints all deferred'],
])('%s is refused before it is sent, and the neighbour goes on', async (_, text) => {
  const { fixture, seen } = await afterChange((tx) => tx.query(text))
  expect(seen.length).toBeGreaterThan(0)
  expect(await fixture.query(`select error from $schema.dead_letter`)).toEqual([
    { error: expect.stringContaining('would inherit') },
  ])
  expect(await fixture.count('inbox')).toBe(1)
})

test('a handler that makes up the name of a setting for each event fails, and its batch ends', async () => {
  let nth = 0
  const { fixture } = await afterChange((tx) => tx.query(`select set_config('app.n${(nth += 1)}', 'x', true)`))
  expect(await fixture.query(`select error from $schema.dead_letter`)).toEqual([
    { error: expect.stringContaining('ever new names') },
  ])
})
