import { expect, test } from 'vitest'
import { openWorld } from '../../../test/outbox/world.ts'
import { log, outboxFixture, videos } from '../../../test/setup/outbox-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

test.each(['infinity', '-infinity', '20000-01-01'])(
  'a date that nobody can wait for is refused when it is written: %s',
  async (date) => {
    const { schema } = (await outboxFixture(db)).outbox.tables
    const add = `select ${schema}.add_event('video.events', 'video', 'v1', 'VideoPublished', convert_to('{}', 'UTF8'), not_before => $1::text::timestamptz)`
    await expect(db.query(add, [date])).rejects.toThrow(/outbox_dispatch_next_retry_at_check/)
  },
)

test('the last date that can be written keeps nobody else from being settled', async () => {
  const world = await openWorld(db)
  const last = new Date('9999-12-31T23:59:59Z')
  await transaction(db, (tx) => world.outbox.add(tx, videos.VideoPublished, 'far', { title: 'one' }, { notBefore: last }))
  await world.publish('bad', 'one')
  await world.publish('good', 'one')
  world.refuse('bad 1')
  await world.relay({ backoffMs: 600_000 }).drain()
  expect(log(world.broker)).toEqual(['good 1'])
  expect(await world.dispatch()).toMatchObject([
    { state: 1, publish_attempts: 0, last_error: 'waits for its date' },
    { state: 1, publish_attempts: 1 },
  ])
})
