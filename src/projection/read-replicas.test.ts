import { expect, test } from 'vitest'
import { videos } from '../../test/setup/consumer-fixture.ts'
import { tokenOf, videoReads } from '../../test/setup/video-reads.ts'
import type { Queryable } from '../postgres/query/database.ts'

test('a reader whose replica is behind the one that answers for positions asks no faster than it polls', async () => {
  let queries = 0
  const db: Queryable = {
    query: async (text) => {
      queries += 1
      if (queries > 1_000) throw new Error('It asks again and again.')
      const row = { waybill_position: '1', waybill_version: '1', waybill_found: true }
      return { rows: [text.includes('waybill_found') ? row : { place: 1, version: '2' }], rowCount: 1 }
    },
  }
  const { clock, reads } = videoReads(db)
  const read = reads.read(videos, 'x', { atLeast: tokenOf(2n) }).catch((error: unknown) => error)
  for (let step = 0; step < 60; step += 1) await clock.advance(10)
  expect(await read).toMatchObject({ code: 'NOT_YET' })
  expect(queries).toBeLessThan(200)
})
