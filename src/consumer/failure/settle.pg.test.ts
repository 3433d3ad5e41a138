import { expect, test } from 'vitest'
import { accounts, consumerFixture, deposited, published, videos } from '../../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { markTx, type Database, type Tx } from '../../postgres/query/database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { eventually } from '../../testing/kit/eventually.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

test('a processor whose lane was taken over buries nothing', async () => {
  const fixture = await consumerFixture(db)
  // Somebody takes the lanes between the last failure of a message and its burial.
  await fixture.query(
    `create function $schema.steal() returns trigger language plpgsql as $$ begin
       update ${fixture.schema}.inbox_lane set lock_token = gen_random_uuid(), lock_expires_at = clock_timestamp() + interval '300 milliseconds';
       return new; end $$`,
  )
  await fixture.query(
    `create trigger steal after update on $schema.delivery_attempt for each row when (old.attempts = 0 and new.attempts = 1) execute function $schema.steal()`,
  )
  const broken = (): never => {
    throw new Error('broken')
  }
  const stop = fixture.start(fixture.consumer({ mode: 'stored', maxAttempts: 1 }).on(videos.VideoPublished, broken))
  await fixture.publish(published('a', 1))
  await eventually(() => fixture.heard('consumer.retried').some(({ error }) => /took over the lanes/.test(error)))
  expect(fixture.heard('consumer.dead')).toEqual([])
  await eventually(async () => (await fixture.count('dead_letter', 'attempts = 2')) === 1)
  await stop()
  expect(await fixture.count('inbox_message')).toBe(0)
})

test('an event that waited and fails at its turn is charged once, though it could not be put to rest at once', async () => {
  const fixture = await consumerFixture(db)
  let outages = 2
  let isBroken = true
  const flickering: Database = {
    ...db,
    query: async (text, values) => {
      if (!text.includes('set attempts = m.attempts + 1') || outages === 0) return await db.query(text, values)
      outages -= 1
      isBroken = false
      throw Object.assign(new Error('read ECONNRESET'), { code: 'ECONNRESET' })
    },
  }
  const consumer = fixture.consumer({ db: flickering }).on(accounts.Deposited, ({ version }) => {
    if (version === 2n && isBroken) throw new Error('broken')
  })
  const stop = fixture.start(consumer)
  await fixture.publish(deposited('x', 2, 1))
  await eventually(async () => (await fixture.count('inbox_message')) === 1)
  await fixture.publish(deposited('x', 1, 1))
  await fixture.settled(2)
  await stop()
  expect(outages).toBe(0)
  expect(fixture.heard('consumer.failed').map(({ attempts }) => attempts)).toEqual([1])
})

test('an event that is given up is charged once, though it could not be buried at once', async () => {
  const fixture = await consumerFixture(db)
  let outages = 2
  const flickering: Database = {
    ...db,
    attempt: (options, work) =>
      db.attempt(options, (tx) => {
        const query: Tx['query'] = async (text, values) => {
          if (!/insert into \S+dead_letter/.test(text) || outages === 0) return await tx.query(text, values)
          outages -= 1
          throw Object.assign(new Error('read ECONNRESET'), { code: 'ECONNRESET' })
        }
        return work(markTx({ native: tx.native, query }))
      }),
  }
  const broken = (): never => {
    throw new Error('broken')
  }
  const stop = fixture.start(fixture.consumer({ db: flickering, maxAttempts: 1 }).on(accounts.Deposited, broken))
  await fixture.publish(deposited('x', 1, 1))
  await eventually(() => fixture.heard('consumer.dead').length === 1)
  await stop()
  expect([outages, fixture.heard('consumer.dead').map(({ attempts }) => attempts)]).toEqual([0, [1]])
  expect(await fixture.count('dead_letter', 'attempts = 1')).toBe(1)
})
