import { expect, test } from 'vitest'
import { consumerFixture } from '../../../test/setup/consumer-fixture.ts'
import { muteOnce } from '../../../test/setup/mute-once.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { createFakeClock } from '../../testing/kit/fake-clock.ts'
import { createInboxRetention } from './retention.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

test('a removal that is never answered, on a dead connection, is given up and made again', async () => {
  const fixture = await consumerFixture(db)
  await fixture.query(
    `insert into $schema.delivery_attempt (consumer, generation, event_id, first_at)
     values ('catalog', 1, gen_random_uuid(), clock_timestamp() - interval '40 days')`,
  )
  const [clock, never] = [createFakeClock(), new AbortController().signal]
  const mute = muteOnce(db, (text) => text.includes('delivery_attempt'))
  const { pass } = createInboxRetention({ db: mute.db, schema: fixture.schema, signals: fixture.signals, clock })
  const failed = pass(never).catch((error: unknown) => error)
  await mute.asked
  await clock.advance(600_000)
  expect(await failed).toMatchObject({ code: 'UNAVAILABLE' })
  await pass(never)
  expect(await fixture.count('delivery_attempt')).toBe(0)
})
