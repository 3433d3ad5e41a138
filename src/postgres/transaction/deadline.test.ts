import { expect, test } from 'vitest'
import { errorMessage } from '../../core/errors.ts'
import { createFakeClock } from '../../testing/kit/fake-clock.ts'
import { markTx, type BeginOptions, type Database, type QueryResult, type StatementOptions, type Tx } from '../query/database.ts'
import { withDeadlines } from './deadline.ts'

const options: BeginOptions = {
  isolation: 'read committed',
  statementTimeoutMs: 30_000,
  lockTimeoutMs: 5_000,
  idleInTransactionTimeoutMs: 60_000,
  synchronousCommit: 'on',
}
/** Of the time-outs above, with the time that an answer may take. */
const longestMs = 95_000

/** A database whose answers the test gives, one for each statement, COMMIT included; it tells what was sent. */
function slowDatabase() {
  const clock = createFakeClock()
  const sent: string[] = []
  const waiting: (() => void)[] = []
  let givenUp: AbortSignal | undefined
  const query = (text: string): Promise<QueryResult> => {
    sent.push(text)
    return new Promise((resolve) => waiting.push(() => resolve({ rows: [], rowCount: 0 })))
  }
  const db: Database<string> = {
    query: (text, _values, asked?: StatementOptions) => {
      givenUp = asked?.givenUp
      return query(text)
    },
    attempt: async (begun, work) => {
      givenUp = begun.givenUp
      try {
        const result = await work(markTx({ native: 'native', query }))
        await query('commit')
        return result
      } catch (error) {
        await query('rollback')
        throw error
      }
    },
  }
  const answer = async (): Promise<void> => {
    waiting.shift()?.()
    await clock.advance(0)
  }
  return { clock, sent, answer, isGivenUp: () => givenUp?.aborted, db: withDeadlines(db, { statementMs: longestMs, clock }) }
}

const failureOf = (work: Promise<unknown>): Promise<unknown> =>
  work.then(
    () => undefined,
    (error: unknown) => error,
  )

const two = async (tx: Tx<string>): Promise<string> => {
  await tx.query('one')
  await tx.query('two')
  return tx.native
}

test('a statement that is not answered is given up, with its connection', async () => {
  const { db, clock, isGivenUp } = slowDatabase()
  const failure = failureOf(db.query('select 1'))
  await clock.advance(longestMs - 1)
  expect(isGivenUp()).toBe(false)
  await clock.advance(1)
  expect(isGivenUp()).toBe(true)
  expect(await failure).toMatchObject({ code: 'UNAVAILABLE', message: expect.stringContaining('95000 ms') })
  expect(clock.sleepers()).toBe(0)
})

test('a transaction that does not even begin asks whether the pool is too small; one that began does not', async () => {
  const clock = createFakeClock()
  const never: Database = { query: () => new Promise(() => undefined), attempt: () => new Promise(() => undefined) }
  const unbegun = failureOf(withDeadlines(never, { statementMs: longestMs, clock }).attempt(options, () => Promise.resolve()))
  await clock.advance(longestMs)
  expect(await unbegun).toMatchObject({ code: 'UNAVAILABLE', message: expect.stringMatching(/95000 ms.*is the pool too small/i) })
  const slow = slowDatabase()
  const begun = failureOf(slow.db.attempt(options, two))
  await slow.clock.advance(longestMs)
  expect(await begun).toMatchObject({ code: 'UNAVAILABLE', message: expect.not.stringContaining('pool') })
})

test('a transaction of which something is heard takes as long as it takes', async () => {
  const { db, clock, sent, answer, isGivenUp } = slowDatabase()
  const attempt = db.attempt(options, two)
  for (let statement = 1; statement <= 3; statement += 1) {
    await clock.advance(longestMs - 1)
    await answer()
  }
  expect(await attempt).toBe('native')
  expect([sent, isGivenUp(), clock.sleepers()]).toEqual([['one', 'two', 'commit'], false, 0])
})

