import { expect, test } from 'vitest'
import { consumerFixture, published, videos } from '../../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import type { Database } from '../../postgres/query/database.ts'
import { systemClock, type Clock } from '../../core/service/clock.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { discardDeadLetters } from '../operate/discard.ts'
import { redriveDeadLetters } from '../operate/redrive.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

/** The same database, which counts how often redriven letters were looked for. */
function countLooks(): { readonly db: Database; readonly count: () => number } {
  let count = 0
  const query: Database['query'] = async (text, values) => {
    if (text.includes('d.id as seq')) count += 1
    return await db.query(text, values)
  }
  return { db: { ...db, query }, count: () => count }
}

test.each([
  ['a redriven letter', redriveDeadLetters, ['a 1', 'a 2']],
  ['a released message', discardDeadLetters, ['a 2']],
] as const)('%s that one instance works for long is not taken for a killer by the others', async (_what, act, expected) => {
  const fixture = await consumerFixture(db)
  const [handling, mayGoOn] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  const instances = [countLooks(), countLooks()]
  let broken = true
  const effects: string[] = []
  const consumers = instances.map((instance) =>
    fixture
      .consumer({ db: instance.db, maxAttempts: 1, maxCrashes: 1, lockTimeoutMs: 10 })
      .on(videos.VideoPublished, async ({ aggregateId, version }) => {
        if (broken) throw new Error('broken')
        handling.resolve()
        await mayGoOn.promise
        effects.push(`${aggregateId} ${version}`)
      }),
  )
  const stop = fixture.start(...consumers)
  await fixture.publish(published('a', 1), published('a', 2))
  await eventually(async () => (await fixture.count('dead_letter')) === 1 && (await fixture.count('inbox_message')) === 1)
  broken = false
  await act({ db, schema: fixture.schema, filter: { all: true }, actor: 'ada' })
  await handling.promise
  const before = instances.map(({ count }) => count())
  await eventually(() => instances.some(({ count }, i) => count() > (before[i] ?? 0) + 3))
  mayGoOn.resolve()
  await eventually(async () => (await fixture.count('inbox', `source = 'video'`)) >= expected.length && effects.length > 0)
  await eventually(async () => (await fixture.count('inbox_message')) === 0)
  await stop()
  expect(effects).toEqual(expected)
  expect(await fixture.count('dead_letter', `state = 'dead'`)).toBe(0)
  expect(await fixture.count('delivery_attempt')).toBe(0)
})

test('what is worked for longer than a lease stays in one hand', async () => {
  const fixture = await consumerFixture(db)
  const [handling, mayGoOn] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  const renewals: (() => void)[] = []
  const sleep: Clock['sleep'] = (delayMs, signal) => {
    if (delayMs !== 20_000) return systemClock.sleep(delayMs, signal)
    return new Promise((wake) => {
      renewals.push(wake)
      signal?.addEventListener('abort', () => wake(), { once: true })
    })
  }
  let broken = true
  const options = { clock: { ...systemClock, sleep }, maxAttempts: 1, leaseMs: 60_000 }
  const stop = fixture.start(
    fixture.consumer(options).on(videos.VideoPublished, async () => {
      if (broken) throw new Error('broken')
      handling.resolve()
      await mayGoOn.promise
    }),
  )
  await fixture.publish(published('a', 1), published('a', 2))
  await eventually(async () => (await fixture.count('dead_letter')) === 1 && (await fixture.count('inbox_message')) === 1)
  broken = false
  await discardDeadLetters({ db, schema: fixture.schema, filter: { all: true }, actor: 'ada' })
  await handling.promise
  const lease = async (): Promise<string | undefined> =>
    (await fixture.query<{ until: string }>('select max(next_attempt_at)::text as until from $schema.inbox_message'))[0]?.until
  const first = await lease()
  expect(first).toEqual(expect.any(String))
  for (const wake of renewals.splice(0)) wake()
  await eventually(async () => (await lease()) !== first)
  mayGoOn.resolve()
  await eventually(async () => (await fixture.count('inbox_message')) === 0)
  await stop()
})

test('a redriven letter that fails again and again has ended no process', async () => {
  const fixture = await consumerFixture(db)
  const stop = fixture.start(
    fixture.consumer({ maxAttempts: 1, maxCrashes: 1 }).on(videos.VideoPublished, () => {
      throw new Error('broken')
    }),
  )
  await fixture.publish(published('a', 1))
  for (const redrives of [0, 1, 2, 3]) {
    await eventually(async () => (await fixture.count('dead_letter', `state = 'dead' and redrives = ${redrives}`)) === 1)
    await redriveDeadLetters({ db, schema: fixture.schema, filter: { all: true }, actor: 'ada' })
  }
  await eventually(async () => (await fixture.count('dead_letter', `state = 'dead' and redrives = 4`)) === 1)
  await stop()
  expect(await fixture.query('select reason, attempts from $schema.dead_letter')).toEqual([{ reason: 'failed', attempts: 5 }])
  expect(await fixture.count('delivery_attempt')).toBe(0)
})
