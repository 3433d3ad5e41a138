import { expect, test } from 'vitest'

import { eventually } from '../../testing/kit/eventually.ts'
import { createFakeClock } from '../../testing/kit/fake-clock.ts'
import type { BeginOptions, Queryable } from '../query/database.ts'
import { ormDatabase } from './orm-database.ts'

const options: BeginOptions = {
  isolation: 'read committed',
  statementTimeoutMs: 30_000,
  lockTimeoutMs: 5_000,
  idleInTransactionTimeoutMs: 60_000,
  synchronousCommit: 'on',
}

/** A library whose driver gives up each question after 200 ms, until the test lets the server answer; it tells who has the connection. */
function muteLibrary() {
  const clock = createFakeClock()
  let isMute = true
  let isLent = false
  const ask = async (): Promise<void> => {
    await clock.sleep(200)
    if (isMute) throw new Error('Query read timeout')
  }
  const connection: Queryable = { query: async () => ({ rows: [{ xid: '7', server: '1' }], rowCount: 1 }) }
  const db = ormDatabase<string>(
    {
      pool: {},
      ...connection,
      connection: () => connection,
      begin: async ({ untilAnswered }, work) => {
        isLent = true
        try {
          return await work('native')
        } catch (error) {
          await untilAnswered(ask, error)
          throw error
        } finally {
          isLent = false
        }
      },
    },
    clock,
  )
  return { db, clock, isLent: () => isLent, answer: () => void (isMute = false) }
}

test.each([
  ['that has a time-out', options, 32_000],
  ['that may take for ever', { ...options, statementTimeoutMs: 0 }, 62_000],
])('a connection without an answer to a statement %s is kept from others until there is one', async (_what, how, patienceMs) => {
  const { db, clock, isLent, answer } = muteLibrary()
  let told: unknown
  const failing = db.attempt(how, () => Promise.reject(new Error('Query read timeout')))
  failing.catch((error: unknown) => (told = error))
  await eventually(() => clock.sleepers() > 0)
  await clock.advance(patienceMs - 1)
  expect(told).toBeUndefined()
  // The caller has waited long enough; the connection has not.
  await clock.advance(1)
  expect(told).toMatchObject({ message: 'Query read timeout' })
  await clock.advance(2 * options.idleInTransactionTimeoutMs)
  expect(isLent()).toBe(true)
  answer()
  await clock.advance(400)
  expect([isLent(), clock.sleepers()]).toEqual([false, 0])
})
