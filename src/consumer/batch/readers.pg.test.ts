import { expect, test } from 'vitest'
import { accounts, consumerFixture, videos } from '../../../test/setup/consumer-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import type { AnyStream } from '../../core/event/stream.ts'
import type { Database } from '../../postgres/query/database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { createFakeClock, type FakeClock } from '../../testing/kit/fake-clock.ts'
import { eventually } from '../../testing/kit/eventually.ts'
import { inboxTables } from '../tables/inbox.sql.ts'
import { withRegistration, type Readers } from './readers.ts'
import { RouteBook } from '../model/routes.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

async function world() {
  const fixture = await consumerFixture(db)
  const register = (streams: readonly AnyStream[], more: { db?: Database; clock?: FakeClock } = {}) => {
    const opened = Promise.withResolvers<Readers>()
    const done = Promise.withResolvers<void>()
    const { clock = createFakeClock() } = more
    const book = new RouteBook('catalog', streams)
    book.on(videos.VideoPublished, () => undefined)
    const scope = { tables: inboxTables(fixture.schema), consumer: 'catalog', generation: 1 }
    const ended = withRegistration({ settings: { db: more.db ?? db, clock }, scope, routes: book.build() }, async (readers) => {
      opened.resolve(readers)
      await done.promise
    })
    return { opened: opened.promise, end: () => (done.resolve(), ended), clock }
  }
  return { ...fixture, register }
}

const deposit = { aggregateType: 'account', type: 'Deposited' }

test('a registration names streams and types, lives on its heartbeat, and goes with a clean end', async () => {
  const w = await world()
  const one = w.register([videos, accounts])
  await one.opened
  expect(
    await w.query("select reads, expires_at > clock_timestamp() + interval '50 seconds' as lasts from $schema.consumer_reader"),
  ).toEqual([
    { reads: { account: ['BalanceSet', 'Deposited', 'Renamed'], video: ['VideoPublished', 'VideoRemoved'] }, lasts: true },
  ])
  await w.query(`update $schema.consumer_reader set expires_at = clock_timestamp()`)
  await one.clock.advance(10_000)
  await eventually(async () => (await w.count('consumer_reader', 'expires_at > clock_timestamp()')) === 1)
  await one.end()
  expect(await w.count('consumer_reader')).toBe(0)
})

test('an instance that died counts until its registration runs out, and any heartbeat removes it an hour later', async () => {
  const w = await world()
  const [old, dead] = [w.register([videos]), w.register([videos, accounts])]
  const readers = await old.opened
  await dead.opened
  expect((await readers.look()).read(deposit, 'stream')).toBe(true)
  await w.query(`update $schema.consumer_reader set expires_at = clock_timestamp() where reads ? 'account'`)
  await old.clock.advance(20)
  expect((await readers.look()).read(deposit, 'stream')).toBe(false)
  expect(await w.count('consumer_reader')).toBe(2)
  await w.query(
    `update $schema.consumer_reader set expires_at = clock_timestamp() - interval '61 minutes' where reads ? 'account'`,
  )
  await old.clock.advance(10_000)
  await eventually(async () => (await w.count('consumer_reader')) === 1)
  await Promise.all([old.end(), dead.end()])
})

test('instances of one version are no others to each other, nor are those of another generation', async () => {
  const w = await world()
  const [one, two] = [w.register([videos, accounts]), w.register([accounts, videos])]
  await two.opened
  expect((await (await one.opened).look()).read(deposit, 'type')).toBe(false)
  await w.query(
    `update $schema.consumer_reader set generation = 2, digest = 'other' where instance = (select min(instance::text)::uuid from $schema.consumer_reader)`,
  )
  await one.clock.advance(20)
  expect((await (await one.opened).look()).read(deposit, 'type')).toBe(false)
  await Promise.all([one.end(), two.end()])
})

test('after an outage a look waits until the others had the time to register again', async () => {
  const w = await world()
  let isOut = false
  let beats = 0
  const query: Database['query'] = async (text, values) => {
    if (isOut) throw Object.assign(new Error('connection refused'), { code: 'ECONNREFUSED' })
    const answer = await db.query(text, values)
    if (text.includes('insert into')) beats += 1
    return answer
  }
  const one = w.register([videos], { db: { ...db, query } })
  const readers = await one.opened
  isOut = true
  await one.clock.advance(70_000)
  await expect(readers.look()).rejects.toThrow('connection refused')
  isOut = false
  await one.clock.advance(20)
  let seen: boolean | undefined
  const looking = readers.look().then((others) => (seen = others.read(deposit, 'stream')))
  await eventually(() => beats === 2)
  expect(seen).toBe(undefined)
  const two = w.register([videos, accounts])
  await two.opened
  await one.clock.advance(20_000)
  await looking
  expect(seen).toBe(true)
  await Promise.all([one.end(), two.end()])
})