test('a closure takes as long as it takes, whatever it does', async () => {
  const { db, clock, answer } = slowDatabase()
  const own = Promise.withResolvers<void>()
  const attempt = db.attempt(options, async (tx) => {
    await own.promise
    return tx.native
  })
  await clock.advance(longestMs * 10)
  own.resolve()
  await clock.advance(longestMs - 1)
  await answer()
  expect(await attempt).toBe('native')
})

test('a ROLLBACK that is not answered is given up', async () => {
  const { db, clock } = slowDatabase()
  const failure = failureOf(db.attempt(options, () => Promise.reject(new Error('refused'))))
  expect(clock.sleepers()).toBe(1)
  await clock.advance(longestMs)
  expect(await failure).toMatchObject({ code: 'UNAVAILABLE' })
})

test('a transaction of which nothing is heard is given up, and never goes on to COMMIT', async () => {
  const { db, clock, sent, answer, isGivenUp } = slowDatabase()
  const failure = failureOf(db.attempt(options, two))
  await clock.advance(longestMs - 1)
  expect(isGivenUp()).toBe(false)
  await clock.advance(1)
  expect(await failure).toMatchObject({ code: 'UNAVAILABLE' })
  expect(isGivenUp()).toBe(true)
  await answer()
  expect([sent, clock.sleepers()]).toEqual([['one', 'rollback'], 0])
})

test('a closure whose last statement is answered too late fails, too', async () => {
  const { db, clock, sent, answer } = slowDatabase()
  const failure = failureOf(db.attempt(options, (tx) => tx.query('one')))
  await clock.advance(longestMs)
  expect(await failure).toMatchObject({ code: 'UNAVAILABLE' })
  await answer()
  expect(sent).toEqual(['one', 'rollback'])
})

test('a COMMIT that is not answered may have taken effect', async () => {
  const { db, clock, sent, answer } = slowDatabase()
  const failure = failureOf(db.attempt(options, two))
  await answer()
  await answer()
  await clock.advance(longestMs)
  expect(await failure).toMatchObject({ code: 'COMMIT_UNKNOWN' })
  expect(sent).toEqual(['one', 'two', 'commit'])
})

test.each(['statementTimeoutMs', 'idleInTransactionTimeoutMs'])(
  'one that may take for ever is never given up: %s',
  async (name) => {
    const { db, clock, answer } = slowDatabase()
    const attempt = db.attempt({ ...options, [name]: 0 }, two)
    await clock.advance(longestMs * 100)
    for (let statement = 1; statement <= 3; statement += 1) await answer()
    expect(await attempt).toBe('native')
  },
)

test('whoever waits for a statement for a shorter time gives its connection up then', async () => {
  const { db, clock, isGivenUp } = slowDatabase()
  const failure = failureOf(withDeadlines(db, { statementMs: 3_000, clock }).query('one'))
  expect(isGivenUp()).toBe(false)
  await clock.advance(3_000)
  expect(await failure).toMatchObject({ code: 'UNAVAILABLE' })
  expect(isGivenUp()).toBe(true)
})

test('a deadline that grows lets through what takes long, and is as short as before once that is answered', async () => {
  const clock = createFakeClock()
  let tookMs = 350
  const slow = async (): Promise<QueryResult> => (await clock.sleep(tookMs), { rows: [], rowCount: 0 })
  const db = withDeadlines({ query: slow }, { statementMs: 100, grows: true, clock })
  const waitedFor = async (): Promise<string | undefined> => {
    const outcome = db.query('select 1').then(
      () => 'answered',
      (error: unknown) => /for \d+ ms/.exec(errorMessage(error))?.[0],
    )
    await clock.advance(400)
    return await outcome
  }
  expect([await waitedFor(), await waitedFor(), await waitedFor()]).toEqual(['for 100 ms', 'for 200 ms', 'answered'])
  tookMs = Infinity
  expect(await waitedFor()).toBe('for 100 ms')
})
