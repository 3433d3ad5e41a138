import { expect, test } from 'vitest'
import { consumerFixture, videos } from '../../../test/setup/consumer-fixture.ts'
import { hear, rebuildWorld, standingClock } from '../../../test/setup/rebuild-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import type { Consumer } from '../../consumer/consumer.ts'
import { createTokens } from '../../core/event/token.ts'
import { createRelay } from '../../outbox/relay/relay.ts'
import type { Queryable } from '../../postgres/query/database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { abandonRebuild, dropReplaced, rebuild, type RebuildOptions } from './rebuild.ts'
import type { RebuildProgress } from './run.ts'
import { seekerOf } from './source.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

const ids = Array.from({ length: 40 }, (_, i) => `v${String(i).padStart(2, '0')}`)

test.each([
  ['memory', 'earliest'],
  ['memory', 'outbox'],
  ['postgres', 'earliest'],
] as const)('a rebuild under live writes over %s from %s ends with the table as the owner has it', async (kind, from) => {
  const w = await rebuildWorld(db, kind)
  for (const id of [...ids, ...ids]) await w.write(id)
  await w.remove('v07')
  await w.settle()
  // What a defect of the projection left: wrong rows, a missing one, a ghost.
  await w.query(`update $schema.video_view set title = 'wrong' where video_id < 'v20'`)
  await w.query(`delete from $schema.video_view where video_id = 'v33'`)
  await w.query(`insert into $schema.video_view (video_id, title, version) values ('ghost', 'boo', 1)`)
  await w.query(`create view $schema.shown as select * from $schema.video_view where deleted_at is null`)

  const stopWriting = w.writing(['new1', 'new2', ...ids.filter((id) => id !== 'v07')])
  const progress: number[] = []
  const onProgress: RebuildOptions['onProgress'] = ({ reached, total }) => progress.push(reached / total)
  const report = await w.rebuild({ from, swap: true, dropUnknown: true, onProgress })
  expect(report).toMatchObject({ swapped: true, generation: 2, droppedRows: 1 })
  expect(progress.at(-1)).toBeGreaterThan(0)
  const written = await stopWriting()
  expect(written).toBeGreaterThan(0)
  await w.settle()

  expect(await w.shown()).toEqual(await w.owner())
  expect(await w.query('select count(*)::int as n from $schema.shown')).toEqual([{ n: (await w.owner()).length - 1 }])
  const states = await w.count('outbox', `event_type = 'VideoPublished'`)
  expect(await w.count('outbox', `aggregate_type = 'mail'`)).toBe(states)
  expect(w.handledAgain()).toBe(0)
  expect(await w.count('consumer_position', 'generation <> 1')).toBe(0)
  expect(await w.query('select generation, next_generation from $schema.consumer')).toEqual([
    { generation: 1, next_generation: null },
  ])
  expect(await w.query(`select state from $schema.operation where kind = 'rebuild'`)).toEqual([{ state: 'finished' }])

  expect(report.replaced).toEqual([`${w.schema}.video_view_before_g2`])
  expect(await w.count('video_view_before_g2')).toBeGreaterThan(0)
  expect(await dropReplaced({ consumer: w.catalog, actor: 'test' })).toEqual(report.replaced)
  expect(await dropReplaced({ consumer: w.catalog, actor: 'test' })).toEqual([])
  expect(await w.query(`select to_regclass('${w.schema}.video_view_before_g2') as gone`)).toEqual([{ gone: null }])
  await w.end()
})

