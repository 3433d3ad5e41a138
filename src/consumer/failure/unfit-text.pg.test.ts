import { expect, test } from 'vitest'
import { consumerFixture, deposited, published, videos } from '../../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { eventually } from '../../testing/kit/eventually.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

/** An escape that is part of a text, a NUL, and half a surrogate pair. */
const unfit = { note: String.raw`{"a":"\u0000"}`, 'n\u0000ul': 'a\u0000b', half: 'a\ud83d' }
const kept = { note: String.raw`{"a":"\u0000"}`, nul: 'ab', half: 'a\ufffd' }

test.each(['direct', 'stored'] as const)(
  'what Postgres takes as no text makes no message impossible to keep (%s)',
  async (mode) => {
    const fixture = await consumerFixture(db)
    const consumer = fixture.consumer({ mode, maxAttempts: 1 }).on(videos.VideoPublished, () => {
      throw new Error('no')
    })
    const ours = published('a', 1, 'one', unfit)
    await fixture.publish(
      { ...ours, orderingKey: 'k\u0000' },
      { ...deposited('x', 1, 1), orderingKey: '\u0000\u0001', attributes: { event_type: 'Not\u0000Ours' } },
    )
    const stop = fixture.start(consumer)
    await eventually(async () => (await fixture.count('dead_letter')) === 2)
    await stop()
    expect(
      await fixture.query(`select reason, event_type, ordering_key, attributes from $schema.dead_letter order by reason`),
    ).toEqual([
      {
        reason: 'failed',
        event_type: 'VideoPublished',
        ordering_key: 'k',
        attributes: { ...ours.attributes, ...kept, 'n\u0000ul': undefined },
      },
      { reason: 'not_ours', event_type: 'NotOurs', ordering_key: '\u0001', attributes: { event_type: 'NotOurs' } },
    ])
  },
)
