/** Nothing waits for ever for a connection that falls silent, and nobody says so: it is made again on another one, and has its effects once. */
import pg from 'pg'
import { afterAll, expect, test } from 'vitest'
import { published, videos } from '../../test/setup/consumer-fixture.ts'
import { logFixture, type LogFixture } from '../../test/setup/log-fixture.ts'
import { testDatabase } from '../../test/setup/test-database.ts'
import { systemClock, type Clock } from '../core/service/clock.ts'
import type { Database } from '../postgres/query/database.ts'
import { fromPg } from '../postgres/adapters/from-pg.ts'
import { transaction } from '../postgres/transaction/transaction.ts'
import { eventually } from '../testing/kit/eventually.ts'
import { startFaultProxy, type Direction } from '../testing/faults/fault-proxy.ts'
import { isCommitReply, isCommitRequest, isStatement, postgresFrames } from '../testing/faults/postgres-frames.ts'
import { drainBrokerDeadLetters } from './operate/broker-dead-letters.ts'
import type { Consumer } from './consumer.ts'
import type { ConsumerOptions } from './model/consumer-options.ts'

const database = await testDatabase()
const { hostname, port } = new URL(database.directUrl)
const proxy = await startFaultProxy({ target: { host: hostname, port: Number(port) }, frames: postgresFrames })
afterAll(() => proxy.stop())

/** A clock on which the longest waits, those for a silent connection, end when the test says so. */
function patientClock(): { readonly clock: Clock; pass(ms: number): void } {
  const sleepers = new Set<() => void>()
  let passedMs = 0
  const sleep: Clock['sleep'] = (delayMs, signal) => {
    if (delayMs < 60_000) return systemClock.sleep(delayMs, signal)
    return new Promise((wake) => {
      sleepers.add(wake)
      signal?.addEventListener('abort', () => (sleepers.delete(wake), wake()), { once: true })
    })
  }
  return {
    clock: { ...systemClock, monotonicMs: () => systemClock.monotonicMs() + passedMs, sleep },
    pass: (ms) => {
      passedMs += ms
      for (const wake of sleepers) wake()
    },
  }
}

/** Projects videos; every row that is written is an effect. */
async function projecting(w: LogFixture, options: Partial<ConsumerOptions>): Promise<Consumer> {
  await w.query(
    `create function $schema.written() returns trigger language plpgsql as $$ begin
       insert into ${w.schema}.effect (aggregate_id, version) values (new.video_id, new.version); return null; end $$`,
  )
  await w.query(
    'create trigger written after insert or update on $schema.video_view for each row execute function $schema.written()',
  )
  const view = { table: `${w.schema}.video_view`, key: 'video_id', set: (event: { data: { title: string } }) => event.data }
  return w.consumer({ streams: [videos], inbox: false, ...options }).project(videos, view)
}

const consumers: Record<string, (w: LogFixture, options: Partial<ConsumerOptions>) => Consumer | Promise<Consumer>> = {
  'an inbox': (w, options) => w.recorder({ ...options, inbox: true, offsets: 'broker', transport: w.broker }),
  'positions alone': projecting,
  'versions alone': (w, options) => projecting(w, { ...options, positions: 'needed' }),
  'offsets alone': (w, options) => w.recorder(options),
}

const places: Record<string, { readonly direction: Direction; readonly match: (message: Buffer) => boolean }> = {
  'at BEGIN': { direction: 'toServer', match: isStatement(/^\s*begin/) },
  'at its effect': { direction: 'toServer', match: isStatement(/insert into \S*(effect|video_view)/) },
  'at COMMIT': { direction: 'toServer', match: isCommitRequest },
  'after COMMIT': { direction: 'toClient', match: isCommitReply },
}

const letter = { direction: 'toServer', match: isStatement(/insert into \S+dead_letter/) } as const

/** A database of one connection, which is silent from `place` on. */
function muteFrom(place: string, name: string): { readonly db: Database; close(): Promise<void> } {
  const { direction, match } = places[place] ?? letter
  proxy.arm({ name, direction, on: { match }, action: 'stall' })
  const pool = new pg.Pool({ connectionString: proxy.url(database.directUrl), max: 1, application_name: 'mute' })
  return { db: fromPg(pool), close: () => pool.end() }
}

/** The transactions that nobody ends. */
async function stuck(): Promise<readonly number[]> {
  const idle = `select pid from pg_stat_activity where application_name = 'mute' and state = 'idle in transaction'`
  return (await database.pool.query<{ pid: number }>(idle)).rows.map(({ pid }) => pid)
}

/** What the server does by itself when a transaction was idle for too long. */
async function end(pids: readonly number[]): Promise<void> {
  await database.pool.query('select pg_terminate_backend(pid) from unnest($1::int[]) as pid', [pids])
}

test.each(Object.keys(consumers).flatMap((known) => Object.keys(places).map((place) => [place, known] as const)))(
  'a batch whose connection falls silent %s is made again on another one; duplicates are known by %s',
  async (place, known) => {
    const w = await logFixture(fromPg(database.pool))
    const { clock, pass } = patientClock()
    const name = `${place} ${known}`
    const { db, close } = muteFrom(place, name)
    const consumer = await consumers[known]?.(w, { db, clock, concurrency: 1, batchSize: 1, maxAttempts: 1, lockTimeoutMs: 20 })
    if (consumer === undefined) throw new Error('unknown')
    const stop = w.start(consumer)
    const messages = [published('a', 1), published('b', 1)]
    if (known === 'offsets alone') {
      w.log.append('0', messages)
      await eventually(() => w.log.members.length === 1)
      await w.log.assign(w.log.members[0], ['0'])
    } else await w.publish(...messages)
    await proxy.fired(name)
    const pids = await stuck()
    expect(w.heard('consumer.retried')).toEqual([])
    pass(100_000)
    await eventually(() => w.heard('consumer.retried').length > 0)
    await end(pids)
    await eventually(async () => (await w.effects()).length === 2)
    await eventually(() => w.heard('consumer.applied').length === 2)
    await stop()
    await close()
    expect((await w.effects()).toSorted()).toEqual(['a 1', 'b 1'])
    expect(w.heard('consumer.retried')[0]?.error).toMatch(
      /COMMIT/.test(place) ? /during COMMIT/ : /Nothing was heard of the database for \d+ ms/,
    )
    expect([await w.count('dead_letter'), await w.count('delivery_attempt', 'attempts > 0')]).toEqual([0, 0])
  },
)

