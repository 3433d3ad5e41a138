import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'

import { createBookTable, snapshotCounts } from '../../../test/outbox/backfill-world.ts'
import { outboxFixture } from '../../../test/setup/outbox-fixture.ts'
import { runLine, type Ended } from '../../../test/setup/run-line.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
const folder = await mkdtemp(join(tmpdir(), 'waybill-backfill-cli-'))
const source = (path: string): string => JSON.stringify(new URL(`../../../${path}`, import.meta.url).href)

beforeAll(async () => {
  await createBookTable(db, 'public.books', 40)
  await writeFile(
    join(folder, 'waybill.config.ts'),
    `import { createBackfill } from ${source('src/outbox/backfill/backfill.ts')}
     import { backfillTable } from ${source('src/outbox/backfill/table-source.ts')}
     import { bookBackfill } from ${source('test/outbox/backfill-world.ts')}
     const books = (context, options) => createBackfill({
       ...context, ...bookBackfill, source: backfillTable({ table: 'public.books', key: 'id' }), batchSize: 10, rowsPerSecond: 100_000, ...options })
     let stopped = 0
     const toEvent = (row) => { if (row.id === 'b0015' && stopped++ === 0) globalThis.stopBackfill?.(); return bookBackfill.toEvent(row) }
     const waiting = (context) => {
       context.signals.on('backfill.waiting', () => globalThis.stopBackfill?.())
       return books(context, { maxBacklog: 1 })
     }
     export default { service: 'test', backfills: { books, stopping: (context) => books(context, { toEvent }), waiting } }`,
  )
})
afterAll(() => rm(folder, { recursive: true }))

async function backfill(schema: string, words: string): Promise<Ended> {
  const stop = new AbortController()
  Object.assign(globalThis, { stopBackfill: () => stop.abort() })
  return await runLine(`backfill ${words} --schema ${schema}`, {
    folder,
    env: { DATABASE_URL: database.url },
    signal: stop.signal,
  })
}

test('a backfill runs to its end, shows its progress, and is kept with who ran it', async () => {
  const { outbox } = await outboxFixture(db)
  const { schema } = outbox.tables
  const { code, out, err } = await backfill(schema, 'books')
  expect({ code, out }).toEqual({ code: 0, out: 'The backfill books is finished: 40 rows, 40 events, 0 left out.\n' })
  expect(err).toMatch(/^books: 10 rows \(25 %\), 10 events, \d+ rows\/s, about \d+ \w+ left\n/)
  expect(Object.keys(await snapshotCounts(db, outbox))).toHaveLength(40)
  const { rows } = await db.query(`select kind, state, arguments->>'actor' as actor from ${schema}.operation`)
  expect(rows).toEqual([{ kind: 'backfill', state: 'finished', actor: 'ada' }])
})

test('stopped, it says how to go on; without being told to resume it is refused; resumed, it finishes', async () => {
  const { outbox } = await outboxFixture(db)
  const { schema } = outbox.tables
  const stopped = await backfill(schema, 'stopping')
  expect(stopped).toMatchObject({ code: 1, out: expect.stringContaining('stopped after 20 rows, 20 events') })
  expect(stopped.out).toContain('waybill backfill stopping --resume')
  expect(await backfill(schema, 'stopping')).toMatchObject({ code: 3, err: expect.stringContaining('unfinished operation') })
  const resumed = await backfill(schema, 'stopping --resume --json')
  expect(resumed.code).toBe(0)
  expect(JSON.parse(resumed.out)).toMatchObject({ state: 'finished', rows: 40, emitted: 40, skipped: 0 })
  expect(Object.values(await snapshotCounts(db, outbox)).every((count) => count === 1)).toBe(true)
})

test('while it waits it names both causes, and where to look', async () => {
  const { outbox, fill } = await outboxFixture(db)
  await fill(['v1', 'v2'], 1)
  const { code, err } = await backfill(outbox.tables.schema, 'waiting')
  expect(code).toBe(1)
  expect(err).toContain('waiting: waits')
  for (const said of ['due at the relay', 'failed', 'waybill outbox status', 'waybill outbox list --state released --stream'])
    expect(err).toContain(said)
})

test.each([
  ['', 'Which backfill? Configured: books, stopping, waiting.'],
  ['boks', 'Which backfill? Configured: books, stopping, waiting.'],
  ['constructor', 'Which backfill? Configured: books, stopping, waiting.'],
  ['books more', 'Unexpected argument "more".'],
  ['books --resume --restart', 'Choose one of --resume and --restart.'],
])('backfill %s is answered with what can be meant', async (words, message) => {
  expect(await backfill('waybill', words)).toMatchObject({ code: 2, out: '', err: expect.stringContaining(message) })
})