test.each(['earliest', 'outbox'])(
  'a rebuild from %s that was stopped half-way goes on where it was, and a second one starts afresh',
  async (from) => {
    const w = await rebuildWorld(db)
    const many = Array.from({ length: 1_500 }, (_, i) => `w${String(i).padStart(4, '0')}`)
    await transaction(db, (tx) =>
      w.outbox.addMany(
        tx,
        many.map((aggregateId) => ({ type: videos.VideoPublished, aggregateId, data: { title: aggregateId } })),
      ),
    )
    await w.settle()
    const stop = new AbortController()
    let left = 150
    const stopped = w.rebuild({ from, swap: true, signal: stop.signal }, () => {
      if ((left -= 1) === 0) stop.abort()
    })
    await expect(stopped).rejects.toMatchObject({ code: 'ABORTED' })
    const before = await w.count('video_view_g2')
    expect(before).toBeGreaterThan(0)
    expect(before).toBeLessThan(1_500)
    await w.query(`update $schema.video_view set title = 'wrong'`)

    await expect(w.rebuild({ from: '2026-01-01T00:00:00Z' })).rejects.toMatchObject({ code: 'REFUSED' })
    const built = await w.rebuild({ compare: true, swap: true })
    expect(built).toMatchObject({ generation: 2, aggregates: 1_500, swapped: false })
    expect(built.comparisons).toMatchObject([
      { live: 1_500, rebuilt: 1_500, missing: 0, extra: 0, older: 0, newer: 0, different: 1_500, checksumsMatch: false },
    ])
    expect(built.comparisons[0]?.samples).toHaveLength(5)
    await w.write('w0000')
    expect(await w.rebuild({ swap: true })).toMatchObject({ generation: 2, swapped: true })
    await w.settle()
    expect(await w.shown()).toEqual(await w.owner())

    const again = await w.rebuild({ from, compare: true, swap: true })
    expect(again).toMatchObject({
      generation: 3,
      swapped: true,
      comparisons: [{ different: 0, checksumsMatch: true, samples: [] }],
    })
    expect(await w.shown()).toEqual(await w.owner())
    expect(await w.count('outbox', `aggregate_type = 'mail'`)).toBe(1_501)
    await w.end()
  },
)

test('readers with a token are never shown less, before, during and after the swap', async () => {
  const w = await rebuildWorld(db)
  for (const id of ids) await w.write(id)
  await w.settle()
  let on = true
  let stale = 0
  const tokens = createTokens()
  const reading = async (): Promise<number> => {
    let read = 0
    while (on) {
      const id = ids[read % ids.length] ?? ''
      const token = await w.write(id)
      const row = await w.catalog.read<{ version: string }>(videos, id, { atLeast: token, waitMs: 60_000 })
      if (BigInt(row?.version ?? 0) < tokens.decode(token).version) stale += 1
      read += 1
    }
    return read
  }
  const reads = reading()
  await w.rebuild({ from: 'outbox', swap: true })
  await w.rebuild({ from: 'earliest', swap: true })
  on = false
  expect(await reads).toBeGreaterThan(0)
  expect(stale).toBe(0)
  await w.end()
})

test('a swap waits, while writers wait for it, until the new generation has what the live one applied last', async () => {
  const w = await rebuildWorld(db)
  for (const id of ids) await w.write(id)
  await w.settle()
  await w.rebuild({ from: 'outbox' })
  await w.write('last')
  await w.settle()
  // Always as if it had come this moment, so that the swap is tried without it.
  await w.query(`update $schema.consumer_position set updated_at = updated_at + interval '1 hour' where aggregate_id = 'last'`)
  let heldBack = 0
  const owner: Queryable = {
    query: async (text, values) => {
      const found = await db.query(text, values)
      const locked = await w.query(
        `select from pg_locks where relation = '$schema.video_view'::regclass and mode = 'ShareRowExclusiveLock' and granted`,
      )
      if (locked.length > 0) return found
      const shown = found.rows.filter((row) => (row as { readonly aggregate_id: string }).aggregate_id !== 'last')
      heldBack += found.rows.length - shown.length
      return { ...found, rows: shown }
    },
  }
  expect(await w.rebuild({ swap: true, owner: { db: owner, schema: w.schema } })).toMatchObject({ swapped: true })
  expect(heldBack).toBeGreaterThan(0)
  expect(await w.shown()).toEqual(await w.owner())
  await w.end()
})