test('marks that were given up behind a lock do not count when that is gone', async () => {
  const db = fromPg(database.pool)
  const w = await logFixture(db)
  const { clock, pass } = patientClock()
  const consumer = w.recorder({ db, clock, inbox: true, offsets: 'broker', transport: w.broker, lockTimeoutMs: 600_000 })
  await w.query('create table $schema.marked (unfinished int)')
  await w.query(
    `create function $schema.note_mark() returns trigger language plpgsql as $$ begin
       insert into ${w.schema}.marked values (new.unfinished); return null; end $$`,
  )
  await w.query(
    'create trigger marked after insert or update on $schema.delivery_attempt for each row execute function $schema.note_mark()',
  )
  const stop = await transaction(db, async (tx) => {
    // Reads go on.
    await tx.query(`lock table ${w.schema}.delivery_attempt in share row exclusive mode`)
    const started = w.start(consumer)
    await eventually(() => consumer.lastPassAgeMs() !== undefined)
    await w.publish(published('a', 1))
    await eventually(() => (pass(100_000), w.heard('consumer.retried').length >= 3))
    return started
  })
  await eventually(async () => expect(await w.effects()).toEqual(['a 1']))
  await stop()
  expect(await w.query('select max(unfinished) as most from $schema.marked')).toEqual([{ most: 1 }])
})

/** A database of some connections, one of which is silent from this statement on. */
function muteAt(statement: RegExp, name: string): { readonly db: Database; close(): Promise<void> } {
  proxy.arm({ name, direction: 'toServer', on: { match: isStatement(statement) }, action: 'stall' })
  const pool = new pg.Pool({ connectionString: proxy.url(database.directUrl) })
  pool.on('error', () => undefined)
  const close = async (): Promise<void> => {
    proxy.cut()
    await pool.end()
  }
  return { db: fromPg(pool), close }
}

test('who asks for stored offsets on a connection that falls silent is told so, and may ask again', async () => {
  const w = await logFixture(fromPg(database.pool))
  const { clock, pass } = patientClock()
  const { db, close } = muteAt(/select o\.partition, o\.next_offset/, 'offsets')
  const stop = w.start(w.recorder({ db, clock }))
  w.log.append('0', [published('a', 1)])
  await eventually(() => w.log.members.length === 1)
  const assigned = w.log.assign(w.log.members[0], ['0'])
  await proxy.fired('offsets')
  pass(100_000)
  await expect(assigned).rejects.toMatchObject({ code: 'UNAVAILABLE' })
  await w.log.assign(w.log.members[0], ['0'])
  await eventually(async () => expect(await w.effects()).toEqual(['a 1']))
  await stop()
  await close()
})

test('a stored message that failed is put to rest on another connection if the first falls silent, and is charged once', async () => {
  const w = await logFixture(fromPg(database.pool))
  const { clock, pass } = patientClock()
  const { db, close } = muteAt(/select l\.lane from \S+ l where l\.consumer = \S+ and l\.lane = \S+ for update/, 'rest')
  let isBroken = true
  const options = { db, clock, mode: 'stored', concurrency: 1, inbox: true, offsets: 'broker', transport: w.broker } as const
  const consumer = w.recorder(options, () => {
    if (isBroken) throw new Error('broken')
  })
  const stop = w.start(consumer)
  await w.publish(published('a', 1))
  await proxy.fired('rest')
  isBroken = false
  pass(100_000)
  await eventually(async () => expect(await w.effects()).toEqual(['a 1']))
  await stop()
  await close()
  expect(w.heard('consumer.failed').map(({ attempts }) => attempts)).toEqual([1])
})

test.each(['at BEGIN', 'at its letter', 'at COMMIT', 'after COMMIT'])(
  'what the broker gave up on becomes one letter, also when the connection falls silent %s',
  async (place) => {
    const w = await logFixture(fromPg(database.pool))
    const { clock, pass } = patientClock()
    const { db, close } = muteFrom(place, `letter ${place}`)
    const { schema, signals, broker: transport } = w
    const drain = drainBrokerDeadLetters({ db, clock, schema, signals, transport, consumer: 'catalog', topics: ['dead'] })
    const stop = w.start(drain as Consumer)
    await w.publish({ ...published('a', 1), topic: 'dead' })
    await proxy.fired(`letter ${place}`)
    const pids = await stuck()
    expect(w.heard('consumer.disturbed')).toEqual([])
    pass(100_000)
    await eventually(() => w.heard('consumer.disturbed').length === 1)
    await end(pids)
    await eventually(() => w.heard('consumer.dead').length === 1)
    await w.broker.quiet()
    await stop()
    await close()
    expect(w.heard('consumer.disturbed')).toMatchObject([{ topic: 'dead' }])
    expect(await w.query('select state, version::int from $schema.dead_letter')).toEqual([{ state: 'dead', version: 1 }])
  },
)
