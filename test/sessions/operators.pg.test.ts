/** What operators run, in sessions with other defaults: backfill, rebuild, ingest, blobs, status, trace and the dashboard. */
import pg from 'pg'
import { afterEach, expect, test } from 'vitest'
import { createIngest } from '../../src/ingest/ingest.ts'
import { status } from '../../src/ops/status/status.ts'
import { trace } from '../../src/ops/trace/trace.ts'
import { createBackfill } from '../../src/outbox/backfill/backfill.ts'
import { backfillTable } from '../../src/outbox/backfill/table-source.ts'
import { event } from '../../src/outbox/outbox.ts'
import { fromPg } from '../../src/postgres/adapters/from-pg.ts'
import { postgresBlobStore } from '../../src/postgres/blobs/postgres-blob-store.ts'
import { videos } from '../setup/consumer-fixture.ts'
import { site } from '../setup/dashboard-fixture.ts'
import { rebuildWorld } from '../setup/rebuild-fixture.ts'
import { testDatabase } from '../setup/test-database.ts'
import { sessions } from './sessions.ts'

const database = await testDatabase()
const closing: (() => Promise<unknown>)[] = []
afterEach(async () => {
  for (const close of closing.splice(0).toReversed()) await close()
  await database.pool.query(`alter database ${database.name} reset all`)
})

interface Film {
  readonly shown: Date
  readonly id: string
}

test.each(Object.entries(sessions))('operators get the same in sessions with %s', async (_name, settings) => {
  for (const [name, value] of Object.entries(settings))
    await database.pool.query(`alter database ${database.name} set ${name} = ${value}`)
  const pool = new pg.Pool({ connectionString: database.directUrl })
  closing.push(() => pool.end())
  const db = fromPg(pool)
  const w = await rebuildWorld(db)
  closing.push(() => w.end())
  const { schema, outbox, query, count } = w

  // A key of microseconds, on both sides of midnight and of daylight saving time.
  await query(`create table $schema.film (shown timestamptz primary key, id text not null)`)
  await query(`insert into $schema.film select timestamptz '2026-03-28 20:00:00.000001Z' + i * interval '67 minutes 1 microsecond', 'film ' || i
                 from generate_series(1, 23) i`)
  const backfill = createBackfill<Film>({
    db,
    outbox,
    name: 'films',
    source: backfillTable<Film>({ table: `${schema}.film`, key: 'shown' }),
    stream: videos,
    aggregateId: ({ id }) => id,
    toEvent: ({ id }) => event(videos.VideoPublished, id, { title: id }),
    batchSize: 5,
    rowsPerSecond: 10_000,
  })
  expect(await backfill.run()).toMatchObject({ state: 'finished', rows: 23, emitted: 23 })

  const store = postgresBlobStore({ db, schema })
  const [bytes, signal] = [Buffer.from([0, 92, 255, 39, 10]), new AbortController().signal]
  await store.put('film', bytes, { signal })
  expect(Buffer.from((await store.get('film', { maxBytes: 100, signal })) ?? [])).toEqual(bytes)
  expect(await store.expire(3_600_000)).toBe(0)

  const ingest = createIngest({ event: videos.VideoPublished, key: ({ title }) => [title], to: { db, outbox } })
  const fact = { title: `it's \\ "over"` }
  expect(await ingest.accept(fact)).toMatchObject({ status: 'accepted' })
  expect(await ingest.accept(fact)).toMatchObject({ status: 'accepted' })

  await w.settle()
  expect(await w.rebuild({ from: 'outbox', compare: true, swap: true })).toMatchObject({
    swapped: true,
    aggregates: 24,
    comparisons: [{ live: 24, rebuilt: 24, different: 0, checksumsMatch: true }],
  })
  expect(await w.shown()).toEqual(await w.owner())

  const [{ id } = { id: '' }] = await query<{ id: string }>(
    `select id::text from $schema.outbox where aggregate_type = 'video' order by id desc limit 1`,
  )
  const [traced] = (await trace([{ db, schema }], { id })).events
  expect(traced?.deliveries.map(({ state }) => state)).toEqual(['applied'])
  const shown = await status({ db, schema })
  expect(Math.abs(Date.parse(shown.at) - Date.now())).toBeLessThan(600_000)
  expect(shown.outbox).toMatchObject({ due: 0, parked: 0 })
  const { get } = await site(db, {}, w)
  expect((await get('/api/overview')).status).toBe(200)
  expect(await count('operation', `state = 'finished'`)).toBe(2)
})