test('what is not retained any more is told, nothing is swapped, and the rebuild can be abandoned', async () => {
  const w = await rebuildWorld(db)
  for (const id of ids) await w.write(id)
  await w.settle()
  await w.query(`delete from $schema.outbox where aggregate_id in ('v00', 'v01')`)
  await w.query(`update $schema.consumer_position set updated_at = clock_timestamp() - interval '1 minute'`)
  const clock = standingClock()
  const onProgress = ({ reached }: RebuildProgress): void => {
    if (reached === 38) clock.advance(50)
  }
  await expect(w.rebuild({ from: 'outbox', swap: true, stallMs: 100, clock, onProgress })).rejects.toMatchObject({
    code: 'REFUSED',
    details: { reached: 38, total: 40 },
  })
  expect(await w.count('video_view')).toBe(40)
  expect(await abandonRebuild({ consumer: w.catalog, actor: 'test' })).toBe(true)
  expect(await abandonRebuild({ consumer: w.catalog, actor: 'test' })).toBe(false)
  expect(await w.query(`select to_regclass('${w.schema}.video_view_g2') as gone`)).toEqual([{ gone: null }])
  expect(await w.count('consumer_position', 'generation <> 1')).toBe(0)
  await expect(w.rebuild({})).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  await expect(w.rebuild({ from: 'yesterday-ish' })).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  await w.end()
})

test('a snapshot is refused where the broker has none, or for more than its topic, and nothing is begun', async () => {
  const w = await rebuildWorld(db)
  const from = 'snapshot:before-1.4'
  await expect(w.rebuild({ from })).rejects.toMatchObject({ code: 'REFUSED', message: expect.stringMatching(/has no snapshots/) })
  expect(await w.query(`select to_regclass('${w.schema}.video_view_g2') as none`)).toEqual([{ none: null }])
  const sought: unknown[] = []
  const snapshots = { seek: () => Promise.resolve(), seekToSnapshot: async (target: unknown) => void sought.push(target) }
  expect(() => seekerOf(snapshots, { snapshot: 's' }, ['a.events', 'b.events'])).toThrow(/one topic.*a\.events, b\.events/)
  await seekerOf(snapshots, { snapshot: 's' }, ['a.events'])('catalog.g2')
  expect(sought).toEqual([{ topic: 'a.events', consumer: 'catalog.g2', snapshot: 's' }])
  await w.end()
})

test('what is not retained any more is told while new aggregates come all the time', async () => {
  const w = await rebuildWorld(db)
  for (const id of ids) await w.write(id)
  await w.settle()
  await w.query(`delete from $schema.outbox where aggregate_id in ('v00', 'v01')`)
  await w.query(`update $schema.consumer_position set updated_at = clock_timestamp() - interval '1 minute'`)
  const stop = new AbortController()
  const writes: Promise<string>[] = []
  const onProgress = (): void => {
    writes.push(w.write(`new ${writes.length}`))
    if (writes.length === 300) stop.abort()
  }
  const rebuilt = w.rebuild({ from: 'outbox', swap: true, stallMs: 500, signal: stop.signal, onProgress })
  await expect(rebuilt).rejects.toMatchObject({ code: 'REFUSED' })
  await Promise.all(writes)
  await w.end()
})

