import { expect, test } from 'vitest'
import { videos } from '../../test/setup/consumer-fixture.ts'
import { createTokens } from '../core/token.ts'
import type { Queryable } from '../postgres/database.ts'
import { createFakeClock } from '../testing/fake-clock.ts'
import { createProjection } from './projection.ts'
import { createReads } from './reads.ts'

test('a reader whose replica is behind the one that answers for positions asks no faster than it polls', async () => {
  const clock = createFakeClock()
  const tokens = createTokens()
  let queries = 0
  const db: Queryable = {
    query: async (text) => {
      queries += 1
      if (queries > 1_000) throw new Error('It asks again and again.')
      const row = { waybill_position: '1', waybill_version: '1', waybill_found: true }
      return { rows: [text.includes('waybill_found') ? row : { place: 1, version: '2' }], rowCount: 1 }
    },
  }
  const set = (event: { data: { title: string } }) => ({ title: event.data.title })
  const projection = createProjection(videos, { table: 'catalog.video_view', key: 'video_id', set })
  const reads = createReads({
    db,
    schema: 'waybill',
    consumer: 'catalog',
    streams: [videos],
    projections: () => [projection],
    tokens,
    positions: 'every',
    waitMs: 500,
    waitPollMs: 10,
    maxWaiters: 10,
    clock,
  })
  const atLeast = tokens.encode({ aggregateType: 'video', aggregateId: 'v1', version: 2n })
  const read = reads.read(videos, 'v1', { atLeast }).catch((error: unknown) => error)
  for (let step = 0; step < 60; step += 1) await clock.advance(10)
  expect(await read).toMatchObject({ code: 'NOT_YET' })
  expect(queries).toBeLessThan(200)
})
