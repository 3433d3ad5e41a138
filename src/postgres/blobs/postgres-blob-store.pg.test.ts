import { createHash, randomBytes } from 'node:crypto'
import pg from 'pg'
import { expect, test } from 'vitest'

import { filmStream } from '../../../test/outbox/film-stream.ts'
import { outboxFixture } from '../../../test/setup/outbox-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { createBlobRetention } from '../../codec/blob-retention.ts'
import { readData } from '../../core/event/stream.ts'
import { startChild } from '../../testing/process/child.ts'
import { createFakeClock } from '../../testing/kit/fake-clock.ts'
import { startFaultProxy } from '../../testing/faults/fault-proxy.ts'
import { isStatement, postgresFrames } from '../../testing/faults/postgres-frames.ts'
import { memory } from '../../transport/memory/memory.ts'
import { blobTables, expireBlobs } from './blob.sql.ts'
import { fromPg } from '../adapters/from-pg.ts'
import { postgresBlobStore } from './postgres-blob-store.ts'
import { transaction } from '../transaction/transaction.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
const never = new AbortController().signal

async function films() {
  const fixture = await outboxFixture(db)
  const { schema } = fixture.outbox.tables
  const store = postgresBlobStore({ db, schema })
  const film = filmStream(store)
  const count = async (table: string): Promise<number> =>
    ((await db.query(`select count(*)::int as n from ${schema}.${table}`)).rows[0] as { n: number }).n
  return { ...fixture, schema, store, film, count }
}

test('a payload of 50 MB goes out and comes in by claim check, and the message stays small', async () => {
  const { outbox, relay, film } = await films()
  const reel = randomBytes(25_000_000).toString('hex')
  await transaction(db, (tx) => outbox.add(tx, film.FilmMade, 'f1', { reel }))
  const broker = memory()
  expect(await relay(broker).once()).toBe(1)
  const message = broker.published[0]!
  expect(message.body.length).toBeLessThan(400)
  expect(message.attributes['content_type']).toBe('application/vnd.waybill.claim+json')
  const data = await readData(film.FilmMade, message.body, 1)
  expect(data.reel.length).toBe(50_000_000)
  expect(sha(data.reel)).toBe(sha(reel))
})

test('a transaction that rolls back leaves a blob that nobody refers to, and retention removes it', async () => {
  const { outbox, film, store, count, schema } = await films()
  const failing = transaction(db, async (tx) => {
    await outbox.add(tx, film.FilmMade, 'f1', { reel: 'x'.repeat(5_000) })
    throw new Error('card declined')
  })
  await expect(failing).rejects.toThrow('card declined')
  expect([await count('outbox'), await count('blob'), await count('blob_part')]).toEqual([0, 1, 1])

  const retention = createBlobRetention({ store, keepMs: 86_400_000 })
  expect(await retention.pass(never)).toBe('idle')
  await db.query(`update ${schema}.blob set used_at = used_at - interval '2 days'`)
  expect(await retention.pass(never)).toBe('more')
  expect([await count('blob'), await count('blob_part')]).toEqual([0, 0])
})

test('a writer that dies between the blob and its commit leaves a blob that nobody refers to, and nothing else', async () => {
  const { schema, count } = await films()
  const child = startChild(new URL('../../../test/outbox/claim-check-child.ts', import.meta.url), {
    args: [JSON.stringify({ url: database.url, schema })],
    failpoint: { name: 'kept', action: 'kill' },
  })
  await child.failpoint('kept')
  expect(await child.exited).toMatchObject({ signal: 'SIGKILL' })
  expect([await count('blob'), await count('outbox'), await count('aggregate_version')]).toEqual([1, 0, 0])
})

test('bytes that are written again stay, although they were due to be expired', async () => {
  const { outbox, film, store, schema } = await films()
  const add = () => transaction(db, (tx) => outbox.add(tx, film.FilmMade, 'f1', { reel: 'y'.repeat(5_000) }))
  await add()
  await db.query(`update ${schema}.blob set used_at = used_at - interval '2 days'`)
  await add()
  expect(await store.expire(86_400_000)).toBe(0)
})

