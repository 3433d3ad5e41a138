import { expect, test } from 'vitest'
import { muteOnce } from '../../../test/setup/mute-once.ts'
import { outboxFixture } from '../../../test/setup/outbox-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { createFakeClock } from '../../testing/kit/fake-clock.ts'
import { memory } from '../../transport/memory/memory.ts'
import { createOutboxRetention } from './retention.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
const never = new AbortController().signal

test('a removal that is never answered, on a dead connection, is given up and made again', async () => {
  const { outbox, signals, publish, relay } = await outboxFixture(db)
  await publish('done', '1')
  await relay(memory()).once()
  const clock = createFakeClock()
  const mute = muteOnce(db, (text) => text.includes('outbox_expire'))
  const left = async (): Promise<readonly unknown[]> =>
    (
      await db.query(
        `select id from ${outbox.tables.outbox.quoted} union all select event_id from ${outbox.tables.receipt.quoted}`,
      )
    ).rows
  const retention = createOutboxRetention({ db: mute.db, outbox, signals, clock, eventsMs: 0, receiptsMs: 0, sourcesMs: 0 })
  const failed = retention.pass(never).catch((error: unknown) => error)
  await mute.asked
  await clock.advance(600_000)
  expect(await failed).toMatchObject({ code: 'UNAVAILABLE' })
  // The receipts were first; the others had their turn.
  expect(await left()).toHaveLength(1)
  await retention.pass(never)
  expect(await left()).toEqual([])
})
