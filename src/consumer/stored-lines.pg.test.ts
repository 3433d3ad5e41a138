import { expect, test } from 'vitest'
import { consumerFixture, published, videos, type ConsumerFixture } from '../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../test/setup/test-database.ts'
import { execute } from '../postgres/database.ts'
import { fromPg } from '../postgres/from-pg.ts'
import { eventually } from '../testing/eventually.ts'
import { inboxTables, type Scope } from './inbox.sql.ts'
import { discard } from './steering.ts'
import { restReceived } from './stored.sql.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

/** From now on a statement that lets go of more than this many held messages takes too long. */
async function refuseMany(fixture: ConsumerFixture, most: number): Promise<void> {
  await fixture.query(
    `create function $schema.many() returns trigger language plpgsql as $$ begin
       if (select count(*) from old_rows where state = 2) > ${most} then raise exception 'canceling statement due to statement timeout' using errcode = '57014'; end if;
       return null; end $$`,
  )
  await fixture.query(
    'create trigger many after update on $schema.inbox_message referencing old table as old_rows for each statement execute function $schema.many()',
  )
}

test.each([
  ['is applied', 1],
  ['is given up', 2],
])('a long line is let go bit by bit when its head %s, in order', async (_, first) => {
  const fixture = await consumerFixture(db)
  await refuseMany(fixture, 100)
  let broken = true
  const consumer = fixture
    .consumer({ mode: 'stored', streams: [videos], maxAttempts: 1_000, processBatchSize: 100 })
    .on(videos.VideoPublished, async ({ version }, { tx }) => {
      if (broken && version === 1n) throw new Error('not yet')
      if (version < first) throw discard('never')
      await tx.query(`insert into ${fixture.schema}.effect (version) values ($1)`, [String(version)])
    })
  const stop = fixture.start(consumer)
  await fixture.publish(...Array.from({ length: 150 }, (_item, i) => published('a', i + 1)))
  await eventually(async () => (await fixture.count('inbox_message', 'state = 2')) === 149)
  broken = false
  await eventually(async () => (await fixture.count('inbox_message')) === 0)
  await stop()
  const applied = await fixture.query<{ version: number }>('select version::int from $schema.effect order by at')
  expect(applied.map(({ version }) => version)).toEqual(Array.from({ length: 151 - first }, (_item, i) => i + first))
})

test('what fails before the head that it was read with becomes the head; behind one that rests it stays', async () => {
  const fixture = await consumerFixture(db)
  const scope: Scope = { tables: inboxTables(fixture.schema), consumer: 'catalog', generation: 1 }
  const store = (state: number, rest: string): Promise<unknown> =>
    fixture.query(
      `insert into $schema.inbox_message (key, lane, state, consumer, generation, event_id, aggregate_type, aggregate_id, version, topic, message_id, attributes, body, published_at, next_attempt_at)
       values (7, 7, ${state}, 'catalog', 1, gen_random_uuid(), 'video', 'a', 1, 'video.events', 'm', '{}', '', now(), now() + interval '${rest}')`,
    )
  const states = async (): Promise<readonly number[]> =>
    (await fixture.query<{ state: number }>('select state from $schema.inbox_message order by seq')).map(({ state }) => state)
  await store(1, '0 s')
  await store(2, '0 s')
  const rest = { delayMs: 60_000, error: 'e' }
  await execute(db, restReceived(scope, { lane: 7, seq: '2' }, rest))
  expect(await states()).toEqual([2, 1])
  await execute(db, restReceived(scope, { lane: 7, seq: '1' }, rest))
  expect(await states()).toEqual([2, 1])
})
