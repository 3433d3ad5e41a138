import { expect, test } from 'vitest'
import { errorMessage } from '../../core/errors.ts'
import type { QueryResult } from '../../postgres/query/database.ts'
import { createFakeClock } from '../../testing/kit/fake-clock.ts'
import { inTime } from './statement-timeout.ts'

const answer: QueryResult = { rows: [], rowCount: 0 }

test('what takes longer than is waited for gets through in the end, and after that a dead connection is given up as soon as before', async () => {
  const clock = createFakeClock()
  let tookMs = 350
  const slow = async (): Promise<QueryResult> => (await clock.sleep(tookMs), answer)
  const db = inTime({ query: slow }, 100, clock)
  const waitedFor = async (): Promise<string | undefined> => {
    const outcome = db.query('select 1').then(
      () => 'answered',
      (error: unknown) => /within \d+ ms/.exec(errorMessage(error))?.[0],
    )
    await clock.advance(400)
    return await outcome
  }
  expect([await waitedFor(), await waitedFor(), await waitedFor()]).toEqual(['within 100 ms', 'within 200 ms', 'answered'])
  tookMs = Infinity
  expect(await waitedFor()).toBe('within 100 ms')
})
