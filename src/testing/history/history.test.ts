import { appendFile, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { startChild } from '../process/child.ts'
import { checkHistory, createChecker } from './checker.ts'
import type { HistoryEntry } from './entry.ts'
import { createHistory, historyFile, historyLine, readHistoryFile } from './history.ts'

let folder: string
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'waybill-history-'))
})
afterAll(async () => rm(folder, { recursive: true, force: true }))

async function read(path: string): Promise<HistoryEntry[]> {
  const entries: HistoryEntry[] = []
  for await (const entry of readHistoryFile(path)) entries.push(entry)
  return entries
}

const commit: HistoryEntry = { op: 'commit', event: 'e1', aggregate: 'video a', version: 1 }

test('a history in memory keeps what each recorder saw, under its name', () => {
  const history = createHistory({ source: 'writer' })
  history.record(commit)
  history.as('broker').record({ op: 'log', key: 'a', event: 'e1', aggregate: 'video a', version: 1 })
  expect(history.entries.map(({ source }) => source)).toEqual(['writer', 'broker'])
  expect(checkHistory(history.entries, { atRest: true }).verdict).toBe('pass')
})

test('what a process has recorded in a file is there although the process was killed', async () => {
  const path = join(folder, 'killed.ndjson')
  const script = new URL('../../../test/fixtures/recording-child.ts', import.meta.url)
  await using child = startChild(script, { args: [path] })
  await child.message((message) => message === 'recorded')
  await child.kill()
  historyFile(path, { source: 'parent' }).record({ op: 'rest' })
  const entries = await read(path)
  expect(entries.filter(({ op }) => op === 'commit')).toHaveLength(100)
  expect(entries.map(({ source }) => source)).toEqual([...Array.from({ length: 100 }, () => 'child'), 'parent'])
  expect(checkHistory(entries).invariants['no-loss']).toMatchObject({ checked: 100, violations: 100 })
})

test('a last line that was cut off is left out; one in the middle is an error', async () => {
  const path = join(folder, 'torn.ndjson')
  await appendFile(path, `${historyLine(commit)}\n{"op":"com`)
  expect(await read(path)).toEqual([commit])
  await appendFile(path, `\n${historyLine(commit)}\n`)
  await expect(read(path)).rejects.toThrow(/Line 2 of the history/)
})

test('a history of a hundred thousand events is judged while it grows, a hundred times over', () => {
  const checker = createChecker()
  const events = 100_000
  const verdicts = new Set<string>()
  checker.record({ op: 'follow', consumer: 'catalog', types: ['video'] })
  for (let n = 0; n < events; n += 1) {
    const id = `00000000-0000-7000-8000-${String(n).padStart(12, '0')}`
    const event = { event: id, aggregate: `video ${n % 500}`, version: 1 + Math.floor(n / 500) }
    checker.record({ op: 'commit', ...event })
    checker.record({ op: 'log', key: event.aggregate, ...event })
    checker.record({ op: 'apply', consumer: 'catalog', ...event })
    if (n % 1_000 === 0) verdicts.add(checker.verdict({ atRest: true }).verdict)
  }
  expect([...verdicts]).toEqual(['pass'])
  expect(checker.verdict({ atRest: true })).toMatchObject({ verdict: 'pass', counts: { entries: 3 * events + 1, events } })
})
