import { expect, test } from 'vitest'
import { consumerFixture, mails, published, videos } from '../../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'

const db = fromPg((await testDatabase()).pool)

test('an event that is emitted after its handler has returned is refused, never dropped in silence', async () => {
  const fixture = await consumerFixture(db)
  const late: (() => void)[] = []
  const refused: unknown[] = []
  const emitLate = (): void => {
    for (const emit of late) {
      try {
        emit()
      } catch (error) {
        refused.push((error as { code?: unknown }).code)
      }
    }
  }
  const consumer = fixture.consumer().on(videos.VideoPublished, (event, { emit }) => {
    emitLate()
    late.push(() => emit(mails.MailRequested, `mail-${event.aggregateId}`, { to: 'a' }))
  })
  const stop = fixture.start(consumer)
  await fixture.publish(published('a', 1), published('b', 1))
  await fixture.settled(2)
  await stop()
  emitLate()
  // One that came before COMMIT rolled its batch back: the events were handled again.
  expect(refused.length).toBeGreaterThan(3)
  expect(new Set(refused)).toEqual(new Set(['NOT_A_TRANSACTION']))
  expect(fixture.heard('transaction.used-after-end')).toContainEqual(expect.objectContaining({ what: 'emit(MailRequested)' }))
  expect(await fixture.count('outbox')).toBe(0)
})
