/** What a handler leaves under way is its own failure: its event is charged, and the neighbours of the batch are applied. */
import type pg from 'pg'
import { expect, test } from 'vitest'
import { consumerFixture, mails, published, videos, type ConsumerFixture } from '../../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import type { Tx } from '../../postgres/query/database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { eventually } from '../../testing/kit/eventually.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

const insertOf = ({ schema }: ConsumerFixture, note: string): string =>
  `insert into ${schema}.effect (aggregate_id, note) values ('${note}', '${note}')`

/** Applies ten events in one batch, of which `leave` is what the sixth leaves behind, and waits until that is a dead letter. */
async function batchOfTen(leave: (tx: Tx, fixture: ConsumerFixture, next: Promise<void>) => Promise<unknown>) {
  const fixture = await consumerFixture(db)
  const next = Promise.withResolvers<void>()
  const consumer = fixture.consumer({ maxAttempts: 2, lingerMs: 200 }).on(videos.VideoPublished, async (event, { tx }) => {
    if (event.aggregateId === 'v6') next.resolve()
    await tx.query(insertOf(fixture, event.aggregateId))
    if (event.aggregateId === 'v5') leave(tx, fixture, next.promise).catch(() => undefined)
  })
  await fixture.publish(...Array.from({ length: 10 }, (_, i) => published(`v${i}`, 1)))
  const stop = fixture.start(consumer)
  const settled = async (): Promise<number> => (await fixture.count('inbox')) + (await fixture.count('dead_letter'))
  await eventually(async () => (await settled()) >= 10)
  await stop()
  return fixture
}

test.each([
  ['a statement', (tx: Tx, fixture: ConsumerFixture) => tx.query(insertOf(fixture, 'late')), /insert into .*effect/],
  [
    'a native statement',
    async (tx: Tx, fixture: ConsumerFixture) => await (tx.native as pg.PoolClient).query(insertOf(fixture, 'late')),
    /insert into .*effect/,
  ],
  [
    'an event that it adds',
    (tx: Tx, { outbox }: ConsumerFixture) => outbox.add(tx, mails.MailRequested, 'm1', { to: 'ann' }),
    /outbox\.add\(MailRequested\)/,
  ],
  [
    'what it sends during the turn of the next',
    (tx: Tx, fixture: ConsumerFixture, next: Promise<void>) => next.then(() => tx.query(insertOf(fixture, 'late'))),
    /insert into .*effect/,
  ],
  [
    'what it sends by the native client during the turn of the next',
    (tx: Tx, fixture: ConsumerFixture, next: Promise<void>) =>
      next.then(async () => await (tx.native as pg.PoolClient).query(insertOf(fixture, 'late'))),
    /insert into .*effect/,
  ],
])('%s is charged to the event whose handler left it, and its nine neighbours are applied', async (_what, leave, named) => {
  const fixture = await batchOfTen(leave)
  const applied = await fixture.query<{ id: string }>('select aggregate_id as id from $schema.effect order by 1')
  expect(applied.map(({ id }) => id)).toEqual(['v0', 'v1', 'v2', 'v3', 'v4', 'v6', 'v7', 'v8', 'v9'])
  const [letter, ...others] = await fixture.query<{ error: string; id: string }>(
    'select aggregate_id as id, error from $schema.dead_letter',
  )
  expect([letter?.id, others]).toEqual(['v5', []])
  expect(letter?.error).toMatch(named)
  expect(letter?.error).toMatch(/^The handler of VideoPublished returned while .* still under way/)
  expect(fixture.heard('consumer.failed').map(({ aggregateId }) => aggregateId)).toEqual(['v5'])
  expect(await fixture.count('outbox')).toBe(0)
})

test('the tx of a handler ends with it: who kept it is refused, and that is told', async () => {
  const fixture = await consumerFixture(db)
  let kept: Tx | undefined
  const refused: unknown[] = []
  const consumer = fixture.consumer({ lingerMs: 200 }).on(videos.VideoPublished, async (event, { tx }) => {
    if (kept === undefined) kept = tx
    else await kept.query(insertOf(fixture, 'late')).catch((error: unknown) => refused.push(error))
    await tx.query(insertOf(fixture, event.aggregateId))
  })
  await fixture.publish(published('v0', 1), published('v1', 1))
  const stop = fixture.start(consumer)
  await fixture.settled(2)
  await stop()
  expect(refused[0]).toMatchObject({ code: 'NOT_A_TRANSACTION' })
  expect(fixture.heard('transaction.used-after-end')[0]?.what).toMatch(/^insert into .*effect/)
  expect(await fixture.count('effect', `note = 'late'`)).toBe(0)
  expect(await fixture.count('effect')).toBe(2)
})

test('an event that is emitted after its handler has returned rolls the handler back, and it is called again', async () => {
  const fixture = await consumerFixture(db)
  const next = Promise.withResolvers<void>()
  const handled: string[] = []
  const consumer = fixture.consumer({ lingerMs: 200 }).on(videos.VideoPublished, async (event, { tx, emit }) => {
    handled.push(event.aggregateId)
    await tx.query(insertOf(fixture, event.aggregateId))
    if (handled.length === 2) next.resolve()
    const mail = (): void => emit(mails.MailRequested, 'm1', { to: 'ann' })
    if (handled.length === 1) next.promise.then(mail).catch(() => undefined)
    else if (event.aggregateId === handled[0]) mail()
  })
  await fixture.publish(published('v0', 1), published('v1', 1))
  const stop = fixture.start(consumer)
  await fixture.settled(2)
  await stop()
  // Both, the first alone, and the other one.
  expect(handled.filter((id) => id === handled[0])).toHaveLength(2)
  expect(fixture.heard('transaction.used-after-end')).toEqual([{ what: 'emit(MailRequested)', rolledBack: false }])
  expect([await fixture.count('effect'), await fixture.count('outbox')]).toEqual([2, 1])
})
