import { appendFile, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'

import { bookBackfill, books, foldLog, type BookRow } from '../../../test/outbox/backfill-world.ts'
import { outboxFixture } from '../../../test/setup/outbox-fixture.ts'
import { testDatabase } from '../../../test/setup/test-database.ts'
import { fromPg } from '../../postgres/adapters/from-pg.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import { memory } from '../../transport/memory/memory.ts'
import { backfillFile, type BackfillFileOptions } from './file-source.ts'
import { createBackfill, type BackfillOptions } from './backfill.ts'

const database = await testDatabase()
const db = fromPg(database.pool)
let folder = ''
let files = 0

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'waybill-backfill-'))
})
afterAll(() => rm(folder, { recursive: true }))

async function exported(text: string) {
  const { outbox, relay } = await outboxFixture(db)
  const path = join(folder, `books-${(files += 1)}.ndjson`)
  await writeFile(path, text)
  const backfill = (file: Partial<BackfillFileOptions> = {}, options: Partial<BackfillOptions<BookRow>> = {}) =>
    createBackfill({
      db,
      outbox,
      name: 'books',
      source: backfillFile<BookRow>({ path, ...file }),
      ...bookBackfill,
      rowsPerSecond: 1_000_000,
      batchSize: 4,
      ...options,
    })
  const fold = async (): Promise<Record<string, string>> => {
    const broker = memory()
    await relay(broker).once()
    return foldLog(broker)
  }
  const write = (id: string, title: string) => transaction(db, (tx) => outbox.add(tx, books.BookKept, id, { title }))
  return { path, backfill, fold, write }
}

const line = (id: string, title: string): string => JSON.stringify({ id, title })

test('lines of any length, blank lines, Windows line ends and a last line without an end are read as they are', async () => {
  const long = 'é'.repeat(100_000)
  const { backfill, fold } = await exported(`${line('a', 'one')}\r\n\n  \n${line('b', long)}\n${line('c', 'three')}`)
  expect(await backfill().run()).toMatchObject({ state: 'finished', rows: 3, emitted: 3 })
  expect(await fold()).toEqual({ a: 'one', b: long, c: 'three' })
})

test('an empty file is a finished backfill', async () => {
  const { backfill } = await exported('')
  expect(await backfill().run()).toMatchObject({ state: 'finished', rows: 0 })
})

test('a line counts only for an aggregate without events, unless the file is declared to be right', async () => {
  const { backfill, fold, write } = await exported(`${line('a', 'exported')}\n${line('b', 'exported')}\n${line('b', 'twice')}\n`)
  await write('a', 'live')
  expect(await backfill().run()).toMatchObject({ rows: 3, emitted: 1, skipped: 2 })
  expect(await backfill({ whenKnown: 'emit' }).run()).toMatchObject({ rows: 3, emitted: 3 })
  expect(await fold()).toEqual({ a: 'exported', b: 'twice' })
})

test('an id that is no text stops it, for it could not be found again among those that have no events', async () => {
  const { backfill } = await exported(`${line('a', 'one')}\n{"id":17,"title":"x"}\n`)
  await expect(backfill().run()).rejects.toThrow(/aggregate 17 cannot be emitted: .+ got number/)
})

test('a broken line stops it with its number; repaired, it goes on behind what was done', async () => {
  const { backfill, fold, path } = await exported(
    `${['a', 'b', 'c', 'd', 'e'].map((id) => line(id, id)).join('\n')}\n{"id": "f"\n${line('g', 'g')}\n`,
  )
  await expect(backfill().run()).rejects.toThrow(/line 6 cannot be read/)
  await writeFile(path, (await readFile(path, 'utf8')).replace('{"id": "f"', line('f', 'mended')))
  expect(await backfill().run({ mode: 'resume' })).toMatchObject({ state: 'finished', rows: 7, emitted: 7 })
  expect(await fold()).toMatchObject({ a: 'a', e: 'e', f: 'mended', g: 'g' })
})

test.each([
  ['cannot be read', '{"id": "d"', 'INVALID_INPUT'],
  ['is too long', line('d', 'x'.repeat(300_000)), 'TOO_LARGE'],
])('what came before a line that %s is done, though it would have been read in one page with it', async (_why, fourth, code) => {
  const { backfill, fold } = await exported(
    `${['a', 'b', 'c'].map((id) => line(id, id)).join('\n')}\n${fourth}\n${line('e', 'e')}\n`,
  )
  await expect(backfill({ maxLineBytes: 100_000 }, { batchSize: 100 }).run()).rejects.toMatchObject({
    code,
    message: expect.stringContaining('line 4 ') as string,
  })
  expect(await fold()).toEqual({ a: 'a', b: 'b', c: 'c' })
})

test('another file under the same name is not gone on with', async () => {
  const { backfill, path } = await exported(`${['a', 'b', 'c', 'd', 'e'].map((id) => line(id, id)).join('\n')}\n`)
  const stop = new AbortController()
  const toEvent = (row: BookRow) => (stop.abort(), bookBackfill.toEvent(row))
  expect(await backfill({}, { toEvent }).run({ signal: stop.signal })).toMatchObject({ state: 'stopped', rows: 4 })
  const original = await readFile(path, 'utf8')
  await writeFile(path, original.replace('"a"', '"x"'))
  await expect(backfill().run({ mode: 'resume' })).rejects.toMatchObject({ code: 'REFUSED' })
  await writeFile(path, original.slice(0, 20))
  await expect(backfill().run({ mode: 'resume' })).rejects.toMatchObject({ code: 'REFUSED' })
  await writeFile(path, original)
  await appendFile(path, line('f', 'appended'))
  expect(await backfill().run({ mode: 'resume' })).toMatchObject({ state: 'finished', rows: 6 })
})

test('a line that is larger than allowed is refused before it fills the memory', async () => {
  const { backfill } = await exported(`${line('a', 'x'.repeat(300_000))}\n`)
  await expect(backfill({ maxLineBytes: 100_000 }).run()).rejects.toMatchObject({ code: 'TOO_LARGE' })
})