test('many writers of the same bytes write them once', async () => {
  const { outbox, film, count } = await films()
  const reel = 'z'.repeat(5_000)
  await Promise.all(
    Array.from({ length: 4 }, (_, i) => transaction(db, (tx) => outbox.add(tx, film.FilmMade, `f${i}`, { reel }))),
  )
  expect([await count('outbox'), await count('blob'), await count('blob_part')]).toEqual([4, 1, 1])
})

test('bytes that were changed in the table are refused', async () => {
  const { outbox, relay, film, schema } = await films()
  await transaction(db, (tx) => outbox.add(tx, film.FilmMade, 'f1', { reel: 'a'.repeat(5_000) }))
  const broker = memory()
  await relay(broker).once()
  await db.query(`update ${schema}.blob_part set bytes = set_byte(bytes, 100, 98)`)
  await expect(readData(film.FilmMade, broker.published[0]!.body, 1)).rejects.toMatchObject({ code: 'CORRUPT' })
})

test('a store out of reach is UNAVAILABLE inside the business transaction, and nothing of it is kept', async () => {
  const { outbox, count } = await films()
  const broken = postgresBlobStore({ db, schema: 'not_there' })
  const film = filmStream(broken)
  const adding = transaction(db, (tx) => outbox.add(tx, film.FilmMade, 'f1', { reel: 'x'.repeat(5_000) }))
  await expect(adding).rejects.toMatchObject({ code: 'UNAVAILABLE' })
  expect([await count('outbox'), await count('aggregate_version')]).toEqual([0, 0])
})

test.each([
  { place: 'looks for the bytes', match: /^update \S*blob/, call: 'put' },
  { place: 'begins to write', match: /^\s*begin/, call: 'put' },
  { place: 'asks for their size', match: /count\(\*\)/, call: 'get' },
  { place: 'reads them', match: /^select bytes/, call: 'get' },
  { place: 'removes what is old', match: /^\s*with old/, call: 'expire' },
] as const)('a store whose only connection falls silent when it $place goes on with another one', async ({ match, call }) => {
  const { schema, store: other } = await films()
  const { hostname, port } = new URL(database.directUrl)
  const proxy = await startFaultProxy({ target: { host: hostname, port: Number(port) }, frames: postgresFrames })
  const pool = new pg.Pool({ connectionString: proxy.url(database.directUrl), max: 1 })
  pool.on('error', () => undefined)
  const clock = createFakeClock()
  const store = postgresBlobStore({ db: fromPg(pool), schema, clock })
  const bytes = Buffer.from('reel')
  const calls = {
    put: async () => await store.put('films/f1', bytes, { signal: never }),
    get: async () => await store.get('films/f1', { maxBytes: 100, signal: never }),
    expire: async () => await store.expire(60_000),
  }
  if (call === 'get') await other.put('films/f1', bytes, { signal: never })
  proxy.arm({ name: 'silent', direction: 'toServer', on: { match: isStatement(match) }, action: 'stall' })
  const asked = calls[call]().catch((error: unknown) => error)
  await proxy.fired('silent')
  await clock.advance(600_000)
  expect(await asked).toMatchObject({ code: 'UNAVAILABLE' })
  await calls[call]()
  await pool.end()
  await proxy.stop()
})

test('what is old is found by the index, and what is young is not looked at', async () => {
  const { schema } = await films()
  await db.query(`insert into ${schema}.blob (key, bytes) select n::text, 1 from generate_series(1, 2000) n`)
  await db.query(`analyze ${schema}.blob`)
  const { text, values } = expireBlobs(blobTables(schema), 60_000, 100)
  const { rows } = await db.query(`explain ${text}`, values)
  const plan = (rows as { 'QUERY PLAN': string }[]).map((row) => row['QUERY PLAN']).join('\n')
  expect(plan).toMatch(/Index Cond: \(used_at < /)
})

function sha(text: string): string {
  return createHash('sha256').update(text).digest('hex')
}