test('an aggregate that is held in the new generation, with more events than a page has, does not keep the others waiting', async () => {
  const fixture = await consumerFixture(db)
  const { schema, outbox, broker } = fixture
  const consumerOf = (set: (title: string) => string): Consumer =>
    fixture
      .consumer({ maxAttempts: 1 })
      .project(videos, { table: `${schema}.video_view`, key: 'video_id', set: (e) => ({ title: set(e.data.title) }) })
  const stop = fixture.start(consumerOf((title) => title))
  const relay = createRelay({ db, outbox, transport: broker })
  const write = async (aggregateId: string, count: number): Promise<void> => {
    const type = videos.VideoPublished
    const events = Array.from({ length: count }, (_, i) => ({ type, aggregateId, data: { title: `${aggregateId} ${i}` } }))
    await transaction(db, (tx) => outbox.addMany(tx, events))
    await relay.once()
  }
  await write('held', 600)
  await fixture.settled(600)
  const consumer = consumerOf((title) => {
    if (title.startsWith('held')) throw new Error('broken')
    return title
  })
  const options = { consumer, from: 'outbox', actor: 'test', pollMs: 20 }
  await fixture.query(`update $schema.consumer_position set updated_at = clock_timestamp() - interval '1 minute'`)
  const clock = standingClock()
  // All of them were read: the first is a dead letter, and the others wait behind it.
  let waiting = 0
  hear('consumer.waiting', () => (waiting += 1))
  const standing = { stallMs: 100, clock, onProgress: () => waiting >= 599 && clock.advance(10) }
  await expect(rebuild({ ...options, ...standing })).rejects.toMatchObject({ code: 'REFUSED' })
  expect(await fixture.count('dead_letter', 'generation = 2')).toBe(1)

  await write('other', 1)
  await fixture.settled(601)
  const seen = new AbortController()
  const onProgress = ({ reached }: { readonly reached: number }): void => {
    if (reached === 1) seen.abort()
  }
  await expect(rebuild({ ...options, stallMs: 60_000, signal: seen.signal, onProgress })).rejects.toMatchObject({
    code: 'ABORTED',
  })
  await stop()
})

test('what hangs on the table and could not follow is refused before any work is done', async () => {
  const w = await rebuildWorld(db)
  await w.query(`create table $schema.note (video_id text references $schema.video_view)`)
  await w.query(`create materialized view $schema.summary as select count(*) from $schema.video_view`)
  await expect(w.rebuild({ from: 'outbox' })).rejects.toThrow(/foreign key note_video_id_fkey, materialized view summary/)
  expect(await w.query('select next_generation from $schema.consumer')).toEqual([{ next_generation: null }])
  await w.end()
})

test('what reads the table from elsewhere and is bound to it, not to its name, is refused as well', async () => {
  const w = await rebuildWorld(db)
  await w.query('create table $schema.note (video_id text)')
  await w.query('create view $schema.titles as select title, $schema.video_view.* is null as empty from $schema.video_view')
  await w.query('create view $schema.entry as select video_id from $schema.note')
  await w.query('create function $schema.late() returns bigint language sql as $$ select count(*) from $schema.video_view $$')
  await w.rebuild({ from: 'outbox' })
  await w.query('create policy seen on $schema.note using (video_id in (select video_id from $schema.video_view))')
  await w.query(
    'create rule enter as on insert to $schema.entry do instead insert into $schema.video_view (video_id, version) values (new.video_id, 1)',
  )
  await w.query('create function $schema.early() returns bigint begin atomic select count(*) from $schema.video_view; end')
  await w.query('create function $schema.title(v $schema.video_view) returns text language sql as $$ select v.title $$')
  await w.query('create table $schema.history (videos $schema.video_view[])')
  await expect(w.rebuild({ swap: true })).rejects.toMatchObject({
    code: 'REFUSED',
    details: {
      obstacles: [
        `column videos of table ${w.schema}.history`,
        `function ${w.schema}.early()`,
        `function ${w.schema}.title(${w.schema}.video_view)`,
        `policy seen on table ${w.schema}.note`,
        `rule enter on view ${w.schema}.entry`,
      ],
    },
  })
  await w.end()
})

test('a consumer that keeps no positions is refused: nothing would tell when the new tables are complete', async () => {
  const fixture = await consumerFixture(db)
  const consumer = fixture
    .consumer({ positions: 'needed' })
    .project(videos, { table: `${fixture.schema}.video_view`, key: 'video_id', set: (e) => ({ title: e.data.title }) })
  await expect(rebuild({ consumer, from: 'outbox', actor: 'test' })).rejects.toMatchObject({ code: 'REFUSED' })
  expect(await fixture.count('consumer')).toBe(0)
})
